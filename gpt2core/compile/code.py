"""Machine code, between what compiles it, what keeps it and what calls it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Compiled:
    """Object code, the external functions that it calls, and the kind of its result: none, bool, int or float."""

    code: bytes
    calls: Sequence[str]
    result: str = "none"

    def to_bytes(self) -> bytes:
        """The content of its file."""
        return json.dumps({"calls": list(self.calls), "result": self.result}).encode() + b"\n" + self.code

    @classmethod
    def from_bytes(cls, content: bytes) -> Compiled:
        """What `to_bytes` made a content of."""
        about, _, code = content.partition(b"\n")
        return cls(code, **json.loads(about))


@dataclass(frozen=True)
class Loaded:
    """A function in this process's memory. `was_kept`: it was loaded from a file, not compiled."""

    address: int
    result: str
    was_kept: bool
