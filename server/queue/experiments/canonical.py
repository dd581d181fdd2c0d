"""Canonical JSON text, to find equal values."""

from __future__ import annotations

import hashlib
import json

_encoder = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def text(value: object) -> str:
    """Text that is equal for equal JSON values, for any order of keys; true differs from 1."""
    return _encoder.encode(value)


def sha256(value: object) -> str:
    """SHA-256 of the canonical text."""
    return sha256_of_text(text(value))


def sha256_of_text(written: str) -> str:
    """SHA-256 of canonical text."""
    return hashlib.sha256(written.encode()).hexdigest()
