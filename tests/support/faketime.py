"""libfaketime, which gives a process a wrong clock."""

from __future__ import annotations

import importlib.util
from pathlib import Path


def library() -> str:
    """Path of the library for LD_PRELOAD."""
    package = importlib.util.find_spec("libfaketime")
    assert package is not None
    assert package.origin is not None
    return str(Path(package.origin).parent / "vendor/libfaketime/src/libfaketime.so.1")
