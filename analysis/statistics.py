"""Medians with intervals, ratios of medians with intervals, and tests. Deterministic: what is random is seeded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gpt2core.spec.result import median, median_interval
from taskloom.analysis.processes import Process

CONFIDENCE = 0.95
RESAMPLES = 10_000
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A median with its nonparametric 95 % interval; no bounds where there are too few values for one.

    `n` values, which are the medians of `processes` processes, or, where there is one process only, its steps.
    q1, q3: their quartiles; cv: standard deviation / mean, null for one value.
    """

    median: float
    low: float | None
    high: float | None
    n: int
    processes: int
    over: Literal["processes", "steps"]
    q1: float
    q3: float
    cv: float | None


@dataclass(frozen=True)
class Ratio:
    """A ratio of medians with its bootstrap 95 % interval."""

    value: float
    low: float
    high: float


def step_values(processes: Sequence[Process]) -> list[float]:
    """What is sampled: each process's median step; of one process alone, its steps."""
    if len(processes) == 1:
        return list(processes[0].timed_s)
    return [process.median_step_s for process in processes]


def step_interval(processes: Sequence[Process]) -> Interval:
    """The median step time of one or more processes. Raises ValueError for none.

    Source: Hoefler & Belli 2015, rules 6 and 9; the interval is that of gpt2core.result.median_interval.
    """
    values = step_values(processes)
    bounds = median_interval(values, CONFIDENCE)
    low, high = (None, None) if bounds is None else bounds
    q1, q3 = _quartiles(values)
    cv = float(np.std(values, ddof=1) / np.mean(values)) if len(values) > 1 else None
    over: Literal["processes", "steps"] = "steps" if len(processes) == 1 else "processes"
    return Interval(median(values), low, high, len(values), len(processes), over, q1, q3, cv)


def outliers(values: Sequence[float]) -> list[int]:
    """Which values, by index, lie more than 1.5 interquartile ranges beyond a quartile. They are labelled and count.

    Source: Tukey 1977.
    """
    q1, q3 = _quartiles(values)
    reach = 1.5 * (q3 - q1)
    return [i for i, value in enumerate(values) if not q1 - reach <= value <= q3 + reach]


def _quartiles(values: Sequence[float]) -> tuple[float, float]:
    q1, q3 = np.quantile(values, [0.25, 0.75])
    return float(q1), float(q3)


def ratio_of_medians(a: Sequence[float], b: Sequence[float], seed: int = 0) -> Ratio:
    """median(a) / median(b) of independent samples, with a percentile bootstrap interval."""
    rng = np.random.default_rng(seed)
    ratios = _resampled_medians(a, rng) / _resampled_medians(b, rng)
    return _ratio(median(a) / median(b), ratios)


def paired_ratio_of_medians(a: Sequence[float], b: Sequence[float], seed: int = 0) -> Ratio:
    """median(a) / median(b) where a[i] and b[i] belong together: pairs are resampled whole."""
    rng = np.random.default_rng(seed)
    chosen = rng.integers(0, len(a), size=(RESAMPLES, len(a)))
    left, right = np.asarray(a, np.float64)[chosen], np.asarray(b, np.float64)[chosen]
    return _ratio(median(a) / median(b), _medians(left) / _medians(right))


def _medians(rows: Floats) -> Floats:
    """Of each row; sorting short rows takes a third of numpy.median's time."""
    ordered, n = np.sort(rows, axis=1), rows.shape[1]
    return (ordered[:, (n - 1) // 2] + ordered[:, n // 2]) / 2


def _ratio(value: float, resampled: Floats) -> Ratio:
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(resampled, [tail, 1 - tail])
    return Ratio(value, float(low), float(high))


def _resampled_medians(values: Sequence[float], rng: np.random.Generator) -> Floats:
    """Medians of RESAMPLES bootstrap samples, drawn as order statistics: no sample is ever built.

    The k-th smallest of n draws with replacement is values[floor(n * U)], U the k-th smallest of n uniforms, which is
    Beta(k, n + 1 - k); given it, the next one is uniform above it, the smallest of n - k.
    """
    ordered, n = np.sort(np.asarray(values, np.float64)), len(values)
    k = (n + 1) // 2
    lower = rng.beta(k, n + 1 - k, RESAMPLES)
    picked = ordered[np.minimum((n * lower).astype(np.int64), n - 1)]
    if n % 2:
        return picked
    upper = 1 - (1 - lower) * rng.random(RESAMPLES) ** (1 / (n - k))
    result: Floats = (picked + ordered[np.minimum((n * upper).astype(np.int64), n - 1)]) / 2
    return result


def unpaired_p_value(a: Sequence[float], b: Sequence[float]) -> float:
    """Two-sided Mann-Whitney: exact for small samples without ties."""
    from scipy import stats  # takes a second to load; a server that compares nothing never pays it

    return float(stats.mannwhitneyu(a, b).pvalue)


def paired_p_value(a: Sequence[float], b: Sequence[float]) -> float:
    """Two-sided Wilcoxon signed rank of the log ratios: exact whatever the ties, zeros ranked and left as they are.

    The sum of signed ranks, doubled so that mean ranks are integers, has a distribution that follows pair by pair: each
    sign is as likely as the other. Source: Pratt 1959; Streitberg & Roehmel 1986 (the shift algorithm).
    """
    from scipy import stats

    differences = np.log(np.asarray(a, np.float64)) - np.log(np.asarray(b, np.float64))
    doubled = np.rint(2 * stats.rankdata(np.abs(differences))).astype(np.int64)[differences != 0]
    positive = int(doubled[differences[differences != 0] > 0].sum())
    chance = np.ones(1)
    for rank in doubled:
        halved, chance = chance / 2, np.zeros(len(chance) + rank)
        chance[: len(halved)] += halved
        chance[rank:] += halved
    tail = min(chance[: positive + 1].sum(), chance[positive:].sum())
    return float(min(1.0, 2 * tail))


def median_of_pair_ratios(a: Sequence[float], b: Sequence[float]) -> tuple[float, float | None, float | None]:
    """The median of a[i] / b[i] with its nonparametric 95 % interval: for pairs whose levels differ, as at several
    places of a sweep; no bounds for fewer than 6 pairs."""
    logs = np.log(np.asarray(a, np.float64)) - np.log(np.asarray(b, np.float64))
    bounds = median_interval(logs.tolist(), CONFIDENCE)
    low, high = (None, None) if bounds is None else (math.exp(bounds[0]), math.exp(bounds[1]))
    return math.exp(median(logs.tolist())), low, high


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values corrected for being several: each below 0.05 is one of a family that errs once in 20 at most.

    Source: Holm 1979.
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted, reached = [0.0] * len(p_values), 0.0
    for position, index in enumerate(order):
        reached = max(reached, min(1.0, (len(p_values) - position) * p_values[index]))
        adjusted[index] = reached
    return adjusted


def smallest_p_value(n_a: int, n_b: int, paired: bool) -> float:
    """What the test can say at most with so many values, however clear the difference."""
    if paired:
        return float(2.0 ** (1 - n_a))
    return 2 / math.comb(n_a + n_b, n_a)


def superiority(a: Sequence[float], b: Sequence[float], paired: bool) -> float:
    """The probability that one of b is smaller than one of a (of its pair); ties count half. 0.5: no difference."""
    left, right = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if paired:
        return float(np.mean((right < left) + 0.5 * (right == left)))
    ordered = np.sort(right)
    below = np.searchsorted(ordered, left, "left")
    not_above = np.searchsorted(ordered, left, "right")
    return float(np.mean((below + not_above) / 2) / len(right))
