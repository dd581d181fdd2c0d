"""Combinations that a request excludes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from taskloom.server.queue.experiments.canonical import text


class Exclusions:
    """Excluded combinations, indexed by their values: one lookup checks all exclusions of the same settings.
    """

    def __init__(self, entries: Sequence[Mapping[str, Any]]) -> None:
        self._known: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
        for entry in entries:
            names = tuple(sorted(entry))
            self._known.setdefault(names, set()).add(tuple(text(entry[name]) for name in names))

    def __len__(self) -> int:
        """Number of lookups per combination."""
        return len(self._known)

    def take(self, texts: Mapping[str, str]) -> bool:
        """Whether a combination is excluded. texts: the canonical JSON text of each setting."""
        return any(tuple(texts[name] for name in names) in values for names, values in self._known.items())
