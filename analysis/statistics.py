"""Medians with intervals, ratios of medians with intervals, and tests. Deterministic: what is random is seeded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from analysis.processes import Process
from gpt2core.result import median, median_interval

CONFIDENCE = 0.95
RESAMPLES = 10_000
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A median with its nonparametric 95 % interval; no bounds where there are too few values for one.

    `n` values, which are the medians of `processes` processes, or, where there is one process only, its steps.
    """

    median: float
    low: float | None
    high: float | None
    n: int
    processes: int
    over: Literal["processes", "steps"]


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
    return Interval(
        median(values), low, high, len(values), len(processes), "steps" if len(processes) == 1 else "processes"
    )


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
    return _ratio(median(a) / median(b), np.median(left, axis=1) / np.median(right, axis=1))


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


def paired_p_value(a: Sequence[float], b: Sequence[float], seed: int = 0) -> float:
    """Two-sided Wilcoxon signed rank of the log ratios, by permutation: exact up to 13 pairs."""
    from scipy import stats

    differences = np.log(np.asarray(a, np.float64)) - np.log(np.asarray(b, np.float64))
    if not differences.any():
        return 1.0
    method = stats.PermutationMethod(n_resamples=RESAMPLES, rng=np.random.default_rng(seed))
    return float(stats.wilcoxon(differences, zero_method="zsplit", method=method).pvalue)


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
