"""Ratios between variants of a benchmark: over the rounds of one occasion, and over occasions (bench/combine.py)."""

from __future__ import annotations

from collections.abc import Sequence

from bench.record import Measured
from taskloom.analysis.estimators import FEWEST, paired

HOW = (
    "by Hodges-Lehmann on the logarithms of the rounds' ratios, with its exact 95 % interval over the rounds of this "
    f"one occasion; fewer than {FEWEST} rounds have no interval"
)


def ratio(a: Sequence[float], b: Sequence[float]) -> Measured:
    """Ratio estimate of paired a[i] / b[i], as records keep it."""
    found = paired(a, b)
    interval = None if found.low is None else [found.low, found.high]
    return {"ratio": found.value, "ratio_middle": found.middle, "ratio_interval": interval, "rounds": found.n}


NO_RATIO: Measured = {"ratio": None, "ratio_middle": None, "ratio_interval": None, "rounds": 0}


def told(interval: Sequence[float] | None, digits: int = 3) -> str:
    """An interval in a table."""
    return "-" if interval is None else f"{interval[0]:.{digits}f} to {interval[1]:.{digits}f}"
