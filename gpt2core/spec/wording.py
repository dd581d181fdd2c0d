"""How numbers are written for people: with their noun, as slices, as a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol


class Sliced(Protocol):
    """Something that has slices."""

    @property
    def batch_slice(self) -> int | None: ...
    @property
    def token_slice(self) -> int | None: ...


def counted(count: int, noun: str) -> str:
    """A number with its noun: 1 run, 2 runs, 6 processes."""
    return f"{count:,} {noun_for(count, noun)}"


def noun_for(count: int, noun: str) -> str:
    """A noun in the number that the count needs: run, runs, processes."""
    return noun if count == 1 else noun + ("es" if noun.endswith("s") else "s")


def enumerated(items: Iterable[object], word: str = "and") -> str:
    """Items of a list in a sentence: a; a and b; a, b and c."""
    *first, last = map(str, items)
    return f"{', '.join(first)} {word} {last}" if first else last


def slices(of: Sliced | Mapping[str, Any]) -> str:
    """Samples by positions of a slice, and what else of a configuration, or of a row's variant, cuts or orders tiles:
    1x64; 4x16, 64 units, by diagonals; 1x64, 2 ranks, tensor parallel.
    """
    if isinstance(of, Mapping):
        given, parts = of.get("variant", of), [f"{of['batch_slice']}x{of['token_slice']}"]
    else:
        given, parts = getattr(of, "variant", {}), [f"{of.batch_slice}x{of.token_slice}"]
    if (units := given.get("unit_slice")) is not None:
        parts.append(counted(units, "unit"))
    if given.get("op_order") == "diagonals":
        parts.append("by diagonals")
    if (ranks := given.get("ranks") or 1) > 1:
        parts.append(counted(ranks, "rank"))
        if (parallel := given.get("parallel") or "data") != "data":
            parts.append(f"{parallel} parallel")
    return ", ".join(parts)


def seconds(value: float | None) -> str:
    """A time in a suitable unit: 2.5 s, 13.4 ms, 7 us; - if it is unknown."""
    if value is None:
        return "-"
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if value * factor >= 1:
            return f"{value * factor:.4g} {unit}"
    return f"{value * 1e6:.4g} us"
