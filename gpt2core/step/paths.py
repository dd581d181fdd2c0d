"""Paths in a directed acyclic graph whose nodes are in a topological order, in bounded memory.

A graph is given by its predecessors: for each node a rising list of the nodes that an edge leads from. A set of nodes
is the bits of an integer. The ancestors of all nodes would take memory quadratic in the nodes: `windows` cuts them.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from gpt2core.spec.errors import GraphError

Edge = tuple[int, int]
Predecessors = Sequence[Sequence[int]]
WINDOW_BYTES = 64 << 20  # memory for the ancestors that exist at a time


class Edges(Sequence[Edge]):
    """Edges in eight bytes each; a tuple of pairs takes 64."""

    def __init__(self, edges: Iterable[Edge]) -> None:
        self._ends = array("i", itertools.chain.from_iterable(edges))

    @classmethod
    def of_ends(cls, content: bytes) -> Edges:
        """Edges from the bytes that `ends` returned."""
        found = cls(())
        found._ends.frombytes(content)
        return found

    def ends(self) -> bytes:
        """Both ends of each edge, as this machine stores integers."""
        return self._ends.tobytes()

    def __len__(self) -> int:
        return len(self._ends) // 2

    def __iter__(self) -> Iterator[Edge]:
        ends = iter(self._ends)
        return zip(ends, ends, strict=True)

    @overload
    def __getitem__(self, at: int) -> Edge: ...

    @overload
    def __getitem__(self, at: slice) -> list[Edge]: ...

    def __getitem__(self, at: int | slice) -> Edge | list[Edge]:
        if isinstance(at, slice):
            return list(self)[at]
        at = range(len(self))[at]
        return self._ends[2 * at], self._ends[2 * at + 1]


def predecessors(nodes: int, edges: Iterable[Edge]) -> list[list[int]]:
    """The graph of some edges, without repeats. Raises GraphError for an edge that does not go forward."""
    before: list[list[int]] = [[] for _ in range(nodes)]
    number = list(range(nodes))  # one object for each node, however many edges it has
    for a, b in edges:
        if not 0 <= a < b < nodes:
            raise GraphError(f"edge {a} -> {b} does not go forward: the graph has a cycle or is not in order")
        before[b].append(number[a])
    return [sorted(set(each)) for each in before]


def edges_of(before: Predecessors) -> Iterator[Edge]:
    """The edges of a graph, sorted."""
    after: list[list[int]] = [[] for _ in before]
    for b, each in enumerate(before):
        for a in each:
            after[a].append(b)
    return ((a, b) for a, each in enumerate(after) for b in each)


def windows(nodes: int, sources: int) -> Iterator[tuple[int, int]]:
    """Ranges of the first `sources` of the nodes, each as long as WINDOW_BYTES allow."""
    length = max(64, 8 * WINDOW_BYTES // nodes)
    return ((first, min(first + length, sources)) for first in range(0, sources, length))


def ancestors(before: Predecessors, first: int, last: int) -> list[int]:
    """For each node those of the nodes [first, last) from which a path leads to it; bit 0 stands for `first`."""
    everyone = (1 << (last - first)) - 1
    found = [0] * len(before)
    for b in range(first + 1, len(before)):
        reached = 0
        for a in reversed(before[b]):  # the latest ones first: they have the most ancestors
            if a < first:
                break
            reached |= found[a]
            if a < last:
                reached |= 1 << (a - first)
            elif reached == everyone:
                reached = everyone  # one object for all such nodes
                break
        found[b] = reached
    return found


def without_implied(before: Predecessors, sources: int | None = None) -> list[list[int]]:
    """The graph without the edges that a longer path implies, and without those from other than the first `sources`."""
    kept: list[list[int]] = [[] for _ in before]
    for first, last in windows(len(before), len(before) if sources is None else sources):
        found = ancestors(before, first, last)
        for b in range(first + 1, len(before)):
            reached, fresh = 0, []
            for a in reversed(before[b]):
                if a < first:
                    break
                if a < last and not reached >> (a - first) & 1:
                    fresh.append(a)
                    reached |= 1 << (a - first)
                reached |= found[a]
            kept[b] += reversed(fresh)
    return kept


def unrolled(before: Predecessors, crossing: Iterable[Edge]) -> list[Sequence[int]]:
    """Two iterations as one graph; edges in `crossing` lead from the first to the second."""
    number = list(range(2 * len(before)))  # one object for each node, however many edges it has
    second: list[list[int]] = [[] for _ in before]
    for a, b in crossing:
        second[b].append(number[a])
    for each, inside in zip(second, before, strict=True):
        each.sort()
        each += [number[len(before) + a] for a in inside]
    return [*before, *second]
