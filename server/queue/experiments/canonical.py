"""JSON values as text, so that equal ones are found."""

from __future__ import annotations

import hashlib
import json

_encoder = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def text(value: object) -> str:
    """Equal for values that are equal as JSON, whatever the order of their keys: true is not 1."""
    return _encoder.encode(value)


def sha256(value: object) -> str:
    """SHA-256 of that text."""
    return sha256_of_text(text(value))


def sha256_of_text(written: str) -> str:
    """SHA-256 of a value that was written so."""
    return hashlib.sha256(written.encode()).hexdigest()
