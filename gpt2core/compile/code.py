"""Machine code, between what compiles it, what keeps it and what calls it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Compiled:
    """Object code, the external functions that it calls, and the kind of its result: none, bool, int or float."""

    code: bytes
    calls: Sequence[str]
    result: str = "none"


@dataclass(frozen=True)
class Loaded:
    """A function in this process's memory. `was_kept`: it was loaded from a file, not compiled."""

    address: int
    result: str
    was_kept: bool
