"""A graph as flat arrays that the task scheduler replays, iteration after iteration, without allocation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpt2core.compile.line import LINE
from gpt2core.step.graph import WAIT, Graph, bottom_levels

Ints = NDArray[np.int64]
BEGIN_NODE, END_NODE, INNER_WAIT = -1, -2, -3  # kinds of nodes without a task
FIRST_LATER = -4  # that of the first node of Later; the next ones have lower numbers


class Replay(NamedTuple):
    """Arrays of a graph of n nodes. Successors are in CSR form, by rising priority: the last is to run next.

    An iteration may begin before the one before it is complete, so a node counts the predecessors of two iterations
    apart, in the cell of the iteration's parity. No node is two iterations ahead of another: see graph.build, `gate`.
    """

    task: Ints  # (n,) task number, or one of the three kinds of wait, or FIRST_LATER - its index in Later
    first: Ints  # (n + 1,) where a node's successors begin
    successor: Ints  # (edges,) twice the node's number, plus one if the edge crosses to the next iteration
    predecessors: Ints  # (n,) of one iteration, crossing ones included
    pending: Ints  # (n, LINE) predecessors still to come, for even and odd iterations; a line each
    iteration: Ints  # (n,) which one the node runs next
    start: Ints  # nodes that are ready at first
    filler: Ints  # (n,) 1 for a node that is to run only where no other is ready (policy breadth-first)
    barriers: int  # whether all tasks before a wait are complete when it is passed: iterations do not overlap
    breadth_first: int  # whether a thread takes the oldest of its ready nodes instead of the one just released


class Later(NamedTuple):
    """The nodes whose tasks are complete only after they ran. m of them, in program order."""

    node: Ints  # (m,)
    task: Ints  # (m,)
    open: Ints  # (m, LINE) 1 from when it ran until it is complete; a line each
    held: Ints  # (m, OPERAND_SIZE) their polls: see dispatch.Dispatch


def later(graph: Graph, tasks: Sequence[int], held: Ints) -> Later:
    """The nodes of these tasks."""
    node_of = {number: node for node, number in enumerate(graph.task) if number != WAIT}
    nodes = [node_of[number] for number in tasks]
    return Later(np.array(nodes, np.int64), np.array(tasks, np.int64), np.zeros((len(nodes), LINE), np.int64), held)


def flatten(
    graph: Graph, cost: Sequence[float], policy: str = "critical-path", iteration: int = 0, after: Sequence[int] = ()
) -> Replay:
    """Flatten a graph whose next iteration is `iteration`. `cost` is seconds for each node; `after` the tasks that are
    complete only after they ran.

    Priority is the cost of the longest path from a node (policy critical-path) or its place in the program
    (program-order); with breadth-first a thread takes its ready nodes in the order in which they became ready, so that
    an op's tiles run together while its weights are in the caches, and fillers only if nothing else is ready.
    """
    n = len(graph)
    level = bottom_levels(n, graph.edges, cost) if policy == "critical-path" else [-float(node) for node in range(n)]
    successors: list[list[tuple[int, bool]]] = [[] for _ in range(n)]
    within, all_of = [0] * n, [0] * n
    for a, b in graph.edges:
        successors[a].append((b, False))
        within[b] += 1
        all_of[b] += 1
    for a, b in graph.crossing:
        successors[a].append((b, True))
        all_of[b] += 1
    first = np.zeros(n + 1, np.int64)
    first[1:] = np.cumsum([len(s) for s in successors])
    flat = [
        2 * b + crosses for s in successors for b, crosses in sorted(s, key=lambda e: (not e[1], level[e[0]], -e[0]))
    ]
    pending = np.zeros((n, LINE), np.int64)
    pending[:, iteration & 1] = within  # edges into the first iteration are already satisfied
    pending[:, (iteration + 1) & 1] = all_of
    waits = {graph.begin: BEGIN_NODE, graph.end: END_NODE}
    kinds = {number: FIRST_LATER - index for index, number in enumerate(after)}
    task = [
        waits.get(node, INNER_WAIT) if number == WAIT else kinds.get(number, number)
        for node, number in enumerate(graph.task)
    ]
    return Replay(
        np.array(task, np.int64),
        first,
        np.array(flat, np.int64),
        np.array(all_of, np.int64),
        pending,
        np.full(n, iteration, np.int64),
        np.array([node for node in range(n) if within[node] == 0], np.int64),
        np.array(graph.filler, np.int64) if policy == "breadth-first" else np.zeros(n, np.int64),
        int(not graph.overlaps),
        int(policy == "breadth-first"),
    )


def copy(flat: Replay) -> Replay:
    """A copy of the arrays in their present state."""
    return Replay(*(part.copy() if isinstance(part, np.ndarray) else part for part in flat))  # type: ignore[arg-type]


def waiting(flat: Replay, graph: Graph) -> list[tuple[int, list[int]]]:
    """Nodes of the earliest unfinished iteration that wait, and the predecessors of that iteration not yet run."""
    iteration = int(flat.iteration.min())
    before: dict[int, list[int]] = {}
    for a, b in graph.edges:
        if flat.iteration[a] <= iteration and flat.iteration[b] <= iteration:
            before.setdefault(b, []).append(a)
    for a, b in graph.crossing:
        if flat.iteration[a] < iteration and flat.iteration[b] <= iteration:
            before.setdefault(b, []).append(a)
    return sorted(before.items())
