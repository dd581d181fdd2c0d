"""A graph as the list of everything that one thread creates in each step: tasks, the addresses on which they depend,
and waits.

In depend clauses each region is represented by one address, its marker: `in` for reads, `inout` for writes and updates,
`mutexinoutset` for a reduction, whose members may run in any order. (`inoutset` would also let them run at the same
time, but LLVM's runtimes do not accept it through these entry points.) Regions that no task writes need no clause.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpt2core.step.graph import WAIT, Graph, bottom_levels
from gpt2core.step.ops import Mode, Program, merged

Ints = NDArray[np.int64]
MOST_PRIORITY = 1 << 20
HEAD = 5  # cells before the addresses: 0, their number, and the numbers of out, mutexinoutset and in, in their order
EVEN, ODD, LOSS, MARKERS = 0, 8, 16, 24  # cells of `markers`: of ends of even and odd steps, of losses, of regions
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
    """Plan the tasks and waits of a graph. policy: see replay.record; breadth-first leaves the order to the runtime."""
    markers = np.zeros(MARKERS + len(program.regions), np.int64)
    address = int(markers.ctypes.data)
    gated = list(graph.crossing) != [(graph.end, graph.begin)]
    last, losses = set[int](), set[int]()
    if gated:  # the waits of the graph as clauses of the tasks before them
        losses = {a for a, b in graph.edges if b == graph.gate and graph.task[a] != WAIT}
        last = losses | {a for a, b in graph.edges if b == graph.end and graph.task[a] != WAIT}
    tasks = program.tasks
    depend: list[int] = []
    clause, ends = np.zeros(len(tasks), np.int64), np.full(len(tasks), -1, np.int64)
    for node, number in enumerate(graph.task):
        if number == WAIT:
            continue
        out, mutex, read = list[int](), list[int](), list[int]()
        for access in merged(tasks[number][1].accesses):
            if access.region not in program.constants:
                kind = {Mode.READ: read, Mode.REDUCE: mutex}.get(access.mode, out)
                kind.append(address + 8 * (MARKERS + access.region))
        if node in losses:
            read.append(address + 8 * LOSS)
        if node in last:
            read.append(address + 8 * EVEN)
            ends[number] = len(depend) + HEAD + len(out) + len(mutex) + len(read) - 1
        clause[number] = len(depend)
        depend += [0, len(out) + len(mutex) + len(read), len(out), len(mutex), len(read), *out, *mutex, *read]
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
