"""Derives dependencies from accesses. Data only: no execution, no kernels, no threads.

A graph's nodes are the tasks in program order and the waits that `sync` inserts: `begin` at the start of an iteration,
`end` at its end, and for sync = phase one between the phases. Edges are within an iteration, or cross to the next one
(taskiter). Waits are nodes, so there is one executor for every sync.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpt2core.spec.errors import GraphError
from gpt2core.spec.phases import PHASES
from gpt2core.step import paths
from gpt2core.step.ops import Access, Mode, Program, Tile
from gpt2core.step.paths import Edge, Edges

WAIT = -1
TASK_BYTES, ACCESS_BYTES = 500, 16  # of a graph and its proof, with every sync (tests/integration/test_large_plans.py)
MAX_REDUCED = 40_000  # nodes; above, implied edges stay: their removal takes time quadratic in the nodes


@dataclass(frozen=True)
class Graph:
    """Nodes in a topological order; `task` is a node's task number or WAIT. Edges are sorted and without repeats.
    `filler`: nodes of fillers (see ops.Op). `begin`, `gate` and `end`: waits; only sync = none has a gate.
    """

    task: tuple[int, ...]
    label: tuple[str, ...]
    phase: tuple[str, ...]
    edges: Sequence[Edge]
    crossing: Sequence[Edge]
    filler: tuple[bool, ...]
    begin: int
    end: int
    gate: int | None = None

    @property
    def overlaps(self) -> bool:
        """Whether an iteration may begin before the one before it is complete."""
        return self.gate is not None

    def __len__(self) -> int:
        return len(self.task)


class Region:
    """State of a region in the walk: the last writers, the readers since, and the open reduction."""

    __slots__ = ("base", "readers", "reducing", "writers")

    def __init__(self) -> None:
        self.writers: list[int] = []
        self.readers: list[int] = []
        self.reducing = False
        self.base: list[int] = []

    def touch(self, node: int, access: Access) -> list[int]:
        """Record an access; return the nodes that must precede it, as a list that later calls may change."""
        if access.mode is Mode.READ:
            self.readers.append(node)
            self.reducing = False
            return self.writers
        if access.mode is Mode.REDUCE and self.reducing:
            self.writers.append(node)
            return self.base
        before = self.writers + self.readers
        self.reducing = access.mode is Mode.REDUCE
        self.base = before
        self.writers, self.readers = [node], []
        return before


class Walk:
    """Derives the dependencies of tasks from their accesses, in program order, over several iterations.

    A read depends on the last write; a write on the last write and all reads since; members of one reduction on
    everything before it. Source: OmpSs-2 specification, "dependency model" of discrete accesses.
    """

    def __init__(self) -> None:
        self.regions: dict[int, Region] = {}

    def before(self, node: int, accesses: Iterable[Access]) -> list[int]:
        """The nodes that the next one depends on, in order."""
        found: set[int] = set()
        for access in accesses:
            region = self.regions.get(access.region)
            if region is None:
                region = self.regions[access.region] = Region()
            found.update(region.touch(node, access))
        return sorted(found)


def build(program: Program, sync: str) -> Graph:
    """The graph of a step program: `sync` = phase waits after every phase, step at the end of a step, none (taskiter)
    lets an iteration begin once the loss of the previous one is known, and then as data allow.

    Raises GraphError if two tiles of one op conflict: fork-join could not run it.
    """
    tasks = program.tasks
    check_ops(program)
    task, label, phase = [WAIT], ["begin"], [""]
    before: list[list[int]] = [[]]
    node_of: list[int] = []
    waits: list[int] = [0]
    walk = Walk()

    def wait(name: str, after: list[int]) -> int:
        task.append(WAIT)
        label.append(name)
        phase.append("")
        before.append(after)
        return len(task) - 1

    for number, (op, tile) in enumerate(tasks):
        if sync == "phase" and phase[-1] not in ("", op.phase):
            waits.append(wait(f"after {phase[-1]}", []))
        node_of.append(len(task))
        task.append(number)
        label.append(" ".join(part for part in (op.label, tile.label) if part))
        phase.append(op.phase)
        before.append([node_of[a] for a in walk.before(number, tile.accesses)])
    gate = None
    if sync == "none":
        # The next iteration begins at the gate: when the loss is known and the iteration before this one is complete,
        # so that no node is more than one iteration ahead of another.
        gate = wait("gate", [node for node, name in enumerate(phase) if name == "loss"] or [0])
    end = wait("end", [])
    add_waits(before, [*waits, end])
    crossing = Edges([(end, 0)])
    if gate is not None:
        from_before = (
            (node_of[a], node_of[number])
            for number, (_, tile) in enumerate(tasks)
            for a in walk.before(len(tasks) + number, tile.accesses)
            if a < len(tasks)
        )
        crossing = cross_only(before, itertools.chain(from_before, [(end, gate), (gate, 0)]))
    if len(task) <= MAX_REDUCED:
        before = paths.without_implied(before)
    filler = tuple(number != WAIT and tasks[number][0].filler for number in task)
    edges = Edges(paths.edges_of(before))
    return Graph(tuple(task), tuple(label), tuple(phase), edges, crossing, filler, begin=0, end=end, gate=gate)


def planning_bytes(program: Program) -> int:
    """Upper bound of the bytes that `build` and `validate` need, beside the program."""
    accesses = sum(len(tile.accesses) for _, tile in program.tasks)
    return paths.WINDOW_BYTES + TASK_BYTES * len(program.tasks) + ACCESS_BYTES * accesses


def cross_only(before: paths.Predecessors, crossing: Iterable[Edge]) -> Edges:
    """The crossing edges that no longer path implies, in two iterations taken as one graph."""
    twice: paths.Predecessors = paths.unrolled(before, crossing)
    if len(twice) <= MAX_REDUCED:
        twice = paths.without_implied(twice, len(before))
    nodes = len(before)
    return Edges(paths.edges_of([[a for a in each if a < nodes] for each in twice[nodes:]]))


def add_waits(before: list[list[int]], waits: Sequence[int]) -> None:
    """Put each wait after all nodes before it and before all after it, with as few edges as needed."""
    for first, last in itertools.pairwise(waits):
        has_successor: set[int] = set()
        for node in range(first + 1, last):
            inside = [a for a in before[node] if a > first]
            has_successor.update(inside)
            if not inside:
                before[node].append(first)
        before[last] += [node for node in range(first + 1, last) if node not in has_successor] or [first]


def check_ops(program: Program) -> None:
    """Raise GraphError if two tiles of one op conflict, or if a region is read that no task ever writes."""
    read: dict[int, str] = {}
    written: set[int] = set()
    for loop in program.loops:
        seen: dict[int, Access] = {}
        for op, tile in [(each, tile) for each in loop for tile in each.tiles]:
            for access in tile.accesses:
                other = seen.setdefault(access.region, access)
                if other is not access and not compatible(other, access):
                    beside = f" or of the ops beside it, from {loop[0].label} on," if len(loop) > 1 else ""
                    raise GraphError(f"two tiles of {op.label}{beside} conflict on a region")
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


def validate(program: Program, graph: Graph) -> None:
    """Prove that every two tasks with conflicting accesses are ordered, within an iteration and from one to the next.

    This is the race detector. Raises GraphError that names two tasks and the conflicting memory.

    In program order, the accesses to a region form runs whose members do not conflict: only reads, or only reductions.
    Conflicting accesses are in different runs. So it is enough to prove that each run comes before the next one.
    """
    nodes, regions = len(graph), runs_of(program, graph)
    before = paths.unrolled(paths.predecessors(nodes, graph.edges), graph.crossing)
    for first, last in paths.windows(len(before), nodes):
        found = paths.ancestors(before, first, last)
        for region, runs in regions.items():
            for run, following in itertools.pairwise(runs):
                if run[0] >= last or run[-1] < first:
                    continue
                needed = 0
                for a in run:
                    if first <= a < last:
                        needed |= 1 << (a - first)
                for b in following:
                    missing = needed & ~found[b]
                    if missing:
                        a = first + (missing & -missing).bit_length() - 1
                        raise GraphError(
                            f"no path orders {describe(graph, a)} before {describe(graph, b)}, "
                            f"but they conflict on {program.regions[region]}"
                        )


def runs_of(program: Program, graph: Graph) -> dict[int, list[list[int]]]:
    """For each region the nodes that access it, in runs without conflicts, up to the first run of the next
    iteration."""
    tasks = program.tasks
    runs: dict[int, list[list[int]]] = {}
    latest: dict[int, Access] = {}
    closed: set[int] = set()
    for shift in (0, len(graph)):
        for node, number in enumerate(graph.task, start=shift):
            if number == WAIT:
                continue
            for access in tasks[number][1].accesses:
                region = access.region
                if region in closed:
                    continue
                if region in latest and compatible(latest[region], access):
                    runs[region][-1].append(node)
                elif shift and runs[region][-1][0] >= shift:
                    closed.add(region)  # later runs repeat those of the first iteration
                else:
                    runs.setdefault(region, []).append([node])
                latest[region] = access
    return runs


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


FILLS = ("gray90", "lightskyblue", "gold", "lightsalmon", "palegreen", "plum", "wheat")  # of phases, in their order


def dot(graph: Graph) -> str:
    """The graph in Graphviz's language: phases in colours, waits as bars, crossing edges dashed."""
    colours = dict(zip(PHASES, FILLS, strict=False))
    lines = ["digraph step {", '  rankdir="TB"; node [shape=box, style="filled,rounded", fontname="sans-serif"];']
    for node, label in enumerate(graph.label):
        colour = "black" if graph.task[node] == WAIT else colours.get(graph.phase[node], "white")
        shape = ", shape=box, height=0.1, fontcolor=white, style=filled" if graph.task[node] == WAIT else ""
        lines.append(f'  n{node} [label="{label}", fillcolor="{colour}"{shape}];')
    lines += [f"  n{a} -> n{b};" for a, b in graph.edges]
    lines += [f"  n{a} -> n{b} [style=dashed, constraint=false];" for a, b in graph.crossing]
    return "\n".join([*lines, "}", ""])


def cost_s(tile: Tile) -> float:
    """A first estimate of a task's time: by its work or by its traffic, on a core of 50 GFLOP/s and 10 GB/s."""
    return max(tile.flop / 50e9, tile.bytes / 10e9)
