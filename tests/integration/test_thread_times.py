"""Shares of the threads' time, in programs whose shares are known."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any

import pytest

from gpt2core.compile.jit import Function, runtime
from gpt2core.measure.tracing import APART, BARRIER, LAST_BEGIN, STARVATION, Record, new_record, note_wait, pass_wait
from gpt2core.run import train
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.fields import SYNCS
from gpt2core.spec.models import model_from
from tests.support.patience import until
from tests.support.present import present
from tests.support.stages import run_program
from tests.support.toys import toy, wide

SMALL = TrainConfig(
    model=model_from("tiny"), batch=4, seq=32, steps=12, warmup=2, token_slice=16, data="synthetic", threads=2
)
LONG = 20_000  # pauses of a task: far longer than everything else
STEPS = 20
Shares = tuple[float, float, float, float]  # of a thread's time: busy, barrier, starvation, apart
VARIANTS = [("serial", "step"), ("fork-join", "step"), *(("task", sync) for sync in SYNCS)]


def shares_of(record: Record) -> list[Shares]:
    """Each thread's shares."""
    elapsed = int(record.step_end[-1] - record.begin[0])
    waited = record.waited / elapsed
    busy = record.op_time.sum(axis=1) / elapsed
    return [
        (float(b), float(w[BARRIER]), float(w[STARVATION]), float(w[APART])) for b, w in zip(busy, waited, strict=True)
    ]


def total(found: list[Shares]) -> tuple[float, ...]:
    """The sum over the threads of each share: at most 2 on two threads."""
    return tuple(map(sum, zip(*found, strict=True)))


def run_graph(inputs: list[list[int]], sync: str) -> list[Shares]:
    step, memory = toy(inputs, [LONG] * len(inputs))
    return shares_of(run_program(step, memory, "task", [0, 1], STEPS, sync))


def run_one_op(tiles: int, threads: int, dynamic: bool = False) -> list[Shares]:
    step, memory = toy([[] for _ in range(tiles)], [LONG] * tiles)
    how: dict[str, Any] = {"op_threads": {"stamp": threads}, "assignment": "dynamic" if dynamic else "static"}
    return shares_of(run_program(wide(step, slice(None)), memory, "fork-join", [0, 1], STEPS, **how))


@pytest.fixture(autouse=True, scope="module")
def compiled() -> None:
    """Compile what these tests run before one of them makes the other process wait."""
    run_graph([[]], "step")
    for dynamic in (False, True):
        run_one_op(1, 2, dynamic)


def until_seen(shares: Callable[[], list[Shares]], holds: Callable[[list[Shares]], bool]) -> None:
    """Measure until the shares are as expected: if another process uses a thread's core, they differ."""
    until(lambda: holds(shares()), "a run that nothing disturbed")


@pytest.mark.alone
def test_a_chain_starves_all_threads_but_one():
    """Four tasks in a chain: one of two threads always starves, except during the last task."""

    def starves(found):
        _, barrier, starved, _ = total(found)
        return starved > 0.5 and starved > barrier

    until_seen(lambda: run_graph([[], [0], [1], [2]], "step"), starves)


@pytest.mark.alone
def test_an_odd_task_before_a_wait_is_a_barrier_wait():
    """Three equal tasks, then a wait: one thread has no task for half of each step."""
    until_seen(lambda: run_graph([[], [], []], "step"), lambda found: total(found)[1] > 0.4)


@pytest.mark.alone
def test_fork_join_tells_imbalance_from_too_few_tiles():
    def imbalanced(found):
        _, barrier, starved, _ = total(found)
        assert starved == 0
        return barrier > 0.4

    def too_few(found):
        (_, first_barrier, first_starved, _), (_, _, second_starved, _) = found  # the second thread has the tile
        assert first_barrier == second_starved == 0
        return first_starved > 0.5

    until_seen(lambda: run_one_op(3, 2), imbalanced)
    until_seen(lambda: run_one_op(1, 2), too_few)


@pytest.mark.alone
def test_a_thread_that_got_no_ticket_starved():
    def starves(found):
        _, _, starved, apart = total(found)
        assert apart == 0
        return starved > 0.5

    until_seen(lambda: run_one_op(1, 2, dynamic=True), starves)


@pytest.mark.alone
def test_a_thread_left_out_of_an_op_is_idle():
    def idle(found):
        (_, _, starved, first), (busy, *waited, apart) = found
        assert first == busy == starved == sum(waited) == 0
        return apart > 0.5

    until_seen(lambda: run_one_op(2, 1), idle)


@runtime
def waits(record, passed, thread, since, now):
    """The record of a thread for a wait passed at `passed`, and then for its own wait from `since` to `now`."""
    pass_wait(record, passed)
    return note_wait(record, thread, since, now)


@pytest.mark.parametrize(
    ("since", "until", "starved", "barrier"),
    [
        (150, 190, 30, 10),  # a task began at 180, the wait was passed at 190
        (185, 190, 0, 5),
        (50, 190, 80, 10),  # the run began at 100: waiting before that does not belong to it
        (195, 195, 0, 0),
    ],
)
def test_a_wait_is_starvation_until_the_last_task_has_begun(since, until, starved, barrier):
    record = new_record(2, 1, 0, 1, 0)
    record.begin[0] = 100
    record.waited[:, LAST_BEGIN] = 120, 180
    assert waits(record, 190, 1, since, 200) == until
    assert record.waited[1, [STARVATION, BARRIER]].tolist() == [starved, barrier]


@pytest.mark.parametrize(("scheduler", "sync"), VARIANTS)
def test_a_threads_times_add_up_to_the_timed_steps(scheduler, sync):
    threads = 1 if scheduler == "serial" else 2
    result = train.train(dataclasses.replace(SMALL, scheduler=scheduler, sync=sync, threads=threads))
    elapsed_s = math.fsum(result.step_s[2:])
    assert len(result.threads) == threads
    for thread in result.threads:
        assert thread.waiting_s == thread.barrier_s + thread.starvation_s
        total_s = thread.useful_s + present(thread.scheduling_s) + thread.waiting_s + thread.idle_s
        assert total_s == pytest.approx(elapsed_s, rel=1e-12)
        times_s = (thread.useful_s, thread.scheduling_s, thread.barrier_s, thread.starvation_s, thread.idle_s)
        assert min(map(present, times_s)) >= 0
        assert sum(thread.phase_useful_s.values()) == pytest.approx(thread.useful_s, rel=1e-9)
    assert sum(op.time_s for op in result.ops) == pytest.approx(sum(t.useful_s for t in result.threads), rel=1e-9)
    if threads == 1:
        assert result.threads[0].waiting_s == 0


def test_a_thread_that_enters_after_the_last_step_was_apart_for_all_of_them(monkeypatch):
    ready = Function.ready

    def ready_late(function: Any, *arguments: Any) -> Callable[[], Any]:
        call = ready(function, *arguments)
        late = function.__name__ == "task_loop" and arguments[0] == 1
        return (lambda: (time.sleep(0.5), call())) if late else call

    monkeypatch.setattr(Function, "ready", ready_late)
    result = train.train(dataclasses.replace(SMALL, scheduler="task"))
    elapsed_s = sum(result.step_s[2:])
    for thread in result.threads:
        assert thread.useful_s + thread.waiting_s + thread.idle_s <= elapsed_s * (1 + 1e-9)
        assert present(thread.scheduling_s) >= -1e-9
    assert result.threads[1].calls > 0 or result.threads[1].idle_s == pytest.approx(elapsed_s)
