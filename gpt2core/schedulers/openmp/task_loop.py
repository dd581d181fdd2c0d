"""The compiled loop of omp-task: one thread creates the tasks, step after step; all threads run them.

Depend clauses order the tasks of one parent only, so several creators could not express the graph: there is one, as in
most OpenMP programs. It waits at the graph's waits: a taskwait for sync = phase and step. With sync = none it passes
the graph's gate (step/graph.py) before it creates another step, so that no more than two are active.

Waiting is measured without the runtime's help. The creator waits from the call of a wait to its return. Every other
thread waits in the barrier after all steps. The time in tasks is not part of either. The runtime does not show whether
a waiting thread searched for a task or none was ready. OMPT does not either: its events begin and end with these calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpt2core.compile.atomics import load_acquire, store_release
from gpt2core.compile.clock import ticks
from gpt2core.compile.foreign import call_c
from gpt2core.compile.jit import address_of, entry, inlined, runtime
from gpt2core.compile.line import LINE
from gpt2core.measure.tracing import (
    BARRIER,
    SINCE,
    STARVATION,
    close_wait,
    enter,
    note_usage,
    open_wait,
)
from gpt2core.node.openmp import ENTRY_POINTS
from gpt2core.schedulers.dispatch import run_task
from gpt2core.schedulers.openmp.creation import EVEN, HEAD, LOSS, ODD, TASKWAIT, Creation, plan
from gpt2core.schedulers.openmp.frame import flatten, frame_at, matrix, record_at, vector
from gpt2core.schedulers.openmp.team import OnOpenMP
from gpt2core.schedulers.scheduler import Stage
from gpt2core.step.control import STEPS_DONE, STOP

GOMP_BARRIER = ENTRY_POINTS.index("GOMP_barrier")
GOMP_TASK = ENTRY_POINTS.index("GOMP_task")
GOMP_TASKWAIT = ENTRY_POINTS.index("GOMP_taskwait")
GOMP_TASKWAIT_DEPEND = ENTRY_POINTS.index("GOMP_taskwait_depend")
THREAD_NUM = ENTRY_POINTS.index("omp_get_thread_num")
DEPEND, PRIORITY = 8, 16  # flags of GOMP_task
FRAME, STEP, TASK = range(3)  # cells of a task's argument, which the runtime copies
ARGUMENT_CELLS = 3
OPENMP, TASKS, CONTEXT, CONTROL, SEEN, RECORD = range(6)  # rows of the frame
LAST_STEP = 0  # cell of a thread's row of `seen`


@entry("p")
def run_task_entry(argument):
    """An OpenMP task: run one task of the step program."""
    frame = frame_at(argument[FRAME])
    record, seen = record_at(frame, RECORD), matrix(frame, SEEN)
    thread = call_c(vector(frame, OPENMP)[THREAD_NUM], ()) & 0x7FFFFFFF
    if argument[STEP] > seen[thread, LAST_STEP]:
        seen[thread, LAST_STEP] = argument[STEP]
        note_usage(record, thread, argument[STEP])
    waits = record.waited[thread, SINCE] != 0
    run_task(matrix(frame, TASKS), matrix(frame, CONTEXT), record, thread, argument[STEP], argument[TASK])
    if waits:
        record.waited[thread, SINCE] = ticks()  # it goes on in the runtime


@entry("p")
def end_step_entry(argument):
    """An OpenMP task: a step is complete, and those before it."""
    frame = frame_at(argument[FRAME])
    end_step(record_at(frame, RECORD), address_of(vector(frame, CONTROL), STEPS_DONE), argument[STEP])


@inlined
def end_step(record, done, step):
    """Record that a step is complete; `done` is an address."""
    record.step_end[step] = ticks()
    store_release(done, step + 1)


@inlined
def wait(openmp, call, arguments, record, thread, cause):
    """Call a function that returns once tasks are complete. Tasks that this thread runs meanwhile divide its wait,
    whose last part stays open."""
    open_wait(record, thread, cause, ticks())
    call_c(openmp[call], arguments)


@runtime
def omp_task_loop(thread, tasks, context, record, control, steps, creation, openmp, bodies, frame, argument):
    """Run steps from control[STEPS_DONE] up to `steps`, or until control[STOP] is set.

    openmp: addresses of ENTRY_POINTS; bodies: of run_task_entry and end_step_entry; argument: room for a task's.
    """
    first, seen = control[STEPS_DONE], matrix(frame, SEEN)
    enter(record, thread, first)
    seen[thread, LAST_STEP] = first
    call_c(openmp[GOMP_BARRIER], ())
    if thread == 0:
        record.begin[0] = ticks()
        for step in range(first, steps):
            create_step(creation, openmp, bodies, frame, argument, record, step)
            if not creation.gated:
                end_step(record, address_of(control, STEPS_DONE), step)
            else:
                create_end(creation, openmp, bodies, argument, step)
                if step + 1 < steps:  # the last step's end is awaited at the barrier: waiting after it does not count
                    pass_gate(openmp, argument, record)
            if load_acquire(address_of(control, STOP)):
                break
    wait(openmp, GOMP_BARRIER, (), record, thread, STARVATION)  # after it all tasks are complete
    close_wait(record, thread, record.step_end[control[STEPS_DONE] - 1])
    note_usage(record, thread, control[STEPS_DONE])


@inlined
def create_step(creation, openmp, bodies, frame, argument, record, step):
    """Create a step's tasks in the program's order, and wait at the graph's waits."""
    argument[FRAME], argument[STEP] = address_of(frame, 0), step
    flags = DEPEND + PRIORITY * creation.prioritised
    end = address_of(creation.markers, ODD if step & 1 else EVEN)
    for i in range(creation.order.shape[0]):
        task = creation.order[i]
        if task == TASKWAIT:
            wait(openmp, GOMP_TASKWAIT, (), record, 0, BARRIER)
            close_wait(record, 0, 0)
            continue
        if creation.ends[task] >= 0:
            creation.depend[creation.ends[task]] = end
        argument[TASK] = task
        create(openmp, bodies[0], argument, flags, creation.depend, creation.clause[task], creation.priority[task])


@inlined
def create_end(creation, openmp, bodies, argument, step):
    """Create the task that ends a step. Leave in `argument` the clause of the gate after it: the step's loss is known,
    and the step before it is complete."""
    end = address_of(creation.markers, ODD if step & 1 else EVEN)
    before = address_of(creation.markers, EVEN if step & 1 else ODD)
    clause = argument[ARGUMENT_CELLS:]
    clause[0], clause[1] = 2, 1
    clause[HEAD], clause[HEAD + 1] = end, before
    create(openmp, bodies[1], argument, DEPEND, clause, 0, 0)
    clause[HEAD] = address_of(creation.markers, LOSS)


@inlined
def pass_gate(openmp, argument, record):
    """Wait until the gate's clause is fulfilled."""
    clause = argument[ARGUMENT_CELLS:]
    wait(openmp, GOMP_TASKWAIT_DEPEND, (address_of(clause, 0),), record, 0, STARVATION)
    close_wait(record, 0, 0)


@inlined
def create(openmp, body, argument, flags, depend, clause, priority):
    """Create a task that runs a body with a copy of its argument."""
    call_c(openmp[GOMP_TASK], (
        body, address_of(argument, 0), 0, 8 * ARGUMENT_CELLS, 8, 1, flags, address_of(depend, clause), priority,
    ))  # fmt: skip


class OmpTaskRun(OnOpenMP):
    """The tasks and their clauses, planned for the stage that is next."""

    def loop(self, stage: Stage) -> tuple[Callable[..., None], list[Any]]:
        job, address = self.job, self.loaded.address
        policy = job.options.get("policy", "breadth-first")
        creation: Creation = plan(job.program, job.graph, policy, stage.cost_s)
        bodies = np.array([run_task_entry.address, end_step_entry.address], np.int64)
        seen = np.zeros((len(job.cores), LINE), np.int64)
        bound = job.bound
        frame = flatten([address, bound.tasks, bound.context, job.control, seen, *stage.record])
        self.kept = seen  # the frame has its address only
        argument = np.zeros(ARGUMENT_CELLS + HEAD + 2, np.int64)
        return omp_task_loop, [creation, address, bodies, frame, argument]
