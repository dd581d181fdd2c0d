"""A graph as the list of everything that one thread creates in each step: tasks, the addresses on which they depend,
and waits.

In depend clauses each region is represented by an address, its marker: `in` for reads, `inout` for writes and updates.
A reduction's members may run at the same time: each has the region's marker `in`, like a reader, and a marker of its
own `inout`, which the region's readers have `in` too. (`mutexinoutset` would let them run one after another only, and
LLVM's runtimes do not accept `inoutset` through these entry points.) Regions that no task writes need no clause.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpt2core.step.graph import WAIT, Graph, bottom_levels
from gpt2core.step.ops import Mode, Program

Ints = NDArray[np.int64]
MOST_PRIORITY = 1 << 20
HEAD = 2  # cells before the addresses: their number, and how many of them, the first ones, are inout
# Cells of `markers`: of ends of even and odd steps, of losses, of regions; those of reductions' members follow.
EVEN, ODD, LOSS, MARKERS = 0, 8, 16, 24
TASKWAIT = -1


class Creation(NamedTuple):
    """Tasks and waits that one thread creates in each step. With `gated`, only dependencies order the steps."""

    order: Ints  # task numbers in program order, and TASKWAIT
    depend: Ints  # depend clauses, one after the other
    clause: Ints  # (tasks,) index of a task's clause in `depend`
    ends: Ints  # (tasks,) index of the end of its step in `depend`, which depends on the step's parity; -1: none
    priority: Ints  # (tasks,)
    prioritised: int  # whether priorities are given
    gated: int
    markers: Ints  # unused memory, whose addresses stand for regions and for ends of steps


def plan(program: Program, graph: Graph, policy: str, cost_s: Sequence[float]) -> Creation:
    """Plan the tasks and waits of a graph. policy: see replay.flatten; breadth-first leaves order to the runtime."""
    tasks = program.tasks
    members = members_of(program)
    markers = np.zeros(MARKERS + len(program.regions) + sum(map(len, members.values())), np.int64)
    address = int(markers.ctypes.data)
    gated = graph.overlaps
    last, losses = set[int](), set[int]()
    if gated:  # the waits of the graph as clauses of the tasks before them
        losses = {a for a, b in graph.edges if b == graph.gate and graph.task[a] != WAIT}
        last = losses | {a for a, b in graph.edges if b == graph.end and graph.task[a] != WAIT}
    depend: list[int] = []
    clause, ends = np.zeros(len(tasks), np.int64), np.full(len(tasks), -1, np.int64)
    for node, number in enumerate(graph.task):
        if number == WAIT:
            continue
        out, read = list[int](), list[int]()
        for mode, region in tasks[number][1].accesses:
            if region in program.constants:
                continue
            own = members.get(region, {})
            (read if mode in (Mode.READ, Mode.REDUCE) else out).append(address + 8 * (MARKERS + region))
            if mode is Mode.REDUCE:
                out.append(address + 8 * own[number])
            elif mode is Mode.READ:
                read += [address + 8 * marker for marker in own.values()]
        if node in losses:
            read.append(address + 8 * LOSS)
        if node in last:
            read.append(address + 8 * EVEN)
            ends[number] = len(depend) + HEAD + len(out) + len(read) - 1
        clause[number] = len(depend)
        depend += [len(out) + len(read), len(out), *out, *read]
    order = [number if number != WAIT else TASKWAIT for node, number in enumerate(graph.task) if node != graph.begin]
    if gated:
        order = [number for number in order if number != TASKWAIT]
    return Creation(
        np.array(order, np.int64),
        np.array(depend, np.int64),
        clause,
        ends,
        _priorities(graph, policy, cost_s),
        int(policy != "breadth-first"),
        int(gated),
        markers,
    )


def members_of(program: Program) -> dict[int, dict[int, int]]:
    """The cell of the marker of each member of a reduction, by region and task."""
    members: dict[int, dict[int, int]] = {}
    cell = MARKERS + len(program.regions)
    for number, (_, tile) in enumerate(program.tasks):
        for mode, region in tile.accesses:
            if mode is Mode.REDUCE:
                members.setdefault(region, {})[number] = cell
                cell += 1
    return members


def _priorities(graph: Graph, policy: str, cost_s: Sequence[float]) -> Ints:
    """Priority of each task: higher on a longer path to the end, or earlier in the program."""
    count = len(cost_s)
    if policy == "critical-path":
        cost = [0.0 if number == WAIT else cost_s[number] for number in graph.task]
        levels = bottom_levels(len(graph), graph.edges, cost)
        level = [levels[node] for node, number in enumerate(graph.task) if number != WAIT]
    else:
        level = [float(count - number) for number in range(count)]
    highest = max(level, default=0.0) or 1.0
    return np.array([round(MOST_PRIORITY * each / highest) for each in level], np.int64)
