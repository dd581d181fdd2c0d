"""Ratio estimates: Hodges-Lehmann, with intervals that keep their coverage.

All estimates use logarithms of times, so that a ratio is a difference. Intervals invert exact rank tests, so they
assume no distribution; those of two samples also invert a test that holds where one scatters more. Fewer than FEWEST
pairs allow no interval at 95 %, so there is none. Sources: Hodges & Lehmann 1963; Hollander, Wolfe & Chicken 2014;
Howard et al. 2021 (confidence sequences).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from taskloom.analysis.rank_tests import (
    Floats,
    brunner_munzel_p_value,
    mann_whitney_cut,
    mann_whitney_p_value,
    rounded,
    signed_rank_cut,
    signed_rank_p_value,
)

CONFIDENCE = 0.95
TAIL = (1 - CONFIDENCE) / 2
FEWEST = 6  # pairs, or values a side: 2 of 2^6 outcomes are as extreme as all of one sign
MOST_LOG_WEALTH = 700.0  # beyond 709 a float overflows; a smaller e-value is valid too
MANY = 400  # more values: Walsh averages are counted instead of listed
Unit = Literal["pairs", "processes", "occasions", "places"]
Test = Literal["signed-rank", "mann-whitney", "signs"]


@dataclass(frozen=True)
class Estimate:
    """A ratio. low, high: null for too few values; p_value: null if no test is valid. middle: the median
    of the pairs' ratios or, without pairs, the ratio of the medians. n: sample size in `unit`s; of two samples, the
    smaller."""

    value: float
    low: float | None
    high: float | None
    p_value: float | None
    middle: float
    n: int
    unit: Unit
    test: Test = "signed-rank"

    @property
    def paired(self) -> bool:
        return self.test != "mann-whitney"


def logarithms(values: Sequence[float] | Floats) -> Floats:
    return np.log(np.asarray(values, np.float64))


def paired(a: Sequence[float], b: Sequence[float], unit: Unit = "pairs") -> Estimate:
    """Ratio estimate of paired a[i] / b[i]."""
    return of_logs(logarithms(a) - logarithms(b), unit)


def of_logs(logs: Floats, unit: Unit = "pairs", tail: float = TAIL) -> Estimate:
    """The pseudomedian of the pairs' log ratios, with the interval of its Walsh averages and the signed rank test."""
    centre, low, high = walsh(logs, tail)
    middle = math.exp(float(np.median(logs)))
    return Estimate(*_ratio(centre, low, high), signed_rank_p_value(logs), middle, len(logs), unit)


def unpaired(
    a: Sequence[float], b: Sequence[float], unit: Unit = "processes", tail: float = TAIL
) -> Estimate:
    """Ratio estimate of two samples, a / b: both from one occasion, or each value an occasion's median.

    Mann-Whitney's test is exact where both sides scatter alike, and Brunner-Munzel's holds where they do not. The
    larger p-value counts, and the interval contains both tests' intervals.
    """
    left, right = logarithms(a), logarithms(b)
    fewer, count = min(len(left), len(right)), len(left) * len(right)
    cut = mann_whitney_cut(len(left), len(right), tail) if fewer >= FEWEST else None
    shift = _differences(np.sort(left), np.sort(right))
    centre, low, high = _bounds(shift, count, cut)
    p_value = mann_whitney_p_value(left, right)
    if fewer >= FEWEST:
        p_value = max(p_value, brunner_munzel_p_value(left, right))
    if cut is not None:

        def holds(k: int) -> bool:
            """Whether a shift between the k-th smallest difference and the one before is compatible with the values."""
            middle = (shift(k - 1) + shift(k)) / 2
            return brunner_munzel_p_value(left - middle, right) >= 2 * tail

        inner = range(1, cut + 1)
        low = shift(bisect_left(inner, True, key=holds))
        high = shift(count - 1 - bisect_left(inner, True, key=lambda k: holds(count - k)))
    middle = math.exp(float(np.median(left) - np.median(right)))
    return Estimate(*_ratio(centre, low, high), p_value, middle, fewer, unit, "mann-whitney")


def bare(a: Sequence[float], b: Sequence[float]) -> Estimate:
    """The ratio of two samples that allow no interval and no test."""
    return replace(unpaired(a, b), low=None, high=None, p_value=None)


def smallest_p_value(test: Test, n: int) -> float:
    """Smallest p-value that a test of n values (two samples: n a side) can give."""
    if test == "mann-whitney":
        return 2 / math.comb(2 * n, n)
    return min(1.0, math.exp(-log_wealth(n, 0))) if test == "signs" else float(2.0 ** (1 - n))


def walsh(logs: Floats, tail: float = TAIL) -> tuple[float, float | None, float | None]:
    """Hodges-Lehmann: the median of all means of two values (each with itself too), and its exact interval."""
    n = len(logs)
    return _bounds(_means(logs), n * (n + 1) // 2, signed_rank_cut(n, tail))


def walsh_rows(rows: Floats, tail: float = TAIL) -> tuple[Floats, Floats, Floats]:
    """walsh() of each of many short rows at once; infinite bounds if rows are too short for an interval."""
    first, second = np.triu_indices(rows.shape[1])
    means = np.sort((rows[:, first] + rows[:, second]) / 2, axis=1)
    count, cut = means.shape[1], signed_rank_cut(rows.shape[1], tail)
    centre = (means[:, (count - 1) // 2] + means[:, count // 2]) / 2
    if cut is None:
        return centre, np.full(len(rows), -np.inf), np.full(len(rows), np.inf)
    return centre, means[:, cut], means[:, count - 1 - cut]


def anytime(logs: Floats, unit: Unit = "pairs", tail: float = TAIL) -> Estimate:
    """A ratio that is valid under optional stopping after any pair: the interval is a confidence sequence, and
    1 / p_value an e-value.

    Both bet on signs: in randomised pairs of equal variants the sign of a log ratio is a fair coin. The bet is
    Jeffreys' mixture over all biases, a martingale, which ever exceeds 1 / alpha with probability alpha at most.
    """
    values = np.sort(logs)
    cut = _sequential_cut(len(values), 2 * tail)
    centre = walsh(logs)[0]
    low, high = (None, None) if cut is None else (float(values[cut]), float(values[-1 - cut]))
    if low is not None and high is not None:  # signs bound the median, while the estimate is the pseudomedian
        low, high = min(low, centre), max(high, centre)
    middle = math.exp(float(np.median(logs)))
    return Estimate(*_ratio(centre, low, high), min(1.0, 1 / e_value(logs)), middle, len(logs), unit, "signs")


def anytime_rows(rows: Floats, alpha: float = 2 * TAIL) -> tuple[Floats, Floats]:
    """anytime() of each of many rows at once: the estimate, and the lower bound at level alpha, above 0 exactly where
    the e-value reaches 1 / alpha; -infinity if rows are too short for a bound."""
    centre, _, _ = walsh_rows(rows)
    cut = _sequential_cut(rows.shape[1], alpha)
    return centre, np.full(len(rows), -np.inf) if cut is None else np.sort(rows)[:, cut]


def e_value(logs: Floats) -> float:
    """E-value: the present value of a bet of 1 on biased signs. For a fair coin it ever reaches 20 with probability
    1/20 at most."""
    values = rounded(logs)
    return math.exp(min(MOST_LOG_WEALTH, log_wealth(int((values > 0).sum()), int((values < 0).sum()))))


def log_wealth(heads: int, tails: int) -> float:
    """Logarithm of the value of Jeffreys' mixture: 2^n B(heads + 1/2, tails + 1/2) / B(1/2, 1/2)."""
    n = heads + tails
    beta = math.lgamma(heads + 0.5) + math.lgamma(tails + 0.5) - math.lgamma(n + 1) - math.log(math.pi)
    return n * math.log(2) + beta


def sequential_bounds(values: Sequence[float] | Floats) -> tuple[float, float] | None:
    """A confidence sequence of the median of independent values, at 95 %; None for too few."""
    ordered = np.sort(np.asarray(values, np.float64))
    cut = _sequential_cut(len(ordered), 2 * TAIL)
    return None if cut is None else (float(ordered[cut]), float(ordered[-1 - cut]))


def _sequential_cut(n: int, alpha: float) -> int | None:
    """Number of n sorted values outside the confidence sequence at each end."""
    cut = -1
    while cut + 1 < n / 2 and log_wealth(cut + 1, n - cut - 1) >= -math.log(alpha):
        cut += 1
    return None if cut < 0 else cut


Count = Callable[[int], float]  # the k-th smallest of a set, from 0


def _bounds(smallest: Count, count: int, cut: int | None) -> tuple[float, float | None, float | None]:
    centre = (smallest((count - 1) // 2) + smallest(count // 2)) / 2
    return (centre, None, None) if cut is None else (centre, smallest(cut), smallest(count - 1 - cut))


def _means(logs: Floats) -> Count:
    """The k-th smallest Walsh average."""
    if len(logs) <= MANY:
        first, second = np.triu_indices(len(logs))
        listed = np.sort((logs[first] + logs[second]) / 2)
        return lambda k: float(listed[k])
    ordered = np.sort(logs)
    before = np.arange(len(ordered))

    def count(limit: float) -> int:
        """Walsh averages at most `limit`: for each value its partners at or above it in order."""
        return int(np.maximum(np.searchsorted(ordered, 2 * limit - ordered, "right") - before, 0).sum())

    return lambda k: _bisect(count, k, float(ordered[0]), float(ordered[-1]))


def _differences(a: Floats, b: Floats) -> Count:
    """The k-th smallest difference a - b; both are sorted."""
    if len(a) * len(b) <= MANY * MANY // 2:
        listed = np.sort(np.subtract.outer(a, b), axis=None)
        return lambda k: float(listed[k])

    def count(limit: float) -> int:
        return int((len(b) - np.searchsorted(b, a - limit, "left")).sum())

    return lambda k: _bisect(count, k, float(a[0] - b[-1]), float(a[-1] - b[0]))


def _bisect(count: Callable[[float], int], k: int, low: float, high: float) -> float:
    """The smallest limit, to a part in 10^12, that more than k values do not exceed: O(n log n) a step, without a list
    of n^2."""
    while high - low > 1e-12 * max(1.0, abs(low), abs(high)):
        middle = (low + high) / 2
        low, high = (low, middle) if count(middle) > k else (middle, high)
    return high


def _ratio(centre: float, low: float | None, high: float | None) -> tuple[float, float | None, float | None]:
    return math.exp(centre), None if low is None else math.exp(low), None if high is None else math.exp(high)
