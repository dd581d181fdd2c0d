"""Quantiles of the time of a step, with nonparametric intervals from order statistics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gpt2core.spec.result import median, median_interval

CONFIDENCE = 0.95
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
NEEDED = {"p50": 6, "p90": 29, "p99": 299}  # values without which there is no upper bound: 1 - q^n >= CONFIDENCE


def latency(times_s: Sequence[float]) -> dict[str, Any]:
    """Quantiles and maximum of some times; with each quantile its interval, or null if there are too few times, and how
    many are needed.

    Of p50, the interval is the median's. Of the others, each end is a bound that holds with 95 %.
    """
    found: dict[str, Any] = {"steps": len(times_s)}
    for name, share in QUANTILES.items():
        found[f"{name}_s"] = median(times_s) if name == "p50" else quantile(times_s, share)
        bounds = median_interval(times_s) if name == "p50" else quantile_bounds(times_s, share)
        found[f"{name}_ci95_s"] = None if bounds is None else list(bounds)
    return {**found, "max_s": max(times_s), "steps_needed": NEEDED}


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values do not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values) - 1e-9) - 1)]


def quantile_bounds(values: Sequence[float], share: float) -> tuple[float, float] | None:
    """Lower and upper bound of a quantile, each of which holds with CONFIDENCE; None if there are too few values.

    The number of values below the quantile is binomial. Source: Le Boudec 2010, theorem 2.1; Hahn & Meeker 1991.
    """
    ordered, n = sorted(values), len(values)
    below, low = 0.0, 0  # the probability that at most `count` values are below the quantile
    for count in range(n):
        below += _binomial(n, count, share)
        if below <= 1 - CONFIDENCE:
            low = count
        if below >= CONFIDENCE:
            return ordered[low], ordered[count]
    return None


def _binomial(n: int, k: int, share: float) -> float:
    """Probability of k successes in n trials."""
    return math.exp(
        math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) + k * math.log(share)
        + (n - k) * math.log1p(-share)
    )  # fmt: skip
