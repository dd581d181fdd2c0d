"""The trainer's own source files."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]


def source_hash(parts: Sequence[str] = (".",), root: Path = ROOT) -> str:
    """SHA-256 of a trainer's source files, or of some of its files and folders; the same hash means the same code."""
    digest = hashlib.sha256()
    files = {path for part in parts for path in [root / part, *(root / part).rglob("*")] if path.suffix == ".py"}
    for path in sorted(files):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
