"""Dependencies of tasks without waits, and with the edges that others imply."""

from __future__ import annotations

from collections.abc import Iterable

from gpt2core.step.graph import Walk
from gpt2core.step.ops import Access, Program, merged
from gpt2core.step.paths import Edge


def derived(accesses: Iterable[Iterable[Access]]) -> list[Edge]:
    """Edges between tasks that are given by their accesses, in program order."""
    walk = Walk()
    before = [walk.before(node, merged(touched)) for node, touched in enumerate(accesses)]
    return sorted((a, b) for b, each in enumerate(before) for a in each)


def of_program(program: Program) -> list[Edge]:
    return derived(tile.accesses for _, tile in program.tasks)
