"""Automatic slices of an LSTM: its layers and chunks of time form a wavefront (docs/decisions/0030).

No Numba and no NumPy: a server sizes runs with them.
"""

from __future__ import annotations

import functools

PARTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64)  # candidate numbers of groups and of chunks
MOST_SLICES = 512
READ_ROWS = 5  # rows whose product takes as long as it takes to read the recurrent weights at one time
TASK_ROWS = 32  # rows whose product takes as long as what a chunk takes beside its rows


@functools.lru_cache(maxsize=256)
def best(layers: int, batch: int, seq: int, threads: int, given: tuple[int | None, int | None]) -> tuple[int, int]:
    """Sizes (samples, times) of the slices with the least estimated time of a step; `given` ones are kept."""
    samples = [given[0]] if given[0] else sorted({-(-batch // parts) for parts in PARTS if parts <= batch})
    times = [given[1]] if given[1] else sorted({-(-seq // parts) for parts in PARTS if parts <= seq})
    found = [(n, t) for n in samples for t in times]
    few = [each for each in found if -(-batch // each[0]) * -(-seq // each[1]) <= MOST_SLICES]
    return min(few or found, key=lambda each: estimate(layers, batch, seq, threads, *each))


def estimate(layers: int, batch: int, seq: int, threads: int, samples: int, times: int) -> float:
    """Time of the forward and of the reverse recurrence, in products of a row with a layer's recurrent weights.

    Forward, nothing else is to be done, so Graham's bound holds: work / threads, and the critical path for the other
    threads. In the reverse pass the gradients of the weights fill every gap, so it takes the longer of both.
    """
    groups, chunks = -(-batch // samples), -(-seq // times)
    chunk = times * (samples + READ_ROWS) + times * samples + TASK_ROWS
    work, path, fillers = groups * chunks * layers * chunk, (chunks + layers - 1) * chunk, 2 * layers * batch * seq
    return work / threads + path * (1 - 1 / threads) + max((work + fillers) / threads, path)
