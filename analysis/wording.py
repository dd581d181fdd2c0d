"""Words that agree with their numbers."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """A number with its noun: 1 run, 2 runs, 6 processes."""
    plural = "" if count == 1 else "es" if noun.endswith("s") else "s"
    return f"{count:,} {noun}{plural}"
