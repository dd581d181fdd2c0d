"""A graph as flat arrays that the task executor replays, iteration after iteration, without allocation or a map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpt2core.graph import WAIT, Graph, bottom_levels
from gpt2core.tracing import LINE

Ints = NDArray[np.int64]
BEGIN_NODE, END_NODE, INNER_WAIT = -1, -2, -3  # what a node without a task is


class Replay(NamedTuple):
    """Arrays of a graph of n nodes. Successors are in CSR form, by rising priority: the last is to run next.

    An iteration may begin before the one before it is complete, so a node counts the predecessors of two iterations
    apart, in the cell of the iteration's parity. No node is two iterations ahead of another: see graph.build, `gate`.
    """

    task: Ints  # (n,) task number, or one of the three kinds of wait
    first: Ints  # (n + 1,) where a node's successors begin
    successor: Ints  # (edges,) twice the node's number, plus one if the edge crosses to the next iteration
    predecessors: Ints  # (n,) of one iteration, crossing ones included
    pending: Ints  # (n, LINE) predecessors still to come, for even and odd iterations; a line each
    iteration: Ints  # (n,) which one the node runs next
    start: Ints  # nodes that are ready at first


def record(graph: Graph, cost: Sequence[float]) -> Replay:
    """Flatten a graph. `cost` is seconds for each node; priority is the cost of the longest path from it."""
    n = len(graph)
    level = bottom_levels(n, graph.edges, cost)
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
    pending[:, 0] = within  # what crosses into the first iteration is behind it already
    pending[:, 1] = all_of
    waits = {graph.begin: BEGIN_NODE, graph.end: END_NODE}
    task = [waits.get(node, INNER_WAIT) if number == WAIT else number for node, number in enumerate(graph.task)]
    return Replay(
        np.array(task, np.int64),
        first,
        np.array(flat, np.int64),
        np.array(all_of, np.int64),
        pending,
        np.zeros(n, np.int64),
        np.array([node for node in range(n) if within[node] == 0], np.int64),
    )
