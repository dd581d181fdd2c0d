"""Times of repeated work that all threads of a team begin together: of the canary and of the peaks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpt2core.compile import clock
from gpt2core.compile.line import LINE
from gpt2core.schedulers.team import Team
from gpt2core.schedulers.waiting import BARRIER_CELLS, spin_ticks

BEGIN, END = 0, 1  # of a thread's row for a repetition, in ticks


def times_s(
    cores: Sequence[int], loop: Callable[..., None], arguments: Sequence[Any], repetitions: int = 1
) -> list[float]:
    """Seconds of each repetition, from the first thread's begin to the last one's end.

    loop(thread, *arguments, times, cells, threads, spin): times (P, repetitions, LINE) for BEGIN and END; cells,
    threads and spin are those of a barrier.
    """
    times, cells = np.zeros((len(cores), repetitions, LINE), np.int64), np.zeros(BARRIER_CELLS, np.int64)
    first = clock.pair()
    Team(cores).run(loop, [*arguments, times, cells, len(cores), spin_ticks(cores)])
    scale = clock.Calibration.between(first, clock.pair()).seconds_per_tick
    elapsed = times[:, :, END].max(axis=0) - times[:, :, BEGIN].min(axis=0)
    return [float(each) for each in elapsed * scale]
