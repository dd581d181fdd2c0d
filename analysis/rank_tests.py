"""Exact rank tests with ties, and the order statistics that bound an exact interval.

SciPy has exact tests only without ties; with ties it enumerates all permutations, which is feasible for about ten
pairs. Here the shift algorithm gives the exact null distribution for any ties. Beyond MOST_EXACT values SciPy's normal
approximation with its correction for ties is used, whose error is below 1e-4 there. Sources: Pratt 1959; Streitberg &
Roehmel 1986; Hollander, Wolfe & Chicken 2014, sections 3.1 and 4.1.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
DECIMALS = 9  # of logarithms: values that differ by less than a part in 10^9 are ties
MOST_EXACT = 200  # pairs; of two samples, half as many values in both together


def rounded(logs: Floats) -> Floats:
    """Logarithms, rounded so that equal ratios are equal: 1.2 / 1.0 and 0.6 / 0.5 differ in their last bit."""
    return np.asarray(np.round(logs, DECIMALS) + 0.0)


def signed_rank_p_value(differences: Floats) -> float:
    """Two-sided Wilcoxon signed rank test, exact with ties; zeros are ranked and then left out (Pratt)."""
    values = rounded(differences)
    if len(values) > MOST_EXACT:
        from scipy import stats  # takes a second to load

        return float(stats.wilcoxon(values, zero_method="pratt", correction=True, method="asymptotic").pvalue)
    ranks = doubled_midranks(np.abs(values))
    below = _signed_sums(tuple(sorted(ranks[values != 0].tolist())))
    positive = int(ranks[values > 0].sum())
    return _two_sided(below, positive)


def mann_whitney_p_value(a: Floats, b: Floats) -> float:
    """Two-sided Mann-Whitney test on logarithms, exact with ties."""
    pooled = rounded(np.concatenate([a, b]))
    if len(pooled) > MOST_EXACT // 2:
        from scipy import stats

        return float(stats.mannwhitneyu(pooled[: len(a)], pooled[len(a) :], method="asymptotic").pvalue)
    ranks = doubled_midranks(pooled)
    below = _subset_sums(tuple(sorted(ranks.tolist())), len(a))
    return _two_sided(below, int(ranks[: len(a)].sum()))


def doubled_midranks(values: Floats) -> NDArray[np.int64]:
    """Twice the rank of each value, ties sharing their mean: integers."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((2 * last - counts + 1)[places], np.int64)


@lru_cache(maxsize=64)
def signed_rank_cut(pairs: int, tail: float) -> int | None:
    """Number of sorted Walsh averages outside the interval at each end. None: too few pairs."""
    if pairs > MOST_EXACT:
        mean, variance = pairs * (pairs + 1) / 4, pairs * (pairs + 1) * (2 * pairs + 1) / 24
        return math.floor(mean - _normal(tail) * math.sqrt(variance) - 0.5)
    below = _signed_sums(tuple(range(2, 2 * pairs + 1, 2)))
    return _cut(below[::2], tail)


@lru_cache(maxsize=256)
def mann_whitney_cut(n_a: int, n_b: int, tail: float) -> int | None:
    """Number of sorted differences outside the interval at each end. None: samples too small."""
    if n_a + n_b > MOST_EXACT // 2:
        variance = n_a * n_b * (n_a + n_b + 1) / 12
        return math.floor(n_a * n_b / 2 - _normal(tail) * math.sqrt(variance) - 0.5)
    below = _subset_sums(tuple(range(2, 2 * (n_a + n_b) + 1, 2)), n_a)
    return _cut(below[n_a * (n_a + 1) :: 2], tail)  # from the smallest rank sum there is


def _cut(below: Floats, tail: float) -> int | None:
    """The largest index whose probability is at most `tail`, or None."""
    found = int(np.searchsorted(below, tail * (1 + 1e-12), "right"))
    return found - 1 if found else None


def _normal(tail: float) -> float:
    from scipy import special

    return float(-special.ndtri(tail))


def _two_sided(below: Floats, found: int) -> float:
    """Two-sided p-value of a statistic that is symmetric about its mean under the null hypothesis."""
    above = 1 - (below[found - 1] if found else 0.0)
    return float(min(1.0, 2 * min(below[found], above)))


@lru_cache(maxsize=1024)
def _signed_sums(ranks: tuple[int, ...]) -> Floats:
    """P(sum of the positive ranks <= s) for each s, every sign a fair coin."""
    chance = np.ones(1)
    for rank in ranks:
        halved, chance = chance / 2, np.zeros(len(chance) + rank)
        chance[: len(halved)] += halved
        chance[rank:] += halved
    return np.cumsum(chance)


@lru_cache(maxsize=256)
def _subset_sums(ranks: tuple[int, ...], size: int) -> Floats:
    """P(sum of the ranks of `size` values <= s) for each s, all subsets equally probable."""
    most = sum(ranks[-size:])
    ways = np.zeros((size + 1, most + 1))
    ways[0, 0] = 1
    for rank in ranks:
        ways[1:, rank:] += ways[:-1, : most + 1 - rank]
    return np.cumsum(ways[size]) / math.comb(len(ranks), size)
