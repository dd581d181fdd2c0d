"""Steps, time and energy until runs reached their goal (`stop_at`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gpt2core.spec.result import median
from taskloom.analysis.agreement import without
from taskloom.analysis.meaning import says
from taskloom.analysis.processes import Process
from taskloom.analysis.statistics import median_bounds
from taskloom.analysis.variants import Group

SEED = "seed"
OF_A_PROCESS = (SEED, "cores")


@dataclass(frozen=True)
class Spent:
    """A median with its nonparametric 95 % interval; no bounds for too few values, and for dependent ones."""

    median: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class GoalRow:
    """What the way to the goal took, for runs that differ in the seed alone. A run that did not reach it has no time,
    so medians are null unless all runs reached it."""

    variant: dict[str, Any]
    scheduler: str
    threads: int
    batch_slice: int
    token_slice: int
    metric: str = field(metadata=says("loss, at most `value`; or accuracy, at least `value`"))
    value: float = field(metadata=says("of the metric, at which the runs end"))
    runs: int
    reached: int = field(metadata=says("runs that reached the goal"))
    over: Literal["seeds", "processes"] = field(
        metadata=says("kind of the values: of several seeds one each, the median of its processes; else processes"),
    )
    n: int = field(metadata=says("number of values"))
    steps: Spent | None = field(metadata=says("steps to the goal; equal for processes with equal seeds and slices"))
    time_s: Spent | None = field(metadata=says("time of these steps, warm-up included"))
    energy_j: Spent | None = field(metadata=says("energy of packages and memory during them"))
    energy_missing: str | None = field(metadata=says("why energy_j is null"))


def goals(processes: Sequence[Process]) -> list[GoalRow]:
    """A row for each variant with a goal, its seeds together, in the order of the processes."""
    groups: dict[str, list[Process]] = {}
    for process in processes:
        if process.result.get("goal"):
            key = [without(process.config, OF_A_PROCESS), without(process.variant, OF_A_PROCESS)]
            groups.setdefault(json.dumps(key, sort_keys=True), []).append(process)
    return [_row(group) for group in groups.values()]


def _row(group: Group) -> GoalRow:
    found = [_goal(process) for process in group]
    reached = sum(bool(goal["reached"]) for goal in found)
    complete = reached == len(group)
    by_seed: dict[Any, list[Process]] = {}
    for process in sorted(group, key=lambda each: (each.block, each.run_id)):
        by_seed.setdefault(process.config[SEED], []).append(process)
    units = list(by_seed.values())
    if len(units) == 1:
        units = [[process] for process in units[0]]
    sequential = len(group) > 1 and any(process.stop_rule for process in group)

    def spent(value: Callable[[Mapping[str, Any]], float]) -> Spent:
        values = [median([value(_goal(process)) for process in unit]) for unit in units]
        low, high = median_bounds(values, sequential) or (None, None)
        return Spent(median(values), low, high)

    reasons = sorted({str(goal.get("energy_missing")) for goal in found if goal.get("energy_j") is None})
    first = group[0]
    return GoalRow(
        variant=without(first.variant, (SEED,)) if len(by_seed) > 1 else dict(first.variant),
        scheduler=str(first.config["scheduler"]),
        threads=int(first.config["threads"]),
        batch_slice=int(first.config["batch_slice"]),
        token_slice=int(first.config["token_slice"]),
        metric=str(found[0]["metric"]),
        value=float(found[0]["value"]),
        runs=len(group),
        reached=reached,
        over="seeds" if len(by_seed) > 1 else "processes",
        n=len(units),
        steps=spent(lambda goal: float(goal["steps"])) if complete else None,
        time_s=spent(lambda goal: float(goal["time_s"])) if complete else None,
        energy_j=None if reasons else spent(lambda goal: float(goal["energy_j"])),
        energy_missing="; ".join(reasons) or None,
    )


def _goal(process: Process) -> Mapping[str, Any]:
    goal: Mapping[str, Any] = process.result["goal"]
    return goal
