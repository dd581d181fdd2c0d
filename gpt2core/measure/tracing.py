"""Records of the team while it runs: sums and bounds for every op, step and phase; with tracing, every call.

Each thread writes rows of its own. Times are ticks of compile.clock.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpt2core.compile.atomics import load_acquire, store_release
from gpt2core.compile.clock import ticks
from gpt2core.compile.jit import address_of, inlined
from gpt2core.compile.line import LINE
from gpt2core.measure.usage import DESK_CELLS, ENDED, LONG_TICKS, UNKNOWN, grown_run_delay_ns, read_usage
from gpt2core.spec.phases import PHASES

Ints = NDArray[np.int64]
FIRST, LAST, BUSY = 0, 1, 2
LONG_S = 200e-6  # spans above are read for run delay, which takes a microsecond; a preemption lasts longer
BARRIER, STARVATION, APART, ENTERED, LAST_BEGIN, CAUSE, SINCE = range(7)  # columns of Record.waited
PASSED, LAST_START, PASSED_AT = range(3)  # cells of Record.passed


class Record(NamedTuple):
    """Arrays that compiled code fills. P threads, S steps, K op names."""

    warmup: int
    begin: Ints  # (1,) when the first step began
    step_end: Ints  # (S,)
    op_time: Ints  # (P, K + LINE) summed over the timed steps
    op_calls: Ints  # (P, K + LINE)
    phases: Ints  # (P, S, A * phases * 3 + 1), A micro-batches: first begin, last end, busy time
    task_time: Ints  # (tasks,) summed over all steps
    waited: Ints  # (P, LINE): time without a task, by cause; begin of the loop and of the last task; the open wait
    passed: Ints  # (LINE,): number of passed waits of the graph; begin of the last task before the latest; its time
    usage: Ints  # (P, timed steps + 1, LINE): Linux's counts of the thread at each step; or no rows
    desk: Ints  # (P, DESK_CELLS) buffer for such a reading
    events: Ints  # (P, capacity, 5): call or, for a wait, -1 - its column of `waited`; step, begin, end, run delay (ns)
    event_count: Ints  # (P, LINE)
    exposed: Ints  # (P, S, L) without a ready task while one of L ops with a second moment was open (task only)
    completed: Ints  # (M, S) when each of M tasks with a second moment was found to be complete (task only)


def new_record(
    threads: int,
    steps: int,
    warmup: int,
    kinds: int,
    events: int,
    tasks: int = 0,
    watched: bool = False,
    micros: int = 1,
    phases: int = len(PHASES),
    later: int = 0,
    moments: int = 0,
) -> Record:
    """Empty arrays. events: number of calls that each thread may trace; tasks: number of tasks that are timed singly;
    watched: whether each thread reads its usage at every timed step; micros: micro-batches in a step; phases: number of
    phases of its program; later: number of its ops that are complete only after they ran; moments: number of the tasks
    of these."""
    return Record(
        warmup,
        np.zeros(1, np.int64),
        np.zeros(steps, np.int64),
        np.zeros((threads, kinds + LINE), np.int64),
        np.zeros((threads, kinds + LINE), np.int64),
        np.zeros((threads, steps, micros * phases * 3 + 1), np.int64),
        np.zeros(tasks, np.int64),
        np.zeros((threads, LINE), np.int64),
        np.zeros(LINE, np.int64),
        np.zeros((threads, steps - warmup + 1 if watched else 0, LINE), np.int64),
        np.full((threads, DESK_CELLS), UNKNOWN, np.int64),
        np.zeros((threads, events, 5), np.int64),
        np.zeros((threads, LINE), np.int64),
        np.zeros((threads, steps, later), np.int64),
        np.zeros((moments, steps), np.int64),
    )


@inlined
def note(record, thread, step, task, call, kind, phase, begin, end):
    """Record that a thread ran one of a task's calls."""
    if step >= record.warmup:
        record.op_time[thread, kind] += end - begin
        record.op_calls[thread, kind] += 1
    if task < record.task_time.shape[0]:
        record.task_time[task] += end - begin
    cells = record.phases[thread, step]
    at = 3 * phase
    if cells[at] == 0:
        cells[at] = begin
    cells[at + 1] = end
    cells[at + 2] += end - begin
    delay_ns = 0
    if record.events.shape[1] > 0:
        if end - begin > record.desk[thread, LONG_TICKS]:
            delay_ns = grown_run_delay_ns(desk_of(record, thread))
        record.desk[thread, ENDED] = end
    note_event(record, thread, call, step, begin, end, delay_ns)


@inlined
def begins(record, thread, now):
    """When a task begins. With tracing, a long time without a task is over: its run delay is not the task's."""
    if record.events.shape[1] > 0 and now - record.desk[thread, ENDED] > record.desk[thread, LONG_TICKS]:
        grown_run_delay_ns(desk_of(record, thread))
        now = ticks()
    return now


@inlined
def desk_of(record, thread):
    """Address of a thread's desk."""
    return address_of(record.desk, thread * record.desk.shape[1])


@inlined
def note_event(record, thread, what, step, begin, end, delay_ns):
    """Trace a span of a thread, if there is tracing and room for it."""
    count = record.event_count[thread, 0]
    if count < record.events.shape[1]:
        event = record.events[thread, count]
        event[0], event[1], event[2], event[3], event[4] = what, step, begin, end, delay_ns
        record.event_count[thread, 0] = count + 1


@inlined
def note_waited(record, thread, cause, since, until):
    """Add a wait to a thread's waiting time; of a wait that began before the run, only the part in the run."""
    since = max(since, record.begin[0])
    if until > since:
        record.waited[thread, cause] += until - since
        note_event(record, thread, -1 - cause, -1, since, until, 0)


@inlined
def open_wait(record, thread, cause, since):
    """Note that a thread waits since then, or with 0 that it does not. Its next task, or close_wait, ends the wait."""
    record.waited[thread, CAUSE], record.waited[thread, SINCE] = cause, since


@inlined
def close_wait(record, thread, until):
    """Record a thread's wait until then, or with 0 until now, if one is open."""
    since = record.waited[thread, SINCE]
    if since:
        record.waited[thread, SINCE] = 0
        note_waited(record, thread, record.waited[thread, CAUSE], since, until or ticks())


@inlined
def note_exposed(record, thread, step, op, since, until):
    """Add to the time for which a thread had no ready task while an op of this number (Dispatch.waits) was open."""
    if until > since and op < record.exposed.shape[2]:
        record.exposed[thread, step, op] += until - since


@inlined
def note_completed(record, index, step):
    """Note that a task with a second moment (Dispatch.later) is complete."""
    if index < record.completed.shape[0]:
        record.completed[index, step] = ticks()


@inlined
def enter(record, thread, step):
    """Note that a thread begins its loop, at a step."""
    note_usage(record, thread, step)
    record.waited[thread, ENTERED], record.waited[thread, SINCE] = ticks(), 0


@inlined
def note_usage(record, thread, step):
    """Read Linux's counts of this thread when it reaches a step, including the end of the last one."""
    row = step - record.warmup
    if 0 <= row < record.usage.shape[1]:
        cells = (thread * record.usage.shape[1] + row) * record.usage.shape[2]
        read_usage(address_of(record.usage, cells), desk_of(record, thread))


@inlined
def pass_wait(record, now):
    """Record that a wait was passed. Waits are in order, so there is one writer at a time."""
    last = record.waited[0, LAST_BEGIN]
    for thread in range(1, record.waited.shape[0]):
        last = max(last, record.waited[thread, LAST_BEGIN])
    record.passed[LAST_START], record.passed[PASSED_AT] = last, now
    store_release(address_of(record.passed, PASSED), record.passed[PASSED] + 1)


@inlined
def note_wait(record, thread, since, now):
    """Record that a thread waited until the graph's wait was passed; return when that was.

    The thread starved until the last task before that wait began. Afterwards it waited for running tasks.
    """
    starved = min(max(since, record.passed[LAST_START]), now)
    until = min(max(starved, record.passed[PASSED_AT]), now)
    note_waited(record, thread, STARVATION, since, starved)
    note_waited(record, thread, BARRIER, starved, until)
    return until


@inlined
def note_node(record, thread, since, waits):
    """Record a wait for a node of the graph, which has just run: until its task began or, for a wait, until now.
    waits: number of passed waits, when the thread last recorded them."""
    until = record.waited[thread, LAST_BEGIN]
    if until < since:
        until = ticks()
    if load_acquire(address_of(record.passed, PASSED)) != waits:
        since = note_wait(record, thread, since, until)
    note_waited(record, thread, STARVATION, since, until)
