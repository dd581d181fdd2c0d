"""Tasks that are complete only after they ran: a toy op that starts something, which arrives some polls later."""

from __future__ import annotations

import dataclasses
import os

import numpy as np
import pytest

from gpt2core.compile import clock
from gpt2core.compile.jit import kernel
from gpt2core.node import openmp
from gpt2core.schedulers import dispatch
from gpt2core.spec import schedulers
from gpt2core.spec.errors import GraphError
from gpt2core.spec.fields import SYNCS
from gpt2core.step import graph
from gpt2core.step.builder import Builder
from gpt2core.step.control import CELLS
from gpt2core.step.grid import Grid
from gpt2core.step.memory import Memory
from gpt2core.step.ops import Program, Read, Tensor, Update, Write
from gpt2core.step.signature import Complete, Float64s, Int64s, Step, TileInt
from gpt2core.step.tensors import TensorSpec, plan_arena
from tests.support.apart import processes
from tests.support.stages import run_program

ROUNDS, WIDTH, STEPS = 4, 3, 20
CORES = sorted(os.sched_getaffinity(0))
ON_OPENMP = [name for name in schedulers.SCHEDULERS if "runtime" in schedulers.scheduler(name).options]
OURS = [("serial", 1), *((name, threads) for name in ("fork-join", "task") for threads in (1, 2))]


@kernel
def make(value: Float64s, before: Float64s, step: Step, number: TileInt):
    """Compute value `number` from what has arrived before it."""
    value[number] = 0.5 * before[number] + 1.0 / (1 + number + step)


@kernel
def depart(arrived: Float64s, value: Float64s, left: Int64s, polls: Int64s, number: TileInt):  # noqa: ARG001
    """Start the transfer of value `number`, which takes some polls."""
    left[number] = polls[number]


@kernel
def is_here(
    arrived: Float64s, value: Float64s, left: Int64s, polls: Int64s, number: TileInt,  # noqa: ARG001
) -> Complete:  # fmt: skip
    """Make progress. With the last poll the value arrives."""
    left[number] -= 1
    if left[number] == 0:
        arrived[number] = value[number]
    return left[number] == 0


def rows(count: int) -> Grid:
    return Grid(tuple(map(str, range(count)))).with_columns(number=range(count))


def relay(waits: bool = True) -> tuple[Program, Memory]:
    """Rounds of values: each is computed from what arrived in the round before, and sent."""
    constant = ("polls",)
    shapes = {"control": (CELLS,), "polls": (WIDTH,), **{f"left{i}": (WIDTH,) for i in range(ROUNDS)}}
    specs = [TensorSpec(name, shape, "int64", constant=name in constant) for name, shape in shapes.items()]
    for i in range(ROUNDS):
        specs += [TensorSpec(f"{name}{i}", (WIDTH,), "float64") for name in ("value", "arrived")]
    plans = {"temporary": plan_arena(specs)}
    step, grid, cost = Builder(plans), rows(WIDTH), [(1, 1)] * WIDTH
    for i in range(ROUNDS):
        step.op(
            "make", "forward", make, grid, cost, i,
            value=Write(Tensor(f"value{i}"), "number"), before=Read(Tensor(f"arrived{(i - 1) % ROUNDS}"), "number"),
        )  # fmt: skip
        step.op(
            "depart", "forward", depart, grid, cost, i, arrived=Write(Tensor(f"arrived{i}"), "number"),
            value=Read(Tensor(f"value{i}"), "number"), left=Write(Tensor(f"left{i}"), "number"),
            polls=Read(Tensor("polls"), "number"),
        )  # fmt: skip
        if waits:
            step.complete_when(is_here)
    memory = Memory(plans)
    memory.arrays["polls"][:] = [1, 7, 300]
    return step.build(), memory


def expected() -> np.ndarray:
    """What arrives in the last round, computed without tasks."""
    arrived = np.zeros(WIDTH)
    for step in range(STEPS):
        for _ in range(ROUNDS):
            arrived = 0.5 * arrived + 1.0 / (1 + np.arange(WIDTH) + step)
    return arrived


def relayed(scheduler: str, cores: list[int], sync: str) -> tuple[bytes, int]:
    """What arrives in the last round, and how many polls are left."""
    step, memory = relay()
    run_program(step, memory, scheduler, cores, STEPS, sync)
    left = [int(memory.arrays[f"left{i}"].sum()) for i in range(ROUNDS)]
    return memory.arrays[f"arrived{ROUNDS - 1}"].tobytes(), sum(left)


def test_every_scheduler_is_covered():
    assert {name for name, _ in OURS} | set(ON_OPENMP) == set(schedulers.SCHEDULERS)


@pytest.mark.parametrize("sync", SYNCS)
@pytest.mark.parametrize(("scheduler", "threads"), OURS)
def test_what_depends_on_a_task_runs_when_it_is_complete(scheduler, threads, sync):
    assert relayed(scheduler, CORES[:1] * threads, sync) == (expected().tobytes(), 0)


@pytest.mark.skipif(not openmp.find(), reason="no OpenMP runtime on this node")
def test_what_depends_on_a_task_runs_when_it_is_complete_under_openmp():
    with processes() as apart:
        for scheduler in ON_OPENMP:
            for sync in SYNCS:
                found = apart("openmp", relayed, scheduler, CORES[:2], sync)
                assert found == (expected().tobytes(), 0), (scheduler, sync)


@pytest.mark.parametrize("policy", ["breadth-first", "critical-path", "program-order"])
def test_every_policy_of_task_waits(policy):
    step, memory = relay()
    run_program(step, memory, "task", CORES[:1] * 2, STEPS, "none", policy=policy)
    assert memory.arrays[f"arrived{ROUNDS - 1}"].tobytes() == expected().tobytes()


@pytest.mark.parametrize("threads", [1, 2])
def test_the_time_without_a_ready_task_while_one_is_open_is_noted(threads):
    """The slowest value of a round takes 300 polls, for which nothing else is ready."""
    step, memory = relay()
    begin = clock.read_ticks()
    record = run_program(step, memory, "task", CORES[:1] * threads, STEPS)
    assert record.exposed.shape == (threads, STEPS, 1)
    assert (record.exposed >= 0).all()
    assert (record.exposed.sum(axis=0)[:, 0] > 0).all()
    assert (record.exposed.sum(axis=(1, 2)) <= clock.read_ticks() - begin).all()
    plain, memory = relay(waits=False)
    assert run_program(plain, memory, "task", CORES[:1], STEPS).exposed.size == 0


def test_without_the_second_moment_the_values_are_wrong():
    """The checks above can fail: tasks that release their successors when they ran give other bits."""
    step, memory = relay(waits=False)
    run_program(step, memory, "task", CORES[:1], STEPS)
    assert memory.arrays[f"arrived{ROUNDS - 1}"].tobytes() != expected().tobytes()


def test_the_proof_covers_what_a_task_starts():
    """What arrives after a task ran is among its accesses, so a graph without the order of its reader is refused."""
    step, _ = relay()
    tasks = graph.build(step, "step")
    graph.validate(step, tasks)
    made, sent, reader = (tasks.label.index(f"{name} 0") for name in ("make[0]", "depart[0]", "make[1]"))
    edges = (*(each for each in tasks.edges if each != (sent, reader)), (made, reader), (sent, tasks.end))
    with pytest.raises(GraphError, match=r"'depart\[0\] 0' before 'make\[1\] 0'.*arrived0"):
        graph.validate(step, dataclasses.replace(tasks, edges=edges))


def test_only_tasks_with_a_second_moment_hold_their_threads():
    step, memory = relay()
    bound = dispatch.bind(step, memory, 1)
    assert [step.tasks[number][0].label for number in bound.later[::WIDTH]] == [f"depart[{i}]" for i in range(ROUNDS)]
    assert (bound.started != bound.tasks).any(axis=1).nonzero()[0].tolist() == list(bound.later)
    plain, memory = relay(waits=False)
    bound = dispatch.bind(plain, memory, 1)
    assert not bound.later
    assert bound.started is bound.tasks


def test_a_poll_takes_the_parameters_of_its_op():
    step = Builder({"temporary": plan_arena([TensorSpec("value0", (WIDTH,), "float64")])})
    step.op(
        "make", "forward", make, rows(WIDTH), [(1, 1)] * WIDTH,
        value=Write(Tensor("value0"), "number"), before=Read(Tensor("value0"), "number"),
    )  # fmt: skip
    with pytest.raises(TypeError, match="make: is_here should take the parameters of make and return Complete"):
        step.complete_when(is_here)
    with pytest.raises(TypeError, match="make: make should take the parameters of make and return Complete"):
        step.complete_when(make)


def test_an_op_with_two_moments_is_not_fused():
    plans = {"temporary": plan_arena([TensorSpec(name, (WIDTH,), "float64") for name in ("arrived", "value")]
             + [TensorSpec(name, (WIDTH,), "int64") for name in ("left", "polls")])}  # fmt: skip
    step = Builder(plans, "all")
    for _ in range(2):
        step.op(
            "depart", "forward", depart, rows(WIDTH), [(1, 1)] * WIDTH,
            arrived=Write(Tensor("arrived"), "number"), value=Read(Tensor("value"), "number"),
            left=Update(Tensor("left"), "number"), polls=Read(Tensor("polls"), "number"),
        )  # fmt: skip
        step.complete_when(is_here)
    with pytest.raises(GraphError, match="depart cannot be fused"):
        step.fuse(2)


@pytest.mark.parametrize("sync", SYNCS)
def test_when_a_task_was_complete_is_noted(sync):
    step, memory = relay()
    begin = clock.read_ticks()
    record = run_program(step, memory, "task", CORES[:1] * 2, STEPS, sync)
    assert record.completed.shape == (ROUNDS * WIDTH, STEPS)
    rounds = record.completed.reshape(ROUNDS, WIDTH, STEPS)
    assert (rounds > begin).all()
    assert (np.diff(rounds, axis=0) > 0).all()  # each value needs the one of the round before
    assert (rounds.max(axis=(0, 1)) <= record.step_end).all()
