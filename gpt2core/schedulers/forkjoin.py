"""Fork-join: each op's tiles are shared out to the team, and a barrier follows. Every op is parallel."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpt2core.machine.atomics import fetch_add, load_acquire, store_release
from gpt2core.machine.clock import ticks
from gpt2core.machine.jit import address_of, bare, runtime
from gpt2core.schedulers.dispatch import run_task
from gpt2core.schedulers.serial import STEPS_DONE, STOP
from gpt2core.schedulers.team import barrier
from gpt2core.tracing import APART, BARRIER, ENTERED, LINE, STARVATION, bare_record

AGREED = 2  # cell of `control`: what thread 0 decided at the step's end


class Shares(NamedTuple):
    """Who takes which tiles of each op."""

    first: NDArray[np.int64]  # (ops + 1,) where each op's tasks begin
    threads: NDArray[np.int64]  # (ops,) how many threads share an op
    tickets: NDArray[np.int64]  # (ops, 2, LINE) tiles given out, in even and odd steps
    dynamic: int


def shares(op_first: NDArray[np.int64], threads: NDArray[np.int64], dynamic: bool) -> Shares:
    """Shares of ops whose tasks begin at op_first. static: contiguous, equal; dynamic: whoever comes gets the next."""
    return Shares(op_first, threads, np.zeros((len(threads), 2, LINE), np.int64), int(dynamic))


@runtime
def forkjoin_loop(thread, tasks, context, record, control, steps, split, cells, threads, spin_limit):
    """Run steps from control[STEPS_DONE] up to `steps`, or until control[STOP] is set.

    With static shares a thread takes the same contiguous part of each op's tiles, so that it meets the slices that are
    in its caches again.
    """
    tasks, context, control, record = bare(tasks), bare(context), bare(control), bare_record(record)
    split = Shares(bare(split.first), bare(split.threads), bare(split.tickets), split.dynamic)
    stop, done, agreed = address_of(control, STOP), address_of(control, STEPS_DONE), address_of(control, AGREED)
    barriers = address_of(cells, 0)
    ops, start = split.threads.shape[0], control[STEPS_DONE]
    record.waited[thread, ENTERED] = ticks()
    barrier(barriers, threads, spin_limit)
    if thread == 0:
        record.begin[0] = ticks()
    barrier(barriers, threads, spin_limit)  # nobody works before the begin
    for step in range(start, steps):
        for op in range(ops):
            first, count, sharing = split.first[op], split.first[op + 1] - split.first[op], split.threads[op]
            cause = APART
            if thread < sharing:
                cause = STARVATION
                if split.dynamic:
                    tickets = address_of(split.tickets, (2 * op + (step & 1)) * split.tickets.shape[2])
                    tile = fetch_add(tickets, 1)
                    while tile < count:
                        run_task(tasks, context, record, thread, step, first + tile)
                        cause = BARRIER
                        tile = fetch_add(tickets, 1)
                else:
                    for tile in range(count * thread // sharing, count * (thread + 1) // sharing):
                        run_task(tasks, context, record, thread, step, first + tile)
                        cause = BARRIER
            if thread == 0:
                split.tickets[op, (step + 1) & 1, 0] = 0  # of the next step: nobody uses them before the barrier
                if op == ops - 1:
                    store_release(agreed, load_acquire(stop))
            record.waited[thread, cause] += barrier(barriers, threads, spin_limit)
        if thread == 0:
            record.step_end[step] = ticks()
            store_release(done, step + 1)
        if load_acquire(agreed):
            break
