"""Combinations that a request leaves out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from taskloom.server.queue.experiments.canonical import text


class Exclusions:
    """Combinations to leave out, found by their values: however many leave out values of the same settings, a
    combination is looked up once.
    """

    def __init__(self, entries: Sequence[Mapping[str, Any]]) -> None:
        self._known: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
        for entry in entries:
            names = tuple(sorted(entry))
            self._known.setdefault(names, set()).add(tuple(text(entry[name]) for name in names))

    def __len__(self) -> int:
        """Comparisons that a combination takes."""
        return len(self._known)

    def take(self, texts: Mapping[str, str]) -> bool:
        """Whether the combination, as the text of each setting, is left out."""
        return any(tuple(texts[name] for name in names) in values for names, values in self._known.items())
