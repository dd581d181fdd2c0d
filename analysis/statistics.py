"""Descriptive statistics: medians with intervals, outliers, adjusted p-values, effect sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

import numpy as np

from gpt2core.spec.result import median, median_interval
from taskloom.analysis.diagnosis import diagnose
from taskloom.analysis.estimators import CONFIDENCE, sequential_bounds
from taskloom.analysis.meaning import says
from taskloom.analysis.processes import Process
from taskloom.analysis.rank_tests import Floats

T = TypeVar("T")


@dataclass(frozen=True)
class Interval:
    """A median with its nonparametric 95 % interval; no bounds for too few values, and for dependent ones.

    The `n` values are the medians of `processes` processes or, for a single process, its steps. If a stopping rule
    decided the number of processes, the bounds are those of a confidence sequence.
    """

    median: float
    low: float | None
    high: float | None
    n: int = field(metadata=says("number of values"))
    processes: int = field(metadata=says("number of fresh processes, the unit of analysis"))
    over: Literal["processes", "steps"] = field(
        metadata=says("kind of the values: medians of processes, or the steps of the only process"),
    )
    q1: float = field(metadata=says("first quartile of the values"))
    q3: float = field(metadata=says("third quartile"))
    cv: float | None = field(metadata=says("standard deviation / mean; null for one value"))


def step_values(processes: Sequence[Process]) -> list[float]:
    """Sample: each process's median step; for a single process, its steps."""
    if len(processes) == 1:
        return list(processes[0].timed_s)
    return [process.median_step_s for process in processes]


def step_median(processes: Sequence[Process]) -> float:
    """The median step time of one or more processes."""
    return median(step_values(processes))


def median_bounds(values: Sequence[float], sequential: bool) -> tuple[float, float] | None:
    """The 95 % interval of the median of values in the order of their measurement; a confidence sequence if a stopping
    rule looked at them after every block. None for too few values, and for values that resemble their neighbours or
    drift, of which none would cover 95 %."""
    if diagnose(values).broken:
        return None
    return sequential_bounds(values) if sequential else median_interval(values, CONFIDENCE)


def _in_order(processes: Sequence[Process]) -> list[Process]:
    """Processes in the order of their measurement, one occasion after the other."""
    occasions = {occasion: i for i, occasion in enumerate(dict.fromkeys(p.occasion for p in processes))}
    return sorted(processes, key=lambda process: (occasions[process.occasion], process.block, process.run_id))


def step_interval(processes: Sequence[Process]) -> Interval:
    """The median step time of one or more processes. Raises ValueError for none.

    Source: Hoefler & Belli 2015, rules 6 and 9; the interval is that of gpt2core.result.median_interval, or
    under a stopping rule, where it would cover less than 95 %, a confidence sequence.
    """
    values = step_values(_in_order(processes))
    sequential = len(processes) > 1 and any(process.stop_rule for process in processes)
    bounds = median_bounds(values, sequential)
    low, high = (None, None) if bounds is None else bounds
    q1, q3 = _quartiles(values)
    cv = float(np.std(values, ddof=1) / np.mean(values)) if len(values) > 1 else None
    over: Literal["processes", "steps"] = "steps" if len(processes) == 1 else "processes"
    return Interval(median(values), low, high, len(values), len(processes), over, q1, q3, cv)


def by_rows(rows: Sequence[Sequence[float]], of: Callable[[Floats], Iterable[T]]) -> list[T]:
    """Apply `of` to each row, in one call for all rows of the same length."""
    lengths: dict[int, list[int]] = {}
    for place, row in enumerate(rows):
        lengths.setdefault(len(row), []).append(place)
    found: dict[int, T] = {}
    for places in lengths.values():
        matrix = np.array([rows[place] for place in places], np.float64)
        found.update(zip(places, of(matrix), strict=True))
    return [found[place] for place in range(len(rows))]


def outliers(values: Sequence[float]) -> list[int]:
    """Indices of outliers: values more than 1.5 interquartile ranges beyond a quartile. They are labelled and count.

    Source: Tukey 1977.
    """
    return outliers_of_each([values])[0]


def outliers_of_each(rows: Sequence[Sequence[float]]) -> list[list[int]]:
    """`outliers` of each row of values."""
    return by_rows(rows, _outlying)


def _outlying(matrix: Floats) -> list[list[int]]:
    q1, q3 = np.quantile(matrix, [0.25, 0.75], axis=1)
    reach = 1.5 * (q3 - q1)
    within = ((q1 - reach)[:, None] <= matrix) & (matrix <= (q3 + reach)[:, None])
    return [np.flatnonzero(~row).tolist() for row in within]


def _quartiles(values: Sequence[float]) -> tuple[float, float]:
    q1, q3 = np.quantile(values, [0.25, 0.75])
    return float(q1), float(q3)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values adjusted for multiple comparisons: with the limit 0.05, the family errs at most once in 20.

    For p-values that hold at any time (1 / e-value) this is e-Holm. Sources: Holm 1979; Vovk & Wang 2021.
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted, reached = [0.0] * len(p_values), 0.0
    for position, index in enumerate(order):
        reached = max(reached, min(1.0, (len(p_values) - position) * p_values[index]))
        adjusted[index] = reached
    return adjusted


def superiority(a: Sequence[float], b: Sequence[float], paired: bool) -> float:
    """The probability that a value of b is smaller than one of a (of its pair); ties count half. 0.5: no difference."""
    left, right = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if paired:
        return float(np.mean((right < left) + 0.5 * (right == left)))
    ordered = np.sort(right)
    below = np.searchsorted(ordered, left, "left")
    not_above = np.searchsorted(ordered, left, "right")
    return float(np.mean((below + not_above) / 2) / len(right))
