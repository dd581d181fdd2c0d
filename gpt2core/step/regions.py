"""Regions: the pieces of memory that a program's tasks tell apart."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence

from gpt2core.step.ops import Mode, Region, Span

Touch = tuple[Mode, Span]
CODE = {mode: code for code, mode in enumerate(Mode)}
CONSTANT, UNTOUCHED = 1, 0


class Regions:
    """Arenas cut where accesses end; pieces that the same tasks touch in the same way are one region."""

    def __init__(
        self, tasks: Sequence[Sequence[Touch]], constants: Iterable[Span], name: Callable[[Span], str]
    ) -> None:
        """`tasks` in program order; `name` of a piece, for people."""
        spans = list(dict.fromkeys(span for touches in tasks for _, span in touches))
        cuts: dict[str, set[int]] = {}
        for arena, begin, end in spans:
            cuts.setdefault(arena, set()).update((begin, end))
        pieces: list[Span] = []
        of_span: dict[Span, range] = {}
        for arena, ends in cuts.items():
            number = {end: len(pieces) + i for i, end in enumerate(sorted(ends))}
            pieces += [Span(arena, begin, end) for begin, end in itertools.pairwise(number)]
            of_span.update((span, range(number[span.begin], number[span.end])) for span in spans if span.arena == arena)
        # A piece's history stands for all that was done to it. Should two differ and hash alike, their pieces would
        # be one region: tasks would be ordered that need not be, never the other way round.
        history = [UNTOUCHED] * len(pieces)
        for span in constants:
            for piece in of_span[span]:
                history[piece] = CONSTANT
        for task, touches in enumerate(tasks):
            for mode, span in touches:
                code = CODE[mode]
                for piece in of_span[span]:
                    history[piece] = hash((history[piece], task, code))
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
