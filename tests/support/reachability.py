"""Reachable nodes of a graph, computed simply: the oracle for gpt2core.step.paths."""

from __future__ import annotations

from collections.abc import Iterable


def reachability(nodes: int, edges: Iterable[tuple[int, int]]) -> list[int]:
    """For each node the set of nodes that it reaches, as bits. Nodes must be in topological order."""
    reach = [0] * nodes
    for a, b in sorted(edges, reverse=True):
        reach[a] |= reach[b] | 1 << b
    return reach
