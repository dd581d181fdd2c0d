"""Owners of memory: the thread that touches it first, so that it is placed near that thread's core."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from gpt2core.step.ops import Mode, Own, Program, Span
from gpt2core.step.tensors import SCRATCH, ArenaPlan


def owners(program: Program, plans: Mapping[str, ArenaPlan], threads: int) -> list[list[Span]]:
    """Spans of the arenas by thread; together they are every byte, once.

    A thread owns its row of tensors with a row for each thread, and the regions that it writes first if the tiles of
    each loop are distributed in equal, contiguous parts. All other memory is distributed by bytes: what no task writes,
    and rows of which several tasks write some columns each.
    """
    found: dict[str, list[tuple[int, int, int]]] = {arena: [] for arena in plans}  # begin, end, thread
    for arena, begin, end, thread in itertools.chain(_rows(program, plans, threads), _written(program, threads)):
        found[arena].append((begin, end, thread))
    by_thread: list[list[Span]] = [[] for _ in range(threads)]
    for arena, pieces in found.items():
        for begin, end, thread in _whole(sorted(pieces), plans[arena].bytes, threads):
            mine = by_thread[thread]
            if mine and mine[-1].arena == arena and mine[-1].end == begin:
                mine[-1] = Span(arena, mine[-1].begin, end)
            elif begin < end:
                mine.append(Span(arena, begin, end))
    return by_thread


def _rows(program: Program, plans: Mapping[str, ArenaPlan], threads: int) -> Iterator[tuple[str, int, int, int]]:
    """The rows of tensors of which each thread has one."""
    operands = (operand for op in program.ops for call in op.calls for operand in call.operands)
    own = {SCRATCH, *(operand.name for operand in operands if isinstance(operand, Own))}
    for arena, plan in plans.items():
        for spec, offset in zip(plan.specs, plan.offsets, strict=True):
            if spec.name in own:
                row = spec.bytes // threads
                for thread in range(threads):
                    yield arena, offset + thread * row, offset + (thread + 1) * row, thread


def _written(program: Program, threads: int) -> Iterator[tuple[str, int, int, int]]:
    """The regions that tasks write, with the thread of the first that does."""
    seen: set[int] = set()
    for loop in program.loops:
        tiles = [tile for op in loop for tile in op.tiles]
        count = len(tiles)
        for thread in range(threads):
            for tile in tiles[count * thread // threads : count * (thread + 1) // threads]:
                for access in tile.accesses:
                    if access.mode is not Mode.READ and access.region not in seen:
                        seen.add(access.region)
                        for span in program.regions[access.region].spans:
                            if not span.columns:
                                yield span.arena, span.begin, span.end, thread


def _whole(pieces: list[tuple[int, int, int]], size: int, threads: int) -> Iterator[tuple[int, int, int]]:
    """The pieces, and the gaps between them, divided among the threads."""
    at = 0
    for begin, end, thread in [*pieces, (size, size, 0)]:
        gap = max(0, begin - at)
        for other in range(threads):
            yield at + gap * other // threads, at + gap * (other + 1) // threads, other
        yield max(begin, at), max(end, at), thread
        at = max(at, end)
