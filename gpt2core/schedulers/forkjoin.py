"""Fork-join: each op's tiles are shared out to the team, and a barrier follows. Every op is parallel."""

from gpt2core.machine.atomics import load_acquire, store_release
from gpt2core.machine.clock import ticks
from gpt2core.machine.jit import address_of, runtime
from gpt2core.schedulers.dispatch import run_task
from gpt2core.schedulers.serial import STEPS_DONE, STOP
from gpt2core.schedulers.team import barrier

AGREED = 2  # cell of `control`: what thread 0 decided at the step's end


@runtime
def forkjoin_loop(thread, tasks, context, record, control, steps, op_first, cells, threads, spin_limit):
    """Run steps. A thread takes a contiguous share of each op's tiles, so that it meets the slices it knows again."""
    stop, done, agreed = address_of(control, STOP), address_of(control, STEPS_DONE), address_of(control, AGREED)
    barriers = address_of(cells, 0)
    barrier(barriers, threads, spin_limit)
    if thread == 0:
        record.begin[0] = ticks()
    for step in range(steps):
        for op in range(op_first.shape[0] - 1):
            first, count = op_first[op], op_first[op + 1] - op_first[op]
            for task in range(first + count * thread // threads, first + count * (thread + 1) // threads):
                run_task(tasks, context, record, thread, step, task)
            if thread == 0 and op == op_first.shape[0] - 2:
                store_release(agreed, load_acquire(stop))
            barrier(barriers, threads, spin_limit)
        if thread == 0:
            record.step_end[step] = ticks()
            store_release(done, step + 1)
        if load_acquire(agreed):
            break
