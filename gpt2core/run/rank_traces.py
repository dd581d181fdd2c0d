"""The traces of all ranks of a run in one, on rank 0's clock: each rank's spans, and what it sent to whom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpt2core.ranks.layout import Layout
from gpt2core.run.report import Report
from gpt2core.step.ops import Program

if TYPE_CHECKING:
    from gpt2core.ranks.world import World

SHARED = ("schema", "config", "environment")  # by all ranks; the trace has rank 0's


def of_all_ranks(world: World, report: Report, layout: Layout, trace: Mapping[str, Any]) -> dict[str, Any]:
    """The trace of a run, from that of each rank. Only rank 0's is complete."""
    began_ns = report.began_ns() - world.lead_ns()
    mine = {name: value for name, value in trace.items() if name not in SHARED}
    mine["sends"] = sends(report.measured.planned.program, layout)
    mine["node"] = world.host
    every = world.at_first((began_ns, mine))
    earliest_ns = min((each_ns for each_ns, _ in every), default=began_ns)
    first, *others = [{**each, "begin_ns": each_ns - earliest_ns} for each_ns, each in every] or [mine]
    return {**{name: trace[name] for name in SHARED}, **first, "ranks": others}


def sends(program: Program, layout: Layout) -> dict[str, list[int]]:
    """Columns with a row for each task that sends and each rank that gets something: the task, the rank, and bytes."""
    tasks: dict[str, list[int]] = {}
    for number, (op, _) in enumerate(program.tasks):
        tasks.setdefault(op.name, []).append(number)
    columns: dict[str, list[int]] = {"task": [], "to": [], "bytes": []}
    for kind in layout.kinds:
        for task, sizes in zip(tasks[f"{kind}_send"], layout.sent(kind), strict=True):
            columns["task"] += [task] * len(sizes)
            columns["to"] += sizes
            columns["bytes"] += sizes.values()
    return columns
