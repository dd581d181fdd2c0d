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


def clock_of(file: Path) -> dict[str, str]:
    """Environment of a process whose clock differs by what the file says."""
    file.write_text("+0d\n")
    return {
        "LD_PRELOAD": library(), "FAKETIME_TIMESTAMP_FILE": str(file), "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }  # fmt: skip
