"""The runtime without GPT-2: deque, barrier and executor under threads, on toy programs with stamped tasks."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpt2core.compile import atomics, clock
from gpt2core.compile.jit import address_of, kernel, runtime
from gpt2core.compile.parking import register
from gpt2core.run import train
from gpt2core.schedulers import waiting
from gpt2core.schedulers.task import replay
from gpt2core.schedulers.task.deque import EMPTY, new_deques, push, steal, take
from gpt2core.schedulers.task.loop import IDLE_CELLS, PARKED, announce, any_ready
from gpt2core.schedulers.team import Team
from gpt2core.schedulers.waiting import BARRIER_CELLS, barrier, spin_ticks, ticks_per_s
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import Stalled
from gpt2core.spec.fields import SYNCS
from gpt2core.spec.models import model_from
from gpt2core.step import graph
from gpt2core.step.builder import Builder
from gpt2core.step.control import CELLS, STEPS_DONE, STOP
from gpt2core.step.grid import Grid
from gpt2core.step.memory import Memory
from gpt2core.step.ops import Program, Reduce, Tensor, Update
from gpt2core.step.signature import Int64s, Scalar, Step, TileInt
from gpt2core.step.tensors import TensorSpec, plan_arena
from tests.support.patience import DEADLINE_S
from tests.support.stages import run_program
from tests.support.toys import toy, wide

ITEMS = 20_000
WAIT_S = 0.3


def run_tasks(step: Program, memory: Memory, sync: str, threads: int, steps: int) -> None:
    """Run a program by its graph; threads park nearly at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(waiting, "SPIN_S", 2e-8)
        patch.setattr(waiting, "SPIN_OVERSUBSCRIBED_S", 2e-8)
        run_program(step, memory, "task", [i % 2 for i in range(threads)], steps, sync)


@pytest.mark.parametrize("examples", [8, pytest.param(40, marks=pytest.mark.slow)])
def test_no_task_runs_before_its_inputs(examples):
    """Random graphs with random delays run for 50 iterations. Each task finds its inputs stamped with its iteration."""

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.integers(1, 40), st.integers(0, 2**32), st.sampled_from(SYNCS), st.sampled_from([1, 2, 3, 8]))
    def check(size, seed, sync, threads):
        inputs_come_first(size, seed, sync, threads)

    check()


def inputs_come_first(size, seed, sync, threads):
    rng = random.Random(seed)
    inputs = [sorted(rng.sample(range(i), min(i, rng.randrange(4)))) for i in range(size)]
    step, memory = toy(inputs, [rng.choice([0, 0, 0, 200]) for _ in range(size)])
    run_tasks(step, memory, sync, threads, 50)
    assert memory.arrays["violations"].sum() == 0
    assert (memory.arrays["stamps"] == 50).all()
    assert memory.arrays["control"][STEPS_DONE] == 50


def test_fillers_run_last_and_the_oldest_first():
    step, memory = toy([[], [0], [1], [0], [1], [2]], [0] * 6)  # each task of the chain 0, 1, 2 releases a filler
    ops = tuple(dataclasses.replace(op, filler=number > 2) for number, op in enumerate(step.ops))
    record = run_program(dataclasses.replace(step, ops=ops), memory, "task", [0], 2, events=100)
    ran = [int(event[0]) for event in record.events[0, : record.event_count[0, 0]] if event[0] >= 0]
    assert ran == 2 * [0, 1, 2, 3, 4, 5]


def test_the_stamps_catch_a_graph_without_an_edge():
    """The check above can fail: it detects a missing edge of a chain."""
    step, memory = toy([[], [0], [1]], [20_000, 0, 0])
    tasks = graph.build(step, "step")
    broken = dataclasses.replace(tasks, edges=(*(e for e in tasks.edges if e != (1, 2)), (0, 2)))
    run_program(step, memory, "task", [0, 1], 20, tasks=broken)
    assert memory.arrays["violations"].sum() > 0


@pytest.mark.parametrize("sync", SYNCS)
def test_a_stop_ends_at_an_iterations_boundary(sync):
    step, memory = toy([[], [0], [0], [1, 2]], [0, 50, 0, 0])
    control = memory.arrays["control"]
    control[STOP] = 1
    run_tasks(step, memory, sync, 2, 1000)
    done = int(control[STEPS_DONE])
    assert done == 1
    assert (memory.arrays["stamps"] == done).all()


@runtime
def share(thread, deque, mask, taken, counts, start):
    """Thread 0 pushes ITEMS numbers and takes some back; the others steal until all are accounted for."""
    base, total, begun = address_of(deque, 0), address_of(counts, 0), address_of(start, 0)
    if thread == 0:
        atomics.store_release(begun, 1)
        for number in range(ITEMS):
            push(base, mask, number)
            if number % 3 == 0:
                got = take(base, mask)
                if got != EMPTY:
                    taken[got] += 1
                    atomics.fetch_add(total, 1)
        while True:
            got = take(base, mask)
            if got == EMPTY:
                break
            taken[got] += 1
            atomics.fetch_add(total, 1)
    while atomics.load_acquire(total) < ITEMS:
        got = steal(base, mask)
        if got == EMPTY:
            atomics.yield_core()
        else:
            taken[got] += 1
            atomics.fetch_add(total, 1)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_a_deque_gives_each_item_once(threads):
    deques, mask = new_deques(1, ITEMS)
    taken, counts = np.zeros(ITEMS, np.int64), np.zeros(8, np.int64)
    Team([i % 2 for i in range(threads)]).run(share, [deques, mask, taken, counts, np.zeros(8, np.int64)])
    assert (taken == 1).all()


@runtime
def push_or_rest(thread, deques, mask, idle, cells, outcome, rounds, spin, fenced):
    """In each round, thread 0 pushes a node and looks for parked threads, while thread 1 is about to park and looks for
    nodes. outcome[0, round]: what 0 saw, outcome[1, round]: what 1 saw."""
    own, rest_cells = address_of(deques, 0), address_of(idle, 0)
    for number in range(rounds):
        barrier(address_of(cells, 0), 2, spin)
        if thread == 0:
            push(own, mask, 0)
            outcome[0, number] = atomics.load_relaxed(rest_cells + PARKED)
        else:
            if fenced:
                announce(rest_cells)
            else:  # a fence of this thread alone
                atomics.fetch_add(rest_cells + PARKED, 1)
                atomics.fence()
            outcome[1, number] = any_ready(deques)
        barrier(address_of(cells, 0), 2, spin)
        if thread == 0:
            take(own, mask)
        else:
            atomics.fetch_add(rest_cells + PARKED, -1)


def lost_wakeups(rounds: int, fenced: int) -> int:
    """Rounds in which a thread would have parked though a node was ready and nobody would have woken it."""
    register()
    (deques, mask), idle = new_deques(1, 8), np.zeros(IDLE_CELLS, np.int64)
    outcome = np.zeros((2, rounds), np.int64)
    cells, usable = np.zeros(BARRIER_CELLS, np.int64), sorted(os.sched_getaffinity(0))
    cores = [usable[0], usable[-1]]
    Team(cores).run(push_or_rest, [deques, mask, idle, cells, outcome, rounds, spin_ticks(cores), fenced])
    return int((outcome == 0).all(axis=0).sum())


def test_no_wake_up_is_lost_when_a_thread_is_about_to_park():
    assert lost_wakeups(20_000, fenced=1) == 0


@runtime
def phases(thread, cells, seen, threads, rounds, spin):
    """In each round, every thread writes the round, waits at a barrier and checks that all have written it."""
    base = address_of(cells, 0)
    for round_number in range(1, rounds + 1):
        seen[thread * 8] = round_number
        barrier(base, threads, spin)
        for other in range(threads):
            if seen[other * 8] < round_number:
                seen[thread * 8 + 1] += 1
        barrier(base, threads, spin)


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_nobody_passes_a_barrier_before_all_have_come(threads):
    seen = np.zeros(threads * 8, np.int64)
    Team([i % 2 for i in range(threads)]).run(phases, [np.zeros(BARRIER_CELLS, np.int64), seen, threads, 500, 50])
    assert (seen[0::8] == 500).all()
    assert (seen[1::8] == 0).all()


@runtime
def late_leader(thread, cells, threads, spin, leave):
    """Thread 0 reaches the barrier once `leave` is set."""
    if thread == 0:
        while atomics.load_acquire(address_of(leave, 0)) == 0:
            atomics.pause()
    barrier(address_of(cells, 0), threads, spin)


def used_s(leave: np.ndarray) -> tuple[list[float], dict[str, Any]]:
    """A list for the CPU times of two threads, and the arguments by which `Team.run` fills it and sets `leave` after
    WAIT_S."""
    seconds, watched = [0.0] * 2, []

    @contextlib.contextmanager
    def inside(thread: int) -> Iterator[None]:
        before = time.thread_time()
        yield
        seconds[thread] = time.thread_time() - before

    def watch() -> None:
        watched.append(time.monotonic())
        if watched[-1] - watched[0] > WAIT_S:
            leave[0] = 1

    return seconds, {"watch": watch, "inside": inside}


def at_best(once: Callable[[], float]) -> float:
    """The least of up to five values: a system may charge a thread for what the hypervisor takes while it spins."""
    found: list[float] = []
    while len(found) < 5 and (not found or min(found) >= WAIT_S / 6):
        found.append(once())
    return min(found)


def test_a_thread_that_waits_long_at_a_barrier_gives_its_core_away():
    def once() -> float:
        cells, leave = np.zeros(BARRIER_CELLS, np.int64), np.zeros(8, np.int64)
        seconds, how = used_s(leave)
        Team([0, 1]).run(late_leader, [cells, 2, spin_ticks([0, 1]), leave], **how)
        return seconds[1]

    assert at_best(once) < WAIT_S / 6


@kernel
def until(leave: Int64s):
    """Run until the first cell of `leave` (any,) is set, which it may write."""
    while atomics.load_acquire(address_of(leave, 0)) == 0:
        atomics.pause()


def test_a_thread_for_which_no_task_is_ready_gives_its_core_away():
    specs = [TensorSpec("control", (CELLS,), "int64"), TensorSpec("leave", (8,), "int64")]
    plans = {"temporary": plan_arena(specs)}
    memory, builder = Memory(plans), Builder(plans)
    builder.op("until", "forward", until, Grid(("",)), [(1, 1)], leave=Update(Tensor("leave")))
    step = builder.build()

    def once() -> float:
        memory.arrays["leave"][0] = 0
        memory.arrays["control"][:] = 0
        seconds, how = used_s(memory.arrays["leave"])
        run_program(step, memory, "task", [0, 1], 1, **how)
        return min(seconds)

    assert at_best(once) < WAIT_S / 6


def test_threads_spin_for_tens_of_microseconds_by_the_clock_whatever_a_pause_takes():
    assert 20e-6 < spin_ticks([0, 1]) / ticks_per_s() < 100e-6
    assert spin_ticks([0, 0]) < spin_ticks([0, 1])
    before, first, begun = time.monotonic_ns(), clock.read_ticks(), time.monotonic_ns()
    time.sleep(0.2)
    ended, last, after = time.monotonic_ns(), clock.read_ticks(), time.monotonic_ns()
    ticked_ns = (last - first) / ticks_per_s() * 1e9
    assert 0.95 * (ended - begun) < ticked_ns < 1.05 * (after - before)  # a thread may be preempted between two reads


@pytest.mark.parametrize("dynamic", [False, True])
def test_fork_join_runs_every_tile_of_an_op_before_the_next_op(dynamic):
    inputs: list[list[int]] = [[] for _ in range(7)] + [list(range(7)) for _ in range(5)]
    step, memory = toy(inputs, [300 if i % 3 == 0 else 0 for i in range(12)])
    assignment = "dynamic" if dynamic else "static"
    run_program(wide(step, slice(7), slice(7, None)), memory, "fork-join", [0, 1, 0], 30, assignment=assignment)
    assert memory.arrays["violations"].sum() == 0
    assert (memory.arrays["stamps"] == 30).all()


@kernel
def lead(control: Int64s, seen: Int64s, last: Scalar, step: Step, number: TileInt):
    """One of two tiles. The first, on thread 0, lets the second reach the barrier first; in the last step it sets STOP.

    Writes:   control (CELLS,), seen (any,): how many steps the second tile has begun
    """
    begun = address_of(seen, 0)
    if number == 1:
        atomics.store_release(begun, step + 1)
    elif step == last:
        control[STOP] = 1
    else:
        while atomics.load_acquire(begun) <= step:
            atomics.yield_core()
        for _ in range(100):
            atomics.yield_core()


def test_fork_join_stops_though_a_thread_reads_the_decision_late():
    """One op, both threads on one core: thread 0 decides to stop before thread 1 has left the previous barrier."""
    specs = [TensorSpec("control", (CELLS,), "int64"), TensorSpec("seen", (8,), "int64")]
    plans, last = {"temporary": plan_arena(specs)}, 20
    memory, builder = Memory(plans), Builder(plans)
    builder.op(
        "lead", "forward", lead, Grid(("0", "1"), {"number": (0, 1)}), [(1, 1)] * 2,
        control=Reduce(Tensor("control")), seen=Reduce(Tensor("seen")), last=last,
    )  # fmt: skip
    control = memory.arrays["control"]
    deadline = time.monotonic() + DEADLINE_S

    def watch() -> None:
        if time.monotonic() > deadline:
            raise Stalled(f"threads hang after {control[STEPS_DONE]} steps")

    run_program(builder.build(), memory, "fork-join", [0, 0], 100, watch=watch)
    assert control[STEPS_DONE] == last + 1


def test_a_stall_names_who_waits_on_whom(monkeypatch):
    """A task that waits for one predecessor too many never runs. The watchdog reports the deadlock."""
    monkeypatch.setenv("TASKLOOM_STALL_S", "0.5")
    flatten = replay.flatten

    def with_one_too_many(tasks: graph.Graph, *arguments: Any) -> replay.Replay:
        flat = flatten(tasks, *arguments)
        node = tasks.label.index("attention[0] s0")
        flat.predecessors[node] += 1
        flat.pending[node, :2] += 1
        return flat

    monkeypatch.setattr(replay, "flatten", with_one_too_many)
    config = TrainConfig(model=model_from("tiny"), batch=1, seq=8, steps=2, warmup=0, threads=2, data="synthetic")
    with pytest.raises(
        Stalled,
        match=r"no task has ended for 0.5 s; 'projection\+residual\+layernorm\[0\] s0' waits on 'attention\[0\] s0'",
    ):
        train.train(config)


def test_a_failing_watch_is_called_on_and_its_first_failure_is_raised():
    calls: list[int] = []
    enough = threading.Event()
    came: list[bool] = []

    def watch() -> None:
        calls.append(len(calls))
        if len(calls) == 3:
            enough.set()
        raise RuntimeError(f"call {len(calls)}")

    with pytest.raises(RuntimeError, match="call 1"):
        Team([0]).run(lambda _: came.append(enough.wait(DEADLINE_S)), [], watch, period_s=0.001)
    assert came == [True]


@pytest.mark.parametrize("scheduler", ["serial", "fork-join", "task"])
def test_a_run_that_cannot_be_watched_ends_with_its_step(scheduler):
    steps = 100_000
    config = TrainConfig(
        model=model_from("tiny"), batch=1, seq=2, steps=steps, warmup=0, scheduler=scheduler, data="synthetic"
    )
    seen = []

    def emit(event: dict[str, Any]) -> None:
        seen.append(event)
        if event["event"] == "step":
            raise OSError("nobody listens")

    with pytest.raises(OSError, match="nobody listens"):
        train.train(config, emit)
    assert seen[-1]["step"] < steps / 2


def test_a_failing_thread_fails_the_run():
    def fail(thread: int) -> None:
        if thread == 1:
            raise RuntimeError("thread 1 broke")

    with pytest.raises(RuntimeError, match="thread 1 broke"):
        Team([0, 1]).run(fail, [])
