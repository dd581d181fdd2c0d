"""The compiled loop of task.

Order with policy breadth-first: the oldest of the own ready tasks, then of another thread's, then the oldest filler,
whose weights have been out of use for longest (docs/decisions/0005). With the other policies: the own successor of
highest priority (its data is in this core's cache), then the latest of the own other ready tasks, then the oldest of
another thread's. replay.record defines fillers and priorities.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from gpt2core.compile.atomics import fence, fetch_add, load_acquire, load_relaxed, pause, store_release, yield_core
from gpt2core.compile.clock import ticks
from gpt2core.compile.jit import address_of, inlined, runtime
from gpt2core.compile.parking import EVERYONE, fence_everyone, park, register, wake
from gpt2core.measure.tracing import (
    ENTERED,
    LAST_BEGIN,
    PASSED,
    STARVATION,
    note_usage,
    note_wait,
    note_waited,
    pass_wait,
)
from gpt2core.schedulers.dispatch import run_task
from gpt2core.schedulers.scheduler import Job, Stage
from gpt2core.schedulers.task import replay as replays
from gpt2core.schedulers.task.deque import EMPTY, new_deques, push, size, steal, take
from gpt2core.schedulers.task.replay import BEGIN_NODE, END_NODE
from gpt2core.schedulers.team import OnTeam
from gpt2core.schedulers.waiting import LOOKS, PATIENCE, spin_ticks
from gpt2core.step.control import FINISHED, FIRST, LAST, STEPS_DONE, STOP
from gpt2core.step.graph import WAIT

PARKED, WAKES = 0, 64  # bytes of the cells for idle threads: how many are parked, and a count that wakes them
IDLE_CELLS = 16  # int64; two cache lines, written only where a thread parks or is woken


@runtime
def task_loop(thread, tasks, context, record, control, steps, replay, deques, mask, idle, spin):
    """Replay the graph until all steps are done or control[STOP] is set when an iteration is about to begin."""
    rest_cells = address_of(idle, 0)
    threads = deques.shape[0] // 2
    finished, own = address_of(control, FINISHED), address_of(deques, thread * deques.shape[1])
    passed, asked = address_of(record.passed, PASSED), max(threads - 1, 1)
    seen = control[FIRST]
    note_usage(record, thread, seen)
    record.waited[thread, ENTERED] = ticks()
    if thread == 0:
        record.begin[0] = ticks()
        for i in range(replay.start.shape[0]):
            push(own, mask, replay.start[i])
    spare = address_of(deques, (threads + thread) * deques.shape[1])
    node, spun, victim, since, waits, waited = EMPTY, 0, thread, 0, 0, 0
    while True:
        if node == EMPTY:
            node = steal(own, mask) if replay.breadth_first else take(own, mask)
        if node == EMPTY:
            victim = victim + 1 if victim + 1 < threads else 0
            if victim != thread:
                node = steal(address_of(deques, victim * deques.shape[1]), mask)
            if node == EMPTY and replay.breadth_first and spun + 1 >= asked:  # every other thread's deque was tried
                node = steal(spare, mask)
                if node == EMPTY and victim != thread:
                    node = steal(address_of(deques, (threads + victim) * deques.shape[1]), mask)
        if node == EMPTY:
            if load_acquire(finished):
                break
            spun += 1
            if spun == asked:
                since, waits, waited = ticks(), load_acquire(passed), 0
            elif spun > asked and spun % LOOKS == 0:
                waited = ticks() - since
            if waited < spin:
                pause()
            elif waited < PATIENCE * spin:
                yield_core()
            else:
                rest(deques, rest_cells, finished)
            if spun > asked and load_acquire(passed) != waits:
                waits, since, waited = load_acquire(passed), note_wait(record, thread, since, ticks()), 0
            continue
        was_idle, spun = spun >= asked, 0
        if replay.iteration[node] > seen:
            seen = replay.iteration[node]
            note_usage(record, thread, seen)
        node = run_node(thread, tasks, context, record, control, steps, replay, own, spare, mask, rest_cells, node)
        if was_idle:  # recorded only now, when no thread waits for this one
            end_wait(record, thread, since, waits)
    last = load_acquire(address_of(control, LAST))
    note_usage(record, thread, last)
    if spun >= asked:
        note_wait(record, thread, since, record.step_end[last - 1])


@inlined
def run_node(thread, tasks, context, record, control, steps, replay, own, spare, mask, rest_cells, node):
    """Run a ready node, release its successors, and return the one to run next, or EMPTY."""
    iteration, task = replay.iteration[node], replay.task[node]
    replay.pending[node, iteration & 1] = replay.predecessors[node]  # armed again, for the iteration after the next
    if task >= 0:
        run_task(tasks, context, record, thread, iteration, task)
    elif task == BEGIN_NODE:
        if iteration == steps or (iteration != control[FIRST] and load_acquire(address_of(control, STOP))):
            # With sync = none the last iteration may still run: this node or its end, whichever is later, finishes.
            store_release(address_of(control, LAST), iteration)
            fence()
            if load_acquire(address_of(control, STEPS_DONE)) == iteration:
                finish(record, control, rest_cells, iteration)
            return EMPTY
    elif task == END_NODE:
        record.step_end[iteration] = ticks()
        if replay.barriers:
            pass_wait(record, record.step_end[iteration])
            wake_idle(rest_cells, EVERYONE)  # each records the end of its wait
        store_release(address_of(control, STEPS_DONE), iteration + 1)
        fence()
        if load_acquire(address_of(control, LAST)) == iteration + 1:
            finish(record, control, rest_cells, iteration + 1)
    elif replay.barriers:
        pass_wait(record, ticks())
        wake_idle(rest_cells, EVERYONE)
    replay.iteration[node] = iteration + 1
    following = EMPTY
    for i in range(replay.first[node], replay.first[node + 1]):
        successor = replay.successor[i] >> 1
        cell = successor * replay.pending.shape[1] + ((iteration + replay.successor[i]) & 1)
        # A sole predecessor needs no count.
        if replay.predecessors[successor] == 1 or fetch_add(address_of(replay.pending, cell), -1) == 1:
            if replay.breadth_first:
                push(spare if replay.filler[successor] else own, mask, successor)
                continue
            if following != EMPTY:
                push(own, mask, following)
            following = successor
    if load_relaxed(rest_cells + PARKED) != 0:
        spared = size(own) + size(spare) - replay.breadth_first  # nodes that this thread does not run next
        if spared > 0:
            wake_idle(rest_cells, spared)
    return following


@inlined
def wake_idle(rest_cells, count):
    """Wake at most `count` parked threads, if there are any. One that is about to park meanwhile sees what is ready."""
    if load_relaxed(rest_cells + PARKED) != 0:
        fetch_add(rest_cells + WAKES, 1)
        wake(rest_cells + WAKES, count)


@inlined
def rest(deques, rest_cells, finished):
    """Park this thread until it is woken, unless a node is ready or nothing is left to run."""
    wakes = announce(rest_cells)
    if not (load_acquire(finished) or any_ready(deques)):
        park(rest_cells + WAKES, wakes)
    fetch_add(rest_cells + PARKED, -1)


@inlined
def announce(rest_cells):
    """Count this thread as parked; return the count that wakes it. Afterwards each thread sees that it is parked, or
    this thread sees the nodes that the other one has pushed."""
    fetch_add(rest_cells + PARKED, 1)
    wakes = load_acquire(rest_cells + WAKES)
    fence_everyone()
    return wakes


@inlined
def any_ready(deques):
    """Whether any thread has a node that is ready."""
    found = 0
    for row in range(deques.shape[0]):
        found += size(address_of(deques, row * deques.shape[1])) > 0
    return found > 0


@inlined
def end_wait(record, thread, since, waits):
    """Record a wait that ended with the node that just ran: at the begin of its task or, for a wait, now."""
    until = record.waited[thread, LAST_BEGIN]
    if until < since:
        until = ticks()
    if load_acquire(address_of(record.passed, PASSED)) != waits:
        since = note_wait(record, thread, since, until)
    note_waited(record, thread, STARVATION, since, until)


@inlined
def finish(record, control, rest_cells, iterations):
    """Let all threads leave their loops: every iteration is complete."""
    pass_wait(record, record.step_end[iterations - 1])
    store_release(address_of(control, FINISHED), 1)
    fence()  # no thread parks without having seen it
    wake_idle(rest_cells, EVERYONE)


class TaskRun(OnTeam):
    """The graph flattened for the stage that is next; a stage like the one before runs a copy of the same arrays."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        register()
        self.flat: replays.Replay | None = None  # as the last stage began; it ran a copy, `running`
        self.running: replays.Replay | None = None
        self.flat_of: tuple[int, list[float]] = (-1, [])

    def loop(self, stage: Stage) -> tuple[Callable[..., None], list[Any]]:
        wanted = (stage.first, list(stage.cost_s))
        if self.flat is None or self.flat_of != wanted:
            cost = [0.0 if number == WAIT else wanted[1][number] for number in self.job.graph.task]
            policy = self.job.options.get("policy", "breadth-first")
            self.flat, self.flat_of = replays.record(self.job.graph, cost, policy, stage.first), wanted
        self.running = replays.copy(self.flat)
        deques, mask = new_deques(len(self.job.cores), len(self.job.graph))
        idle = np.zeros(IDLE_CELLS, np.int64)
        return task_loop, [self.running, deques, mask, idle, spin_ticks(self.job.cores)]

    def stuck(self) -> list[str]:
        """The waiting tasks, and the predecessors of each that have not run."""
        if self.running is None:
            return []
        label = self.job.graph.label
        waiting = replays.waiting(self.running, self.job.graph)
        return [f"'{label[n]}' waits on " + ", ".join(f"'{label[p]}'" for p in on) for n, on in waiting]
