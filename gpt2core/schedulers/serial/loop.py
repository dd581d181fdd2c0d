"""The compiled loop of serial."""

from collections.abc import Callable
from typing import Any

from gpt2core.compile.atomics import load_acquire, store_release
from gpt2core.compile.clock import ticks
from gpt2core.compile.jit import address_of, runtime
from gpt2core.measure.tracing import enter, note_usage
from gpt2core.schedulers.dispatch import run_calls
from gpt2core.schedulers.scheduler import Stage
from gpt2core.schedulers.team import OnTeam
from gpt2core.step.control import STEPS_DONE, STOP


@runtime
def serial_loop(thread, tasks, context, record, control, steps):
    """Run steps from control[STEPS_DONE] up to `steps`, or until control[STOP] is set at a step's end."""
    stop, done = address_of(control, STOP), address_of(control, STEPS_DONE)
    enter(record, thread, control[STEPS_DONE])
    record.begin[0] = ticks()
    for step in range(control[STEPS_DONE], steps):
        for task in range(tasks.shape[0]):
            run_calls(tasks, context, record, thread, step, task)  # no wait that it could end
        record.step_end[step] = ticks()
        note_usage(record, thread, step + 1)
        store_release(done, step + 1)
        if load_acquire(stop):
            break


class SerialRun(OnTeam):
    def loop(self, _: Stage) -> tuple[Callable[..., None], list[Any]]:
        return serial_loop, []
