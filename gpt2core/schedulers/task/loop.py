"""The compiled loop of task.

Order with policy breadth-first: the oldest of the own ready tasks, then of another thread's, then the oldest filler,
whose weights have been out of use for longest (docs/decisions/0005). With the other policies: the own successor of
highest priority (its data is in this core's cache), then the latest of the own other ready tasks, then the oldest of
another thread's. replay.flatten defines fillers and priorities.

A node that is complete only after it ran (replay.Later) is open meanwhile. One thread at a time polls the open nodes:
an idle one, or a busy one between two tasks if nobody has polled for POLL_S. The successors of a node that is complete
become ready on the thread that found it so. No thread parks while a node is open.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpt2core.compile.atomics import (
    compare_exchange,
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
from gpt2core.compile.jit import COMPLETE, STEP, address_of, call_entry, inlined, runtime
from gpt2core.compile.parking import EVERYONE, fence_everyone, park, register, wake
from gpt2core.measure.tracing import (
    LAST_BEGIN,
    PASSED,
    enter,
    note_completed,
    note_exposed,
    note_node,
    note_usage,
    note_wait,
    pass_wait,
)
from gpt2core.schedulers.dispatch import NAME, ON, POLL, TILE, run_calls
from gpt2core.schedulers.scheduler import Job, Stage
from gpt2core.schedulers.task import replay as replays
from gpt2core.schedulers.task.deque import EMPTY, new_deques, push, size, steal, take
from gpt2core.schedulers.task.replay import BEGIN_NODE, END_NODE, FIRST_LATER, Ints
from gpt2core.schedulers.team import OnTeam
from gpt2core.schedulers.waiting import LOOKS, PATIENCE, spin_ticks, ticks_per_s
from gpt2core.step.control import FINISHED, FIRST, LAST, STEPS_DONE, STOP
from gpt2core.step.graph import WAIT

# Bytes of the cells for idle threads: how many are parked, and OPEN for each open node; a count that wakes them;
# whether a thread polls; when the last one did, in ticks; step and op of the first open node (see `awaited`).
PARKED, WAKES, POLLING, POLLED, AWAITED = 0, 64, 128, 136, 144
IDLE_CELLS = 24  # int64; cache lines that are written only where a thread parks, is woken or polls
OPEN = 1 << 32  # in PARKED, so that a busy thread looks at one cell for both
OPS = 1 << 8  # more than a program has ops whose tasks are complete only later
POLL_S = 200e-6  # MPI makes progress only in its calls: every 0.2 to 2 ms hides a transfer, every 10 ms does not


class Idle(NamedTuple):
    """What idle threads share."""

    cells: Ints  # IDLE_CELLS
    spin: int  # ticks after which a waiting thread lets others run
    poll_ticks: int  # after which a busy thread polls


class Mine(NamedTuple):
    """A thread's deques: their addresses, and the mask of their rings."""

    urgent: int
    fillers: int
    mask: int


@runtime
def task_loop(thread, tasks, context, record, control, steps, replay, later, queues, idle):
    """Replay the graph until all steps are done or control[STOP] is set when an iteration is about to begin."""
    deques, mask = queues
    rest_cells, spin = address_of(idle.cells, 0), idle.spin
    threads = deques.shape[0] // 2
    mine = Mine(
        address_of(deques, thread * deques.shape[1]), address_of(deques, (threads + thread) * deques.shape[1]), mask
    )
    finished = address_of(control, FINISHED)
    passed, asked = address_of(record.passed, PASSED), max(threads - 1, 1)
    seen = control[FIRST]
    enter(record, thread, seen)
    if thread == 0:
        record.begin[0] = ticks()
        for i in range(replay.start.shape[0]):
            push(mine.urgent, mask, replay.start[i])
    node, spun, victim, since, waits, waited = EMPTY, 0, thread, 0, 0, 0
    looked, on = 0, -1  # when this idle thread last looked for open nodes, and the first one (awaited), or -1
    while True:
        if node == EMPTY:
            node = steal(mine.urgent, mask) if replay.breadth_first else take(mine.urgent, mask)
        if node == EMPTY:
            victim = victim + 1 if victim + 1 < threads else 0
            if victim != thread:
                node = steal(address_of(deques, victim * deques.shape[1]), mask)
            if node == EMPTY and replay.breadth_first and spun + 1 >= asked:  # every other thread's deque was tried
                node = steal(mine.fillers, mask)
                if node == EMPTY and victim != thread:
                    node = steal(address_of(deques, (threads + victim) * deques.shape[1]), mask)
        if node == EMPTY:
            if load_acquire(finished):
                break
            spun += 1
            if spun == asked:
                since, waits, waited = ticks(), load_acquire(passed), 0
                looked, on = since, -1
            elif spun > asked and spun % LOOKS == 0:
                now = ticks()
                waited, on = now - since, awaited(rest_cells)
                if on >= 0:
                    note_exposed(record, thread, on // OPS, on % OPS, looked, now)
                    poll(thread, tasks, context, record, replay, later, mine, rest_cells)
                looked = now
            if waited < spin:
                pause()
            elif waited < PATIENCE * spin or load_relaxed(rest_cells + PARKED) >= OPEN:
                yield_core()
            else:
                rest(deques, rest_cells, finished)
                looked, on = ticks(), -1
            if spun > asked and load_acquire(passed) != waits:
                waits, since, waited = load_acquire(passed), note_wait(record, thread, since, ticks()), 0
            continue
        was_idle, spun = spun >= asked, 0
        if replay.iteration[node] > seen:
            seen = replay.iteration[node]
            note_usage(record, thread, seen)
        node = run_node(
            thread, tasks, context, record, control, steps, replay, later, mine, rest_cells, idle.poll_ticks, node
        )
        if was_idle:  # recorded only now, when no thread waits for this one
            note_node(record, thread, since, waits)
            if on >= 0:
                note_exposed(record, thread, on // OPS, on % OPS, looked, record.waited[thread, LAST_BEGIN])
    last = load_acquire(address_of(control, LAST))
    note_usage(record, thread, last)
    if spun >= asked:
        note_wait(record, thread, since, record.step_end[last - 1])


@inlined
def run_node(thread, tasks, context, record, control, steps, replay, later, mine, rest_cells, poll_ticks, node):
    """Run a ready node, release its successors if it is complete, and return the one to run next, or EMPTY."""
    iteration, task = replay.iteration[node], replay.task[node]
    replay.pending[node, iteration & 1] = replay.predecessors[node]  # armed again, for the iteration after the next
    if task >= 0:
        run_calls(tasks, context, record, thread, iteration, task)
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
    elif task <= FIRST_LATER:
        run_calls(tasks, context, record, thread, iteration, later.task[FIRST_LATER - task])
        open_node(later, rest_cells, iteration, FIRST_LATER - task)
        return EMPTY
    elif replay.barriers:
        pass_wait(record, ticks())
        wake_idle(rest_cells, EVERYONE)
    following = release(replay, mine, node, iteration)
    present = load_relaxed(rest_cells + PARKED)
    if present != 0:
        wake_for(replay, mine, rest_cells)
        if present >= OPEN and ticks() - load_relaxed(rest_cells + POLLED) > poll_ticks:
            poll(thread, tasks, context, record, replay, later, mine, rest_cells)
    return following


@inlined
def release(replay, mine, node, iteration):
    """Make the successors of a complete node ready, and return the one to run next, or EMPTY."""
    replay.iteration[node] = iteration + 1
    following = EMPTY
    for i in range(replay.first[node], replay.first[node + 1]):
        successor = replay.successor[i] >> 1
        cell = successor * replay.pending.shape[1] + ((iteration + replay.successor[i]) & 1)
        # A sole predecessor needs no count.
        if replay.predecessors[successor] == 1 or fetch_add(address_of(replay.pending, cell), -1) == 1:
            if replay.breadth_first:
                push(mine.fillers if replay.filler[successor] else mine.urgent, mine.mask, successor)
                continue
            if following != EMPTY:
                push(mine.urgent, mine.mask, following)
            following = successor
    return following


@inlined
def wake_for(replay, mine, rest_cells):
    """Wake parked threads for the nodes that this thread does not run next."""
    spared = size(mine.urgent) + size(mine.fillers) - replay.breadth_first
    if spared > 0:
        wake_idle(rest_cells, spared)


@inlined
def open_node(later, rest_cells, iteration, index):
    """Note that a node of `later` ran and is not known to be complete. If threads are parked, one shall poll."""
    store_release(address_of(later.open, index * later.open.shape[1]), 1)
    if load_relaxed(rest_cells + PARKED) < OPEN:
        store_relaxed(rest_cells + AWAITED, iteration * OPS + later.held[index, NAME])
    fetch_add(rest_cells + PARKED, OPEN)
    wake_idle(rest_cells, 1)


@inlined
def awaited(rest_cells):
    """Step * OPS + op of the first open node, or -1 if none is open."""
    return load_relaxed(rest_cells + AWAITED) if load_relaxed(rest_cells + PARKED) >= OPEN else -1


@runtime
def poll(thread, tasks, context, record, replay, later, mine, rest_cells):
    """Poll the open nodes, unless another thread does. Release the successors of those that are complete."""
    if load_relaxed(rest_cells + POLLING) != 0 or not compare_exchange(rest_cells + POLLING, 0, 1):
        return
    first = -1
    for index in range(later.node.shape[0]):
        is_open, node = address_of(later.open, index * later.open.shape[1]), later.node[index]
        if load_acquire(is_open) == 0:
            continue
        context[thread, STEP], context[thread, COMPLETE] = replay.iteration[node], 0
        call_entry(
            later.held[index, POLL], later.held[index, ON], tasks[later.task[index], TILE],
            address_of(context, thread * context.shape[1]),
        )  # fmt: skip
        if context[thread, COMPLETE] != 0:
            note_completed(record, index, replay.iteration[node])
            store_relaxed(is_open, 0)
            fetch_add(rest_cells + PARKED, -OPEN)
            following = release(replay, mine, node, replay.iteration[node])
            if following != EMPTY:
                push(mine.urgent, mine.mask, following)
        elif first < 0:
            first = replay.iteration[node] * OPS + later.held[index, NAME]
    if first >= 0:
        store_relaxed(rest_cells + AWAITED, first)
    wake_for(replay, mine, rest_cells)
    store_relaxed(rest_cells + POLLED, ticks())
    store_release(rest_cells + POLLING, 0)


@inlined
def wake_idle(rest_cells, count):
    """Wake at most `count` parked threads, if there are any. One that is about to park meanwhile sees what is ready."""
    if load_relaxed(rest_cells + PARKED) & (OPEN - 1) != 0:
        fetch_add(rest_cells + WAKES, 1)
        wake(rest_cells + WAKES, count)


@inlined
def rest(deques, rest_cells, finished):
    """Park this thread until it is woken, unless a node is ready or open or nothing is left to run."""
    wakes = announce(rest_cells)
    if not (load_acquire(finished) or any_ready(deques) or load_acquire(rest_cells + PARKED) >= OPEN):
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
        bound, wanted = self.job.bound, (stage.first, list(stage.cost_s))
        if self.flat is None or self.flat_of != wanted:
            cost = [0.0 if number == WAIT else wanted[1][number] for number in self.job.graph.task]
            policy = self.job.options.get("policy", "breadth-first")
            self.flat, self.flat_of = replays.flatten(self.job.graph, cost, policy, stage.first, bound.later), wanted
        self.running = replays.copy(self.flat)
        deques = new_deques(len(self.job.cores), len(self.job.graph))
        idle = Idle(np.zeros(IDLE_CELLS, np.int64), spin_ticks(self.job.cores), round(POLL_S * ticks_per_s()))
        return task_loop, [self.running, replays.later(self.job.graph, bound.later, bound.held), deques, idle]

    def tasks(self) -> NDArray[np.int64]:
        return self.job.bound.started

    def stuck(self) -> list[str]:
        """The waiting tasks, and the predecessors of each that have not run."""
        if self.running is None:
            return []
        label = self.job.graph.label
        waiting = replays.waiting(self.running, self.job.graph)
        return [f"'{label[n]}' waits on " + ", ".join(f"'{label[p]}'" for p in on) for n, on in waiting]
