"""The compiled loop of omp-for: the calls that a compiler generates for `omp for` in a parallel region."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpt2core.compile.atomics import load_acquire, store_release
from gpt2core.compile.clock import ticks
from gpt2core.compile.foreign import call_c
from gpt2core.compile.jit import address_of, runtime
from gpt2core.measure.tracing import (
    APART,
    BARRIER,
    STARVATION,
    close_wait,
    enter,
    note_usage,
    open_wait,
)
from gpt2core.node.openmp import ENTRY_POINTS
from gpt2core.schedulers.dispatch import run_task
from gpt2core.schedulers.openmp.team import OnOpenMP
from gpt2core.schedulers.scheduler import Stage
from gpt2core.step import sections
from gpt2core.step.control import LAST, STEPS_DONE, STOP

GOMP_BARRIER = ENTRY_POINTS.index("GOMP_barrier")
LOOP_START = ENTRY_POINTS.index("GOMP_loop_nonmonotonic_dynamic_start")
LOOP_NEXT = ENTRY_POINTS.index("GOMP_loop_nonmonotonic_dynamic_next")
LOOP_END = ENTRY_POINTS.index("GOMP_loop_end_nowait")
LOW_BYTE = 0xFF  # of a result that is a bool


@runtime
def omp_for_loop(thread, tasks, context, record, control, steps, op_first, openmp, bounds, sharing, dynamic):
    """Run steps from control[STEPS_DONE] up to `steps`, or until control[STOP] is set.

    openmp: addresses of ENTRY_POINTS; bounds (P, 8): cells in which the runtime returns each thread's part of a loop;
    sharing (ops,): number of threads of each op. Those that have no part in it go to the barrier.
    """
    stop, done, last = address_of(control, STOP), address_of(control, STEPS_DONE), address_of(control, LAST)
    ops, start = op_first.shape[0] - 1, control[STEPS_DONE]
    begin, end = address_of(bounds, thread * bounds.shape[1]), address_of(bounds, thread * bounds.shape[1] + 1)
    enter(record, thread, start)
    call_c(openmp[GOMP_BARRIER], ())
    if thread == 0:
        record.begin[0] = ticks()
    call_c(openmp[GOMP_BARRIER], ())  # no thread works before the begin
    for step in range(start, steps):
        for op in range(ops):
            first, count, threads, idle = op_first[op], op_first[op + 1] - op_first[op], sharing[op], STARVATION
            if dynamic:
                more = call_c(openmp[LOOP_START], (first, first + count, 1, 1, begin, end))
                while more & LOW_BYTE:
                    for task in range(bounds[thread, 0], bounds[thread, 1]):
                        run_task(tasks, context, record, thread, step, task)
                        idle = BARRIER
                    more = call_c(openmp[LOOP_NEXT], (begin, end))
                call_c(openmp[LOOP_END], ())
            elif thread >= threads:
                idle = APART
            else:  # as compilers cut schedule(static): the first threads take one more
                each, more = count // threads, count % threads
                mine = first + each * thread + min(thread, more)
                for task in range(mine, mine + each + (thread < more)):
                    run_task(tasks, context, record, thread, step, task)
                    idle = BARRIER
            close_wait(record, thread, 0)  # of a thread without a tile
            if thread == 0 and op == ops - 1 and load_acquire(stop):
                store_release(last, step + 1)  # a number: a slow thread may read it one step late
            open_wait(record, thread, idle, ticks())
            call_c(openmp[GOMP_BARRIER], ())
        if thread == 0:
            record.step_end[step] = ticks()
            store_release(done, step + 1)
        note_usage(record, thread, step + 1)
        if load_acquire(last) == step + 1:
            break
    call_c(openmp[GOMP_BARRIER], ())  # thread 0 has recorded the end of the last step
    close_wait(record, thread, record.step_end[control[STEPS_DONE] - 1])


class OmpForRun(OnOpenMP):
    def loop(self, _: Stage) -> tuple[Callable[..., None], list[Any]]:
        threads = len(self.job.cores)
        dynamic = int(self.job.options.get("assignment") == "dynamic")
        bounds = np.zeros((threads, 8), np.int64)
        table = self.job.options.get("op_threads")
        sharing = np.array(sections.op_threads(self.job.program, table, threads), np.int64)
        return omp_for_loop, [self.job.bound.op_first, self.loaded.address, bounds, sharing, dynamic]
