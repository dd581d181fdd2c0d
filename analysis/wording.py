"""Words that agree with their numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


def counted(count: int, noun: str) -> str:
    """A number with its noun: 1 run, 2 runs, 6 processes."""
    plural = "" if count == 1 else "es" if noun.endswith("s") else "s"
    return f"{count:,} {noun}{plural}"


def value_name(axis: str | None, value: Any) -> str:
    """A value of an axis: task, 2 threads, batch_slice 4."""
    if axis == "threads":
        return counted(value, "thread")
    return str(value) if axis in (None, "scheduler") else f"{axis} {value}"


def is_or_are(axis: str | None, value: Any) -> str:
    """The verb of a value: 2 threads are, 1 thread is."""
    return "are" if axis == "threads" and value != 1 else "is"


@dataclass(frozen=True)
class Sides:
    """What the comparisons of a sweep have in common. ratio: fork-join time / task time. above_1: task is faster.
    shared: false if the values vary; then they are called first and second."""

    ratio: str
    above_1: str
    shared: bool


def sides_of(axis: str | None, compared: Iterable[tuple[Any, Any]]) -> Sides:
    """compared: (first value, second value) of each comparison."""
    pairs = {(value_name(axis, a), value_name(axis, b)): b for a, b in compared}
    if len(pairs) != 1:
        return Sides("first time / second time", "the second is faster", False)
    ((first, second), value), = pairs.items()
    return Sides(f"{first} time / {second} time", f"{second} {is_or_are(axis, value)} faster", True)
