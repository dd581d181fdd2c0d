"""Step times over the life of a configuration on a machine: where they changed, and whether a slowdown is real.

A change point is suspected from history alone and called a regression only after fresh runs have confirmed it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from gpt2core.spec.result import median
from taskloom.analysis.agreement import without
from taskloom.analysis.comparison import NOISE_FLOOR, decide
from taskloom.analysis.fingerprint import FINGERPRINT, differing
from taskloom.analysis.processes import Process
from taskloom.analysis.statistics import Ratio, ratio_of_medians

State = Literal["suspected", "confirming", "confirmed", "dismissed"]
# What a history is there to follow: a series goes on when one of these changes.
SOFTWARE = ("kernel", "python", "numba", "llvmlite", "numpy", "blas", "core_version", "core_hash")
MACHINE = tuple(name for name in FINGERPRINT if name not in (*SOFTWARE, "memory_bytes"))
NOT_SERIES = ("steps", "warmup", "seed", "save", "trace", "cores")
MIN_SEGMENT = 4  # runs on each side of a change
MOVES = MIN_SEGMENT // 2  # by so many runs a change may move as more runs come; what was asked about it stays asked
PENALTY = 3.0  # x log n, on ranks: see tests/unit/test_history.py for the error rates that it gives
CONFIRMING_RUNS = 6  # fresh runs that a confirmation takes


@dataclass(frozen=True)
class Point:
    """One run of a series: its median step."""

    run_id: int
    step_s: float
    software: Mapping[str, Any]


@dataclass(frozen=True)
class Change:
    """Between two neighbouring runs the level changed. ratio: after / before, above 1 slower; differs: software that
    changed with it."""

    last_before: int
    first_after: int
    before_s: float
    after_s: float
    ratio: float
    ratio_low: float
    ratio_high: float
    differs: list[str]


@dataclass(frozen=True)
class Alert:
    """A change for the slower, and what fresh runs say of it."""

    change: Change
    state: State
    confirming_experiment_id: int | None
    reason: str


@dataclass(frozen=True)
class Series:
    """All runs of one configuration on one machine, oldest first."""

    config: dict[str, Any]
    machine: dict[str, Any]
    points: list[Point]
    changes: list[Change]
    alerts: list[Alert]


@dataclass(frozen=True)
class Confirmation:
    """An experiment that runs again what was suspected: its runs that succeeded, and whether more are to come."""

    experiment_id: int
    run_ids: frozenset[int]
    active: bool


def change_points(values: Sequence[float], noise_floor: float = NOISE_FLOOR) -> list[int]:
    """Where each new level begins, by index; levels within the noise floor of each other are one.

    Optimal segmentation of the ranks (so that outliers count no more than any other run), with a penalty for each
    change; then of each segment's own ranks, as a large change hides small ones from the ranks of all.
    Source: Killick, Fearnhead & Eckley 2012; Truong, Oudre & Vayatis 2020 (ruptures).
    """
    found = _segments(values)
    while found:
        steps = [abs(math.log(_step(values, found, i))) for i in range(len(found))]
        smallest = min(range(len(found)), key=steps.__getitem__)
        if steps[smallest] >= math.log(1 + noise_floor):
            break
        del found[smallest]
    return found


def _segments(values: Sequence[float]) -> list[int]:
    n = len(values)
    if n < 2 * MIN_SEGMENT or len(set(values)) == 1:
        return []
    import ruptures  # takes more than a second to load
    from scipy import stats

    ranks = (stats.rankdata(values) - (n + 1) / 2) / (n / math.sqrt(12))  # variance 1
    search = ruptures.KernelCPD(kernel="linear", min_size=MIN_SEGMENT).fit(np.asarray(ranks).reshape(-1, 1))
    bounds = [0, *(int(index) for index in search.predict(pen=PENALTY * math.log(n)))]
    if len(bounds) == 2:
        return []
    inner = [low + index for low, high in pairwise(bounds) for index in _segments(values[low:high])]
    return sorted([*bounds[1:-1], *inner])


def _step(values: Sequence[float], found: Sequence[int], i: int) -> float:
    """Level after the i-th change / level before it."""
    bounds = [0, *found, len(values)]
    return median(values[bounds[i + 1] : bounds[i + 2]]) / median(values[bounds[i] : bounds[i + 1]])


def series(
    processes: Sequence[Process], confirmations: Mapping[int, Confirmation], noise_floor: float = NOISE_FLOOR
) -> list[Series]:
    """Every series among processes given oldest first, those with most runs first. confirmations: by the run after the
    change; their runs count only in the same series, and not as history: they would blur what they are to judge."""
    groups: dict[str, list[Process]] = {}
    for process in processes:
        key = json.dumps([_config(process), _machine(process)], sort_keys=True)
        groups.setdefault(key, []).append(process)
    found = [_series(group, confirmations, noise_floor) for group in groups.values()]
    return sorted(found, key=lambda one: -len(one.points))


def _config(process: Process) -> dict[str, Any]:
    return without(process.config, NOT_SERIES)


def _machine(process: Process) -> dict[str, Any]:
    known = {name: process.environment.get(name) for name in MACHINE}
    return {**known, "cores": process.environment.get("cores")}


def _series(group: Sequence[Process], confirmations: Mapping[int, Confirmation], noise_floor: float) -> Series:
    again = frozenset[int]().union(*(confirmation.run_ids for confirmation in confirmations.values()))
    seen = [process for process in group if process.run_id not in again]
    values = [process.median_step_s for process in seen]
    starts = change_points(values, noise_floor)
    bounds = [0, *starts, len(values)]
    changes, alerts = [], []
    for i, start in enumerate(starts):
        before, after = values[bounds[i] : start], values[start : bounds[i + 2]]
        ratio: Ratio = ratio_of_medians(after, before)
        change = Change(
            last_before=seen[start - 1].run_id,
            first_after=seen[start].run_id,
            before_s=median(before),
            after_s=median(after),
            ratio=ratio.value,
            ratio_low=ratio.low,
            ratio_high=ratio.high,
            differs=differing([seen[start - 1].environment, seen[start].environment], SOFTWARE),
        )
        changes.append(change)
        if change.ratio > 1:
            near = seen[max(0, start - MOVES) : start + MOVES + 1]
            asked_near = [confirmations[process.run_id] for process in near if process.run_id in confirmations]
            confirmation = asked_near[-1] if asked_near else None
            asked = frozenset() if confirmation is None else confirmation.run_ids
            fresh_s = [process.median_step_s for process in group if process.run_id in asked]
            alerts.append(alert(change, before, confirmation, fresh_s, noise_floor))
    points = [
        Point(process.run_id, process.median_step_s, {name: process.environment.get(name) for name in SOFTWARE})
        for process in group
    ]
    return Series(_config(group[0]), _machine(group[0]), points, changes, alerts)


def alert(
    change: Change,
    before_s: Sequence[float],
    confirmation: Confirmation | None,
    fresh_s: Sequence[float] = (),
    noise_floor: float = NOISE_FLOOR,
) -> Alert:
    """suspected -> confirming -> confirmed or dismissed: fresh runs against those before the change."""
    if confirmation is None:
        return Alert(change, "suspected", None, "from history alone; fresh runs have to confirm it")
    identity = confirmation.experiment_id
    if confirmation.active:
        return Alert(change, "confirming", identity, f"{len(fresh_s)} fresh runs so far")
    if len(fresh_s) < MIN_SEGMENT:
        return Alert(change, "suspected", identity, f"only {len(fresh_s)} fresh runs on this machine: ask again")
    decision = decide(before_s, fresh_s, paired=False, noise_floor=noise_floor)
    told = f"{len(fresh_s)} fresh runs against {len(before_s)} before: {decision.reason}"
    if decision.verdict == "slower":
        return Alert(change, "confirmed", identity, told)
    if decision.verdict in ("same", "faster"):
        return Alert(change, "dismissed", identity, told)
    return Alert(change, "suspected", identity, f"undecided by {told}")
