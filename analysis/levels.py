"""Variance components of step times: between occasions, processes and steps.

Source: Kalibera & Jones 2013 ("Rigorous benchmarking in reasonable time"), sections 5 and 6: nested random effects,
estimated without bias by analysis of variance on logarithms, so that components are relative.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np

from taskloom.analysis.meaning import says
from taskloom.analysis.processes import Process
from taskloom.analysis.rank_tests import Floats
from taskloom.analysis.statistics import by_rows

MOST_ADVISED = 1000


@dataclass(frozen=True)
class Levels:
    """Relative standard deviations of step times by level; null for a level with only one member."""

    step: float | None = field(metadata=says("between the steps of a process"))
    process: float | None = field(metadata=says("between the processes of an occasion, beyond that of their steps"))
    occasion: float | None = field(metadata=says("between occasions, beyond that of their processes"))
    steps_advised: int | None = field(
        metadata=says(
            "number of timed steps per process that narrows the interval most for the time spent, if a start costs "
            "as much as "
            "the warm-up; null if steps explain the differences between processes"
        ),
    )


def levels(processes: Sequence[Process], warm_steps: float = 1.0) -> Levels:
    """The components of one variant. Raises ValueError for no process."""
    if not processes:
        raise ValueError("no process")
    steps = [len(process.timed_s) for process in processes]
    count = steps[0] if len(set(steps)) == 1 else round(float(np.mean(steps)))
    moments = by_rows([process.timed_s for process in processes], _moments)
    within = float(np.mean([variance for _, variance in moments])) if min(steps) > 1 else None
    means: dict[Hashable, list[float]] = {}
    for process, (mean, _) in zip(processes, moments, strict=True):
        means.setdefault(process.occasion, []).append(mean)
    several = [values for values in means.values() if len(values) > 1]
    freedom = sum(len(values) - 1 for values in several)
    spread = sum(float(np.var(values)) * len(values) for values in several) / freedom if freedom else None
    own = None if spread is None or within is None else max(0.0, spread - within / count)
    weather = None
    if len(means) > 1 and spread is not None:
        sizes = [len(values) for values in means.values()]
        between = float(np.var([np.mean(values) for values in means.values()], ddof=1))
        weather = max(0.0, between - spread * float(np.mean([1 / size for size in sizes])))
    advised = None
    if own and within is not None:
        advised = min(MOST_ADVISED, max(1, math.ceil(math.sqrt(warm_steps * within / own))))
    return Levels(_root(within), _root(own), _root(weather), advised)


def _moments(steps_s: Floats) -> list[tuple[float, float]]:
    """Mean and variance of the logarithms of each row; of a single value there is no variance, here 0."""
    logs = np.log(steps_s)
    variances = logs.var(axis=1, ddof=1) if logs.shape[1] > 1 else np.zeros(len(logs))
    return list(zip(logs.mean(axis=1).tolist(), variances.tolist(), strict=True))


def _root(variance: float | None) -> float | None:
    return None if variance is None else math.sqrt(variance)
