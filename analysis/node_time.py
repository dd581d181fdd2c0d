"""Describes where a node's time went: the parts of gpt2core.spec.result.NODE_TIME, of one run or of many."""

from __future__ import annotations

import math
from collections.abc import Mapping

from gpt2core.spec.result import NODE_TIME

NAMED = 3  # number of parts that a sentence names, besides the timed steps
WORDS = {"claiming": "waiting for a claim", "compiling": "compiling or loading", "warmup": "warm-up"}


def timed_share(parts: Mapping[str, float]) -> float | None:
    """The timed steps' share of all the time. None: no time was spent."""
    whole_s = math.fsum(parts.values())
    return parts.get("timed_s", 0.0) / whole_s if whole_s > 0 else None


def sentence(parts: Mapping[str, float] | None, missing: str | None = None) -> str:
    """A sentence with the whole time, the timed steps' share, the largest other parts, and the reason for missing
    ones."""
    share = timed_share(parts or {})
    if parts is None or share is None:
        return f"Node time is not known: {missing}." if missing else ""
    whole_s = math.fsum(parts.values())
    rest = sorted(((parts.get(f"{part}_s", 0.0), part) for part in NODE_TIME if part != "timed"), reverse=True)
    most = ", ".join(f"{WORDS.get(part, part)} {s / whole_s:.0%}" for s, part in rest[:NAMED] if s)
    text = f"Node time {whole_s:.1f} s, of which timed steps {share:.0%}" + (f" ({most})." if most else ".")
    return text + (f" Incomplete: {missing}." if missing else "")
