"""The compiled loop of fork-join."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpt2core.compile.atomics import fetch_add, load_acquire, store_release
from gpt2core.compile.clock import ticks
from gpt2core.compile.jit import address_of, runtime
from gpt2core.compile.line import LINE
from gpt2core.measure.tracing import (
    APART,
    BARRIER,
    STARVATION,
    close_wait,
    enter,
    note_usage,
    open_wait,
)
from gpt2core.schedulers.dispatch import run_task
from gpt2core.schedulers.scheduler import Stage
from gpt2core.schedulers.team import OnTeam
from gpt2core.schedulers.waiting import BARRIER_CELLS, barrier, spin_ticks
from gpt2core.step import sections
from gpt2core.step.control import LAST, STEPS_DONE, STOP


class Shares(NamedTuple):
    """The distribution of each op's tiles to threads."""

    first: NDArray[np.int64]  # (ops + 1,) where each op's tasks begin
    threads: NDArray[np.int64]  # (ops,) how many threads share an op
    tickets: NDArray[np.int64]  # (ops, 2, LINE) tiles given out, in even and odd steps
    dynamic: int


def shares(op_first: NDArray[np.int64], threads: NDArray[np.int64], dynamic: bool) -> Shares:
    """Shares of ops whose tasks begin at op_first. static: contiguous, equal; dynamic: a free thread takes the next."""
    return Shares(op_first, threads, np.zeros((len(threads), 2, LINE), np.int64), int(dynamic))


@runtime
def forkjoin_loop(thread, tasks, context, record, control, steps, split, cells, threads, spin):
    """Run steps from control[STEPS_DONE] up to `steps`, or until control[STOP] is set.

    With static shares a thread takes the same contiguous part of each op's tiles, so that its caches still hold their
    slices.
    """
    stop, done, last = address_of(control, STOP), address_of(control, STEPS_DONE), address_of(control, LAST)
    barriers = address_of(cells, 0)
    ops, start = split.threads.shape[0], control[STEPS_DONE]
    enter(record, thread, start)
    barrier(barriers, threads, spin)
    if thread == 0:
        record.begin[0] = ticks()
    barrier(barriers, threads, spin)  # no thread works before the begin
    for step in range(start, steps):
        for op in range(ops):
            first, count, sharing = split.first[op], split.first[op + 1] - split.first[op], split.threads[op]
            idle = APART
            if thread < sharing:
                idle = STARVATION
                if split.dynamic:
                    tickets = address_of(split.tickets, (2 * op + (step & 1)) * split.tickets.shape[2])
                    tile = fetch_add(tickets, 1)
                    while tile < count:
                        run_task(tasks, context, record, thread, step, first + tile)
                        idle = BARRIER
                        tile = fetch_add(tickets, 1)
                else:
                    for tile in range(count * thread // sharing, count * (thread + 1) // sharing):
                        run_task(tasks, context, record, thread, step, first + tile)
                        idle = BARRIER
            close_wait(record, thread, 0)  # of a thread without a tile
            if thread == 0:
                split.tickets[op, (step + 1) & 1, 0] = 0  # of the next step: no thread uses them before the barrier
                if op == ops - 1 and load_acquire(stop):
                    store_release(last, step + 1)  # a number: a slow thread may read it one step late
            open_wait(record, thread, idle, barrier(barriers, threads, spin))
        if thread == 0:
            record.step_end[step] = ticks()
            store_release(done, step + 1)
        note_usage(record, thread, step + 1)
        if load_acquire(last) == step + 1:
            break
    barrier(barriers, threads, spin)  # thread 0 has recorded the end of the last step
    close_wait(record, thread, record.step_end[control[STEPS_DONE] - 1])


class ForkJoinRun(OnTeam):
    def loop(self, _: Stage) -> tuple[Callable[..., None], list[Any]]:
        job, threads = self.job, len(self.job.cores)
        sharing = np.array(sections.op_threads(job.program, job.options.get("op_threads"), threads), np.int64)
        split = shares(job.bound.op_first, sharing, job.options.get("assignment") == "dynamic")
        return forkjoin_loop, [split, np.zeros(BARRIER_CELLS, np.int64), threads, spin_ticks(job.cores)]
