"""Ratios between variants of a benchmark: over the rounds of one occasion, and over occasions (bench/combine.py)."""

from __future__ import annotations

from collections.abc import Sequence

from bench.record import Measured
from taskloom.analysis.diagnosis import diagnose
from taskloom.analysis.estimators import FEWEST, paired

HOW = (
    "by Hodges-Lehmann on the logarithms of the rounds' ratios, with its exact 95 % interval over the rounds of this "
    f"one occasion; fewer than {FEWEST} rounds, and rounds that resemble their neighbours or drift, have no interval"
)


def ratio(a: Sequence[float], b: Sequence[float]) -> Measured:
    """Ratio estimate of a[i] / b[i], paired in the order of their rounds, as records keep it."""
    found = paired(a, b)
    broken = diagnose([mine / other for mine, other in zip(a, b, strict=True)]).broken
    interval = None if found.low is None or broken else [found.low, found.high]
    return {"ratio": found.value, "ratio_middle": found.middle, "ratio_interval": interval, "rounds": found.n}


NO_RATIO: Measured = {"ratio": None, "ratio_middle": None, "ratio_interval": None, "rounds": 0}


def limits(interval: Sequence[float] | None, digits: int = 3) -> str:
    """An interval in a table."""
    return "-" if interval is None else f"{interval[0]:.{digits}f} to {interval[1]:.{digits}f}"
