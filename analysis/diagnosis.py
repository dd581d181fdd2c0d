"""Diagnosis of values in the order of their measurement: findings against independent draws of one distribution.

Drift and autocorrelation downgrade a verdict; two levels are only reported, since rank methods hold under them. On
independent values each test errs at most once in 200.
Sources: Bartels 1982 (rank version of von Neumann's ratio); Kendall 1938.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taskloom.analysis.rank_tests import Floats, doubled_midranks

RESEMBLE_Z, DRIFT_Z = 2.576, 2.807  # one-sided and two-sided, each 1 in 200
FEWEST_VALUES = 10
SMALLEST_CLUSTER = 3
CLUSTER_SHARE = 0.2
GAP = 2.5  # between two levels, in ranges of the wider one


@dataclass(frozen=True)
class Diagnosis:
    """lag1: autocorrelation of neighbours' ranks; drift: correlation of values with their order (Kendall's tau);
    levels: centres of the two groups of values, lower first. Null for fewer than FEWEST_VALUES values; levels also if
    there is only one. broken: findings under which intervals do not hold, in words."""

    n: int
    lag1: float | None
    drift: float | None
    levels: tuple[float, float] | None
    broken: tuple[str, ...]

    @property
    def findings(self) -> list[str]:
        """All findings in words: those under which intervals do not hold, then two levels."""
        if self.levels is None:
            return list(self.broken)
        low, high = self.levels
        return [*self.broken, f"two levels, {high / low - 1:.1%} apart"]


def diagnose(values: Sequence[float] | Floats) -> Diagnosis:
    """Diagnose positive values in the order of their measurement."""
    given = np.asarray(values, np.float64)
    n = len(given)
    if n < FEWEST_VALUES or np.ptp(given) == 0:
        return Diagnosis(n, None, None, None, ())
    ranks = doubled_midranks(given).astype(np.float64)
    ranks -= ranks.mean()
    ratio = float((np.diff(ranks) ** 2).sum() / (ranks**2).sum())
    tau, tau_z = _kendall(ranks)
    broken = []
    if (2 - ratio) / math.sqrt(4 / n) > RESEMBLE_Z:
        broken.append(f"neighbours resemble each other (autocorrelation {1 - ratio / 2:.2f})")
    if abs(tau_z) > DRIFT_Z:
        broken.append(f"a drift over the blocks (Kendall's tau {tau:+.2f})")
    return Diagnosis(n, 1 - ratio / 2, tau, _levels(np.sort(given)), tuple(broken))


def _kendall(ranks: Floats) -> tuple[float, float]:
    """Tau of values against their order, and its normal deviate. Ties reduce the deviate, so the test is
    conservative."""
    n = len(ranks)
    if n > 2000:  # every k-th value: pairs are n^2 / 2
        ranks, n = ranks[:: math.ceil(n / 2000)], len(ranks[:: math.ceil(n / 2000)])
    score, earlier = 0, list[float]()  # pairs in order minus pairs against it, without a matrix of all pairs
    for rank in ranks.tolist():
        score += bisect_left(earlier, rank) + bisect_right(earlier, rank) - len(earlier)
        insort(earlier, rank)
    return score / (n * (n - 1) / 2), score / math.sqrt(n * (n - 1) * (2 * n + 5) / 18)


def _levels(ordered: NDArray[np.float64]) -> tuple[float, float] | None:
    """Medians of two groups far apart, each with a fair share of the values; None where there is one group."""
    n = len(ordered)
    fewest = max(SMALLEST_CLUSTER, math.ceil(CLUSTER_SHARE * n))
    cuts = np.arange(fewest, n - fewest + 1)
    gaps = ordered[cuts] - ordered[cuts - 1]
    ranges = np.maximum(ordered[cuts - 1] - ordered[0], ordered[-1] - ordered[cuts])
    best = int(np.argmax(gaps - GAP * ranges))
    if gaps[best] <= GAP * ranges[best] or gaps[best] <= 1e-9 * abs(ordered[-1]):
        return None
    cut = int(cuts[best])
    return float(np.median(ordered[:cut])), float(np.median(ordered[cut:]))
