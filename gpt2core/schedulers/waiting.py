"""How a thread waits: it spins for some tens of microseconds, then yields its core to other threads, then parks in
Linux until it is woken. Times are measured with the clock, since a pause takes 40 cycles on one processor and 140 on
another.

A parked thread was back 42 to 66 us after it was woken, and waking it took 14 to 24 us (medians, two virtual cores,
waits of 0.2 and 1 ms). A yielding thread was back in less than 1 us, so a thread parks only when a wait is long.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence

from gpt2core.compile import clock
from gpt2core.compile.atomics import (
    fence,
    fetch_add,
    load_acquire,
    load_relaxed,
    pause,
    store_relaxed,
    store_release,
    yield_core,
)
from gpt2core.compile.clock import ticks
from gpt2core.compile.jit import runtime
from gpt2core.compile.parking import EVERYONE, park, wake

SPIN_S = 50e-6
SPIN_OVERSUBSCRIBED_S = 1e-6  # another thread of the team wants the core
PATIENCE = 20  # a thread parks after this multiple of its spinning time
LOOKS = 16  # checks of the cell between two readings of the clock, since a reading takes at least as long as a pause
ARRIVED, GENERATION, PARKED = 0, 64, 128  # bytes of a barrier's cells, a cache line each
BARRIER_CELLS = 32  # int64
CALIBRATION_S = 0.002


def spin_ticks(cores: Sequence[int]) -> int:
    """The time that a thread of a team on these cores spins before it yields."""
    return round((SPIN_S if len(set(cores)) == len(cores) else SPIN_OVERSUBSCRIBED_S) * ticks_per_s())


@functools.cache
def ticks_per_s() -> float:
    """The clock's rate, accurate to a thousandth: enough for waiting, not for results."""
    first = clock.pair()
    time.sleep(CALIBRATION_S)
    return 1 / clock.Calibration.between(first, clock.pair()).seconds_per_tick


@runtime
def wait_while(address, value, parked, spin):
    """Wait while the cell at an address holds value; return when the wait began, in ticks. `spin`: see spin_ticks.

    parked: address of the count of parked threads, which the thread that changes the cell wakes.
    """
    since, waited, looks = ticks(), 0, 0
    while load_acquire(address) == value:
        looks += 1
        if looks % LOOKS == 0:
            waited = ticks() - since
        if waited < spin:
            pause()
        elif waited < PATIENCE * spin:
            yield_core()
        else:
            fetch_add(parked, 1)
            while load_acquire(address) == value:
                park(address, value)
            fetch_add(parked, -1)
    return since


@runtime
def barrier(cells, threads, spin):
    """Wait for all threads of the team; return when the wait began, in ticks, or 0 for the last thread.

    cells: address of BARRIER_CELLS. The last thread to arrive reads no clock, and no thread does on leaving: the others
    and the next op would wait for it.
    """
    if threads == 1:
        return 0
    generation = load_acquire(cells + GENERATION)
    if fetch_add(cells + ARRIVED, 1) == threads - 1:
        store_relaxed(cells + ARRIVED, 0)
        store_release(cells + GENERATION, generation + 1)
        fence()  # the new generation is seen before the parked are counted
        if load_relaxed(cells + PARKED) != 0:
            wake(cells + GENERATION, EVERYONE)
        return 0
    return wait_while(cells + GENERATION, generation, cells + PARKED, spin)
