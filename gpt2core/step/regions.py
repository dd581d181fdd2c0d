"""Regions: pieces of memory, each of which is accessed as a whole by every task of a program."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence

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
        of_span: dict[Span, range] = {}
        for arena, spans in by_arena.items():
            ends = sorted({end for span in spans for end in span[1:]})
            number = {end: len(pieces) + i for i, end in enumerate(ends)}
            pieces += [Span(arena, begin, end) for begin, end in itertools.pairwise(ends)]
            of_span.update((span, range(number[span.begin], number[span.end])) for span in spans)
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
