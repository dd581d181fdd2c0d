"""Access of an operation: the scopes that allow it, and the callers that need no key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Access:
    """Scopes that allow an operation. `without_key`: the callers that need no key."""

    scopes: frozenset[str]
    without_key: Literal["nowhere", "loopback", "everywhere"] = "nowhere"

    def __or__(self, other: Access) -> Access:
        return Access(self.scopes | other.scopes)

    def is_open(self, public: bool) -> bool:
        """Whether no key is needed. public: whether other machines can reach the server."""
        return self.without_key == "everywhere" or (self.without_key == "loopback" and not public)

    def __str__(self) -> str:
        """The minimum scopes; `admin` allows everything, and `submit` includes `read`."""
        if self.without_key == "everywhere":
            return "none"
        least: Sequence[str] = sorted(self.scopes & {"read", "worker"}) or sorted(self.scopes & {"submit"}) or ["admin"]
        return " or ".join(least) + ("; none on loopback" if self.without_key == "loopback" else "")


READERS = Access(frozenset({"read", "submit", "admin"}))
SUBMITTERS = Access(frozenset({"submit", "admin"}))
WORKERS = Access(frozenset({"worker", "admin"}))
ADMINS = Access(frozenset({"admin"}))
EVERYBODY = Access(frozenset(), "everywhere")
PAGE = Access(READERS.scopes, "loopback")  # a page without data
