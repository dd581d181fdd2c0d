"""OpenMP runtimes run our graphs in the right order and give the same bits.

Each runtime and number of threads has its own process, because a runtime reads its settings once.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gpt2core.node import openmp
from gpt2core.run import canary, prepare, train
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.fields import POLICIES, SYNCS
from gpt2core.spec.models import ModelConfig
from gpt2core.spec.result import TrainResult
from gpt2core.spec.schedulers import RUNTIMES
from gpt2core.step import graph
from gpt2core.step.ops import Mode
from tests.support.apart import Apart, processes
from tests.support.stages import run_program
from tests.support.toys import toy, wide

CORES = sorted(os.sched_getaffinity(0))
SMALL = TrainConfig(
    model=ModelConfig(layers=2, heads=2, channels=32, vocab=61, context=16),
    batch=3, seq=10, steps=4, warmup=1, lr=1e-2, batch_slice=2, token_slice=4, data="synthetic",
    scheduler="serial", allow_oversubscription=True,
)  # fmt: skip
ORDERS: list[dict[str, Any]] = [
    {"scheduler": "omp-for"},
    {"scheduler": "omp-for", "assignment": "dynamic"},
    *({"scheduler": "omp-task", "sync": sync} for sync in SYNCS),
    *({"scheduler": "omp-task", "sync": "none", "policy": policy} for policy in POLICIES[1:]),
]
FREEST = [{"scheduler": "omp-for", "assignment": "dynamic"}, {"scheduler": "omp-task", "sync": "none"}]
KINDS: list[dict[str, Any]] = [
    {"fusion": "all"}, {"fusion": "none"}, {"grad_accum": 3}, {"grad_accum": 2, "grad_clip": 0.5},
]  # fmt: skip

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("threads", [1, 2, 3, 8])]
# CI installs all three runtimes, and fails if a test is skipped.
runtimes = pytest.mark.parametrize(
    "runtime",
    [pytest.param(each, marks=pytest.mark.skipif(each not in openmp.find(), reason="not on this node"))
     for each in RUNTIMES],
)  # fmt: skip


@functools.cache
def planned(config: TrainConfig, *rest: Any) -> prepare.RunPlan:
    return prepare.plan(config, *rest)


@functools.cache
def serially(config: TrainConfig) -> tuple[Any, ...]:
    """Losses and weights under `serial`."""
    return outcomes([config])[0][:2]


@pytest.fixture(scope="module")
def apart() -> Iterator[Apart]:
    with processes() as call:
        yield call


def outcomes(configs: list[TrainConfig], stress: str = "") -> list[tuple[Any, ...]]:
    """Losses, weights and threads' cores of each run. Plans are cached, because planning takes longer than a run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TASKLOOM_STRESS", stress)
        patch.setattr(canary, "UNAVAILABLE", "bits are compared, not times")
        patch.setattr(train, "plan", planned)
        return [outcome(train.train(config)) for config in configs]


def outcome(result: TrainResult) -> tuple[Any, ...]:
    where = [(thread.core, *thread.observed_cores) for thread in result.threads]
    return tuple(result.losses), result.weights_sha256, where, result.environment.get("scheduler")


@pytest.fixture(scope="module")
def expected() -> list[tuple[Any, ...]]:
    """The results under `serial`."""
    return outcomes([dataclasses.replace(SMALL, **kind) for kind in KINDS])


@runtimes
def test_losses_and_weights_are_bit_identical(
    runtime: str, threads: int, apart: Apart, expected: list[tuple[Any, ...]]
) -> None:
    for kind, due in zip(KINDS, expected, strict=True):
        how = {**kind, "threads": threads, "runtime": runtime}
        orders = ORDERS if kind == KINDS[0] else FREEST
        configs = [dataclasses.replace(SMALL, **how, **order) for order in orders]
        for order, (losses, sha256, where, library) in zip(
            configs, apart((runtime, threads), outcomes, configs), strict=True
        ):
            assert (losses, sha256) == due[:2], order
            assert where == [(CORES[i % len(CORES)],) * 2 for i in range(threads)]
            assert library["runtime"] == runtime
            assert library["sha256"] == openmp.choose(runtime).sha256


@runtimes
def test_iterations_under_random_delays(runtime: str, threads: int, apart: Apart) -> None:
    small = ModelConfig(layers=2, heads=2, channels=16, vocab=29, context=8)
    config = dataclasses.replace(SMALL, model=small, batch=2, seq=6, batch_slice=1, steps=30, lr=1e-3)
    if threads == 3:
        config = dataclasses.replace(config, grad_accum=2, grad_clip=0.1)
    configs = [dataclasses.replace(config, threads=threads, runtime=runtime, **order) for order in ORDERS]
    for order, found in zip(configs, apart((runtime, threads), outcomes, configs, str(threads)), strict=True):
        assert found[:2] == serially(config), order


def random_graphs(runtime: str, threads: int, seeds: range) -> list[tuple[int, bool]]:
    """For each graph: the number of missing inputs, and whether each task ran in every step."""
    found = []
    for seed in seeds:
        rng = random.Random(seed)
        size = rng.randrange(1, 40)
        inputs = [sorted(rng.sample(range(i), min(i, rng.randrange(4)))) for i in range(size)]
        step, memory = toy(inputs, [rng.choice([0, 0, 0, 200]) for _ in range(size)])
        sync, cores = SYNCS[seed % len(SYNCS)], [CORES[i % len(CORES)] for i in range(threads)]
        run_program(step, memory, "omp-task", cores, 50, sync, runtime=runtime)
        found.append((int(memory.arrays["violations"].sum()), bool((memory.arrays["stamps"] == 50).all())))
    return found


@runtimes
def test_no_task_runs_before_its_inputs(runtime: str, threads: int, apart: Apart) -> None:
    found = apart((runtime, threads), random_graphs, runtime, threads, range(30))
    assert found == [(0, True)] * 30


def loops(runtime: str, threads: int) -> list[int]:
    """Number of inputs that were missing when an op's tiles ran, for a static and a dynamic loop."""
    inputs: list[list[int]] = [[] for _ in range(7)] + [list(range(7)) for _ in range(5)]
    found = []
    for assignment in ("static", "dynamic"):
        step, memory = toy(inputs, [300 if i % 3 == 0 else 0 for i in range(12)])
        cores = [CORES[i % len(CORES)] for i in range(threads)]
        step = wide(step, slice(7), slice(7, None))
        run_program(step, memory, "omp-for", cores, 30, assignment=assignment, runtime=runtime)
        found.append(int(memory.arrays["violations"].sum()) + int((memory.arrays["stamps"] != 30).sum()))
    return found


@runtimes
def test_a_loop_runs_every_tile_of_an_op_before_the_next_op(runtime: str, threads: int, apart: Apart) -> None:
    assert apart((runtime, threads), loops, runtime, threads) == [0, 0]


def without_an_edge(runtime: str, threads: int) -> int:
    """Number of tasks that ran too early in a chain that lacks one dependency."""
    step, memory = toy([[], [0], [1]], [20_000, 0, 0])
    whole = graph.build(step, "step")
    first, second, third = step.ops
    (tile,) = third.tiles
    written = {access.region for access in second.tiles[0].accesses if access.mode is Mode.UPDATE}
    blind = dataclasses.replace(tile, accesses=tuple(a for a in tile.accesses if a.region not in written))
    step = dataclasses.replace(step, ops=(first, second, dataclasses.replace(third, tiles=(blind,))))
    cores = [CORES[i % len(CORES)] for i in range(threads)]
    run_program(step, memory, "omp-task", cores, 20, tasks=whole, runtime=runtime)
    return int(np.sum(memory.arrays["violations"]))


@runtimes
def test_the_stamps_catch_a_clause_that_is_missing(runtime: str, threads: int, apart: Apart) -> None:
    """The checks above can fail. One thread is left out: it may run the tasks in order without any clause."""
    if threads > 1:
        assert apart((runtime, threads), without_an_edge, runtime, threads) > 0
