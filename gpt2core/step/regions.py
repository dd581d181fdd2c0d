"""Regions: pieces of memory, each of which is accessed as a whole by every task of a program."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

from gpt2core.step.grid import Range
from gpt2core.step.ops import Mode, Region, Span

Touch = tuple[Mode, Span]
CONSTANT, UNTOUCHED = 1, 0


class Regions:
    """Arenas cut where accesses end; pieces that the same tasks touch in the same way are one region."""

    def __init__(
        self, tasks: Sequence[Sequence[Touch]], constants: Iterable[Span], name: Callable[[Span], str]
    ) -> None:
        """`tasks` in program order; `name` of a piece, for people."""
        by_arena: dict[str, set[Span]] = {}
        for touches in tasks:
            for _, span in touches:
                by_arena.setdefault(span.arena, set()).add(span)
        pieces: list[Span] = []
        of_span: dict[Span, Sequence[int]] = {}
        for spans in by_arena.values():
            of_span.update(cut(spans, pieces))
        # A piece's history represents all accesses to it. If two different ones had the same hash, their pieces would
        # be one region: tasks would be ordered unnecessarily, never the other way round.
        history = [UNTOUCHED] * len(pieces)
        for span in constants:
            for piece in of_span[span]:
                history[piece] = CONSTANT
        for task, touches in enumerate(tasks):
            for mode, span in touches:
                for piece in of_span[span]:
                    history[piece] = hash((history[piece], task, mode))
        alike: dict[int, list[Span]] = {}
        for span, done in zip(pieces, history, strict=True):
            if done != UNTOUCHED:
                alike.setdefault(done, []).append(span)
        self.regions = tuple(Region(name(same[0]), tuple(same)) for same in alike.values())
        region = {done: number for number, done in enumerate(alike)}
        self._of = {
            span: tuple(dict.fromkeys(region[history[piece]] for piece in within)) for span, within in of_span.items()
        }

    def of(self, span: Span) -> tuple[int, ...]:
        """Numbers of the regions that a touched span consists of."""
        return self._of[span]


def cut(spans: Iterable[Span], pieces: list[Span]) -> dict[Span, Sequence[int]]:
    """Cut the memory of one arena's spans: first where any of them begins or ends, then each part where columns of
    its rows do. Append the pieces; return the numbers of those that each span consists of.
    """
    spans = list(spans)
    ends = sorted({end for span in spans for end in (span.begin, span.end)})
    part_at = {end: part for part, end in enumerate(ends)}
    of_columns: list[list[Span]] = [[] for _ in ends]
    for span in spans:
        if span.columns:
            for part in range(part_at[span.begin], part_at[span.end]):
                of_columns[part].append(span)
    first: list[int] = []
    found: dict[Span, Sequence[int]] = {}
    within: dict[Span, list[int]] = {}
    for (begin, end), columns in zip(itertools.pairwise(ends), of_columns, strict=False):
        first.append(len(pieces))
        if columns:
            for piece, owners in cells(begin, end, columns):
                for span in owners:
                    within.setdefault(span, []).append(len(pieces))
                pieces.append(piece)
        else:
            pieces.append(Span(spans[0].arena, begin, end))
    first.append(len(pieces))
    for span in spans:
        numbers = range(first[part_at[span.begin]], first[part_at[span.end]])
        found[span] = within[span] if span.columns else numbers
    return found


def cells(begin: int, end: int, spans: Sequence[Span]) -> Iterator[tuple[Span, Sequence[Span]]]:
    """The pieces of a part of an arena in which these spans of columns lie, each with those in which it lies.

    Columns of a row that lie in the same spans are one piece. Rows of different lengths, and parts of rows, are cut row
    by row.
    """
    arena, stride = spans[0].arena, spans[0].stride
    if all(each.stride == stride and (begin - each.begin) % stride == 0 == (end - begin) % stride for each in spans):
        alike: dict[tuple[int, ...], list[Range]] = {}
        for low, high, inside in _cut_row(stride, [each.columns for each in spans]):
            alike.setdefault(inside, []).append((low, high))
        for inside, columns in alike.items():
            yield Span(arena, begin, end, stride, tuple(columns)), [spans[i] for i in inside]
    else:
        rows = [
            [(at + low - begin, at + high - begin) for at in range(each.begin, each.end, each.stride)
             for low, high in each.columns]
            for each in spans
        ]  # fmt: skip
        for low, high, inside in _cut_row(end - begin, rows):
            yield Span(arena, begin + low, begin + high), [spans[i] for i in inside]


def _cut_row(length: int, sets: Sequence[Sequence[Range]]) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Cut [0, length) where ranges begin or end; each part with the numbers of the sets in which it lies."""
    changes: dict[int, list[tuple[int, int]]] = {0: [], length: []}
    for number, ranges in enumerate(sets):
        for low, high in ranges:
            low, high = max(low, 0), min(high, length)
            if low < high:
                changes.setdefault(low, []).append((number, 1))
                changes.setdefault(high, []).append((number, -1))
    depth: dict[int, int] = {}
    for low, high in itertools.pairwise(sorted(changes)):
        for number, change in changes[low]:
            depth[number] = depth.get(number, 0) + change
        yield low, high, tuple(sorted(number for number, count in depth.items() if count))
