"""From accesses to dependencies. Data only: no execution, no kernels, no threads.

A graph's nodes are the tasks in program order and the waits that `sync` puts between them: `begin`, through which an
iteration starts, `end`, through which it is complete, and for sync = phase one between the phases. Edges are of one
iteration, or cross to the next one (taskiter). Waits are nodes, so there is one executor for every sync.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpt2core.spec.errors import GraphError
from gpt2core.step.ops import Access, Mode, Program, Tile, merged

Edge = tuple[int, int]
WAIT = -1
MAX_REDUCED = 40_000  # nodes; above, transitive edges stay (their removal takes memory quadratic in the nodes)


@dataclass(frozen=True)
class Graph:
    """Nodes in a topological order; `task` is a node's task number or WAIT. Edges are sorted and without repeats.
    `filler`: nodes of fillers (see ops.Op).
    """

    task: tuple[int, ...]
    label: tuple[str, ...]
    phase: tuple[str, ...]
    edges: tuple[Edge, ...]
    crossing: tuple[Edge, ...]
    filler: tuple[bool, ...]
    begin: int
    end: int

    def __len__(self) -> int:
        return len(self.task)


class Region:
    """What the walk remembers of a region: the last writers, the readers since, and the open reduction."""

    __slots__ = ("base", "readers", "reducing", "writers")

    def __init__(self) -> None:
        self.writers: list[int] = []
        self.readers: list[int] = []
        self.reducing = False
        self.base: list[int] = []

    def touch(self, node: int, access: Access) -> list[int]:
        """The nodes that must come before this access; remembers it."""
        if access.mode is Mode.READ:
            before = self.writers
            self.readers = [*self.readers, node]
            self.reducing = False
            return before
        if access.mode is Mode.REDUCE and self.reducing:
            self.writers = [*self.writers, node]
            return self.base
        before = self.writers + self.readers
        self.reducing = access.mode is Mode.REDUCE
        self.base = before
        self.writers, self.readers = [node], []
        return before


def derive(accesses: Sequence[Sequence[Access]]) -> list[Edge]:
    """Dependencies of tasks given in program order, as OmpSs-2 derives them from discrete accesses.

    A read depends on the last write; a write on the last write and all reads since; members of one reduction group on
    what came before the group. Source: OmpSs-2 specification, "dependency model".
    """
    regions: dict[int, Region] = {}
    edges: set[Edge] = set()
    for node, touched in enumerate(accesses):
        for access in merged(touched):
            for before in regions.setdefault(access.region, Region()).touch(node, access):
                if before != node:
                    edges.add((before, node))
    return sorted(edges)


def reduce_edges(nodes: int, edges: Iterable[Edge]) -> list[Edge]:
    """Drop repeats and every edge that a longer path implies. Nodes must be in a topological order."""
    successors: list[set[int]] = [set() for _ in range(nodes)]
    for a, b in edges:
        if not 0 <= a < b < nodes:
            raise GraphError(f"edge {a} -> {b} does not go forward: the graph has a cycle or is not in order")
        successors[a].add(b)
    if nodes > MAX_REDUCED:
        return [(a, b) for a in range(nodes) for b in sorted(successors[a])]
    reach = [0] * nodes
    kept: list[Edge] = []
    for a in reversed(range(nodes)):
        covered = 0
        for b in sorted(successors[a]):
            if not covered >> b & 1:
                kept.append((a, b))
                covered |= reach[b] | 1 << b
        reach[a] = covered
    return sorted(kept)


def build(program: Program, sync: str) -> Graph:
    """The graph of a step program: `sync` = phase waits after every phase, step at the end of a step, none (taskiter)
    lets an iteration begin once the loss of the one before is known, and then as data allows.

    Raises GraphError if two tiles of one op conflict: fork-join could not run it.
    """
    tasks = program.tasks
    accesses = [tile.accesses for _, tile in tasks]
    check_ops(program)
    task, label, phase = [WAIT], ["begin"], [""]
    node_of: list[int] = []
    waits: list[int] = [0]
    for number, (op, tile) in enumerate(tasks):
        if sync == "phase" and phase[-1] not in ("", op.phase):
            waits.append(len(task))
            task.append(WAIT)
            label.append(f"after {phase[-1]}")
            phase.append("")
        node_of.append(len(task))
        task.append(number)
        label.append(" ".join(part for part in (op.label, tile.label) if part))
        phase.append(op.phase)
    for wait in ("gate", "end") if sync == "none" else ("end",):
        task.append(WAIT)
        label.append(wait)
        phase.append("")
    end = len(task) - 1
    waits.append(end)
    tasks_in, nodes = len(tasks), len(task)
    twice = derive([*accesses, *accesses])
    edges = [(node_of[a], node_of[b]) for a, b in twice if b < tasks_in]
    crossing = [(end, 0)]
    if sync == "none":
        # The next iteration begins at the gate: when the loss is known and the iteration before this one is complete,
        # so that no node is more than one iteration ahead of another.
        gate = end - 1
        edges += [(node, gate) for node in range(nodes) if phase[node] == "loss"] or [(0, gate)]
        crossing = [(node_of[a], node_of[b - tasks_in]) for a, b in twice if a < tasks_in <= b]
        crossing += [(end, gate), (gate, 0)]
    edges += around_waits(nodes, edges, waits)
    if sync == "none":
        crossing = cross_only(nodes, edges, crossing)
    filler = tuple(number != WAIT and tasks[number][0].filler for number in task)
    edges = reduce_edges(nodes, edges)
    return Graph(tuple(task), tuple(label), tuple(phase), tuple(edges), tuple(crossing), filler, begin=0, end=end)


def cross_only(nodes: int, edges: Iterable[Edge], crossing: Iterable[Edge]) -> list[Edge]:
    """The crossing edges that no longer path implies: two iterations, reduced as one graph."""
    edges = list(edges)
    unrolled = [*edges, *((a + nodes, b + nodes) for a, b in edges), *((a, b + nodes) for a, b in crossing)]
    return [(a, b - nodes) for a, b in reduce_edges(2 * nodes, unrolled) if a < nodes <= b]


def around_waits(nodes: int, edges: Sequence[Edge], waits: Sequence[int]) -> list[Edge]:
    """Edges that put each wait after all nodes before it and before all after it, as few as needed."""
    segment = [0] * nodes
    for wait in waits:
        segment[wait] = -1
    index = -1
    for node in range(nodes):
        if segment[node] == -1:
            index += 1
        else:
            segment[node] = index
    has_pred, has_succ = [False] * nodes, [False] * nodes
    for a, b in edges:
        if segment[a] == segment[b]:
            has_succ[a] = has_pred[b] = True
    out: list[Edge] = []
    for node in range(nodes):
        if segment[node] == -1:
            continue
        if not has_pred[node]:
            out.append((waits[segment[node]], node))
        if not has_succ[node]:
            out.append((node, waits[segment[node] + 1]))
    out.extend((a, b) for a, b in itertools.pairwise(waits) if b == a + 1)
    return out


def check_ops(program: Program) -> None:
    """Raise GraphError if two tiles of one op conflict, or if a region is read that no task ever writes."""
    read: dict[int, str] = {}
    written: set[int] = set()
    for op in program.ops:
        seen: dict[int, Access] = {}
        for tile in op.tiles:
            for access in merged(tile.accesses):
                other = seen.setdefault(access.region, access)
                if other is not access and not compatible(other, access):
                    raise GraphError(f"two tiles of {op.label} conflict on a region")
                if access.mode is Mode.READ:
                    read[access.region] = op.label
                else:
                    written.add(access.region)
    for region in read.keys() - written - program.constants:
        raise GraphError(f"{read[region]} reads {program.regions[region]}, which no task writes")
    for region in written & program.constants:
        raise GraphError(f"a task writes {program.regions[region]}, which is declared constant")


def compatible(a: Access, b: Access) -> bool:
    """Whether two tasks with these accesses to one region may run in any order."""
    return a.mode is b.mode and a.mode in (Mode.READ, Mode.REDUCE)


def reachability(nodes: int, edges: Iterable[Edge]) -> list[int]:
    """For each node the set, as bits, of the nodes that a path leads to. Nodes must be in a topological order."""
    successors: list[list[int]] = [[] for _ in range(nodes)]
    for a, b in edges:
        if not 0 <= a < b < nodes:
            raise GraphError(f"edge {a} -> {b} does not go forward: the graph has a cycle or is not in order")
        successors[a].append(b)
    reach = [0] * nodes
    for a in reversed(range(nodes)):
        for b in successors[a]:
            reach[a] |= reach[b] | 1 << b
    return reach


def validate(program: Program, graph: Graph) -> None:
    """Prove that every two tasks with conflicting accesses are ordered, within an iteration and from one to the next.

    This is the race detector. Raises GraphError that names two tasks and what they conflict on.
    """
    nodes = len(graph)
    unrolled = [
        *graph.edges,
        *((a, b + nodes) for a, b in graph.crossing),
        *((a + nodes, b + nodes) for a, b in graph.edges),
    ]
    reach = reachability(2 * nodes, unrolled)
    tasks = program.tasks
    by_region: dict[int, list[tuple[int, Access]]] = {}
    for node, number in enumerate(graph.task):
        if number != WAIT:
            for access in merged(tasks[number][1].accesses):
                by_region.setdefault(access.region, []).append((node, access))
    for region, touched in by_region.items():
        twice = [*touched, *((node + nodes, access) for node, access in touched)]
        everyone = 0
        alike: dict[Mode, int] = {}
        for node, access in twice:
            everyone |= 1 << node
            alike[access.mode] = alike.get(access.mode, 0) | 1 << node
        for node, access in twice:
            rivals = everyone & ~alike[access.mode] if compatible(access, access) else everyone
            missing = (rivals >> (node + 1) << (node + 1)) & ~reach[node]
            if missing:
                other = (missing & -missing).bit_length() - 1
                raise GraphError(
                    f"nothing orders {describe(graph, node)} before {describe(graph, other)}, "
                    f"and they conflict on {program.regions[region]}"
                )


def describe(graph: Graph, node: int) -> str:
    """A node of the graph unrolled twice, for people."""
    label = graph.label[node % len(graph)]
    return f"'{label}'" if node < len(graph) else f"'{label}' of the next iteration"


def bottom_levels(nodes: int, edges: Iterable[Edge], cost: Sequence[float]) -> list[float]:
    """For each node the cost of the costliest path from it to an end, itself included: its critical-path priority."""
    successors: list[list[int]] = [[] for _ in range(nodes)]
    for a, b in edges:
        successors[a].append(b)
    level = [0.0] * nodes
    for a in reversed(range(nodes)):
        level[a] = cost[a] + max((level[b] for b in successors[a]), default=0.0)
    return level


def dot(graph: Graph) -> str:
    """The graph in Graphviz's language: phases in colours, waits as bars, crossing edges dashed."""
    colours = {"data": "gray90", "forward": "lightskyblue", "loss": "gold", "backward": "lightsalmon",
               "update": "palegreen", "": "black"}  # fmt: skip
    lines = ["digraph step {", '  rankdir="TB"; node [shape=box, style="filled,rounded", fontname="sans-serif"];']
    for node, label in enumerate(graph.label):
        colour = colours[graph.phase[node]]
        shape = ", shape=box, height=0.1, fontcolor=white, style=filled" if graph.task[node] == WAIT else ""
        lines.append(f'  n{node} [label="{label}", fillcolor="{colour}"{shape}];')
    lines += [f"  n{a} -> n{b};" for a, b in graph.edges]
    lines += [f"  n{a} -> n{b} [style=dashed, constraint=false];" for a, b in graph.crossing]
    return "\n".join([*lines, "}", ""])


def cost_s(tile: Tile) -> float:
    """A first estimate of a task's time: by its work or by its traffic, on a core of 50 GFLOP/s and 10 GB/s."""
    return max(tile.flop / 50e9, tile.bytes / 10e9)
