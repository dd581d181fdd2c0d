"""A task's output depends on the slicing, never on the thread or the order: every scheduler gives the same bits."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpt2core.gemm import libraries as gemm
from gpt2core.gemm import table
from gpt2core.measure.tracing import new_record
from gpt2core.networks.memory import plan as memory_plan
from gpt2core.networks.network import network_of
from gpt2core.run import canary, prepare, train
from gpt2core.run.fill import fill
from gpt2core.schedulers import dispatch
from gpt2core.schedulers.serial.loop import serial_loop
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.fields import FUSIONS, POLICIES, SYNCS
from gpt2core.spec.models import ModelConfig
from gpt2core.step import graph
from gpt2core.step.memory import Memory
from tests.support.present import present

RAGGED = TrainConfig(
    model=ModelConfig(layers=2, heads=2, channels=32, vocab=61, context=16),
    batch=3, seq=10, steps=4, warmup=0, lr=1e-2, batch_slice=2, token_slice=4, data="synthetic",
    scheduler="serial", allow_oversubscription=True,
)  # fmt: skip
REPEATS = 8  # in `make test-slow`
LIBRARIES = [library.name for library in gemm.available()]
plan = prepare.plan
PLANS: dict[Any, Any] = {}


@pytest.fixture(autouse=True)
def planned_once(monkeypatch):
    """Plan each configuration only once, because planning takes longer than these runs."""

    def remembered(config: TrainConfig, *rest: Any) -> prepare.RunPlan:
        key = repr(config)
        if key not in PLANS:
            PLANS[key] = plan(config, *rest)
        return PLANS[key]

    monkeypatch.setattr(train, "plan", remembered)


@pytest.fixture(autouse=True, scope="module")
def no_canary():
    """Leave out the canary, which takes longer than these runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(canary, "UNAVAILABLE", "bits are compared, not times")
        yield


def outcome(config: TrainConfig) -> tuple[tuple[float, ...], str]:
    result = train.train(config)
    assert all(np.isfinite(result.losses))
    return tuple(result.losses), present(result.weights_sha256)


@pytest.fixture(scope="module")
def reference() -> tuple[tuple[float, ...], str]:
    return outcome(RAGGED)


@pytest.fixture(scope="module")
def reference_in_bf16() -> tuple[tuple[float, ...], str]:
    return outcome(dataclasses.replace(RAGGED, precision="bf16"))


def test_training_moves_the_weights(reference):
    losses, sha256 = reference
    assert len(set(losses)) == RAGGED.steps
    assert sha256 != outcome(dataclasses.replace(RAGGED, steps=3))[1]


@pytest.mark.parametrize("repeats", [2, pytest.param(REPEATS, marks=pytest.mark.slow)])
@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize(("scheduler", "sync"), [("fork-join", "step"), *(("task", sync) for sync in SYNCS)])
def test_losses_and_weights_are_bit_identical(scheduler, sync, threads, repeats, reference):
    config = dataclasses.replace(RAGGED, scheduler=scheduler, sync=sync, threads=threads)
    for _ in range(repeats):
        assert outcome(config) == reference


def test_one_thread_gives_the_same_bits_each_time(reference):
    for _ in range(REPEATS):
        assert outcome(RAGGED) == reference


@pytest.mark.parametrize(
    "change",
    [
        {"scheduler": "fork-join", "assignment": "dynamic"},
        {"scheduler": "fork-join", "op_threads": "qkv=1,layernorm=2"},
        {"scheduler": "fork-join", "op_threads": "qkv[1]=1,l*=2", "fusion": "rows"},
        *({"fusion": fusion, "scheduler": scheduler} for fusion in FUSIONS for scheduler in ("fork-join", "task")),
        *({"policy": policy, "sync": sync} for policy in POLICIES for sync in SYNCS),
    ],
    ids=str,
)
def test_policies_and_fusion_change_only_the_order(change, reference, reference_in_bf16):
    config = dataclasses.replace(RAGGED, **{"scheduler": "task", "threads": 3, **change})
    for _ in range(2):
        assert outcome(config) == reference
        assert outcome(dataclasses.replace(config, precision="bf16")) == reference_in_bf16


@pytest.mark.parametrize("threads", [pytest.param(2, marks=pytest.mark.slow), 8])
@pytest.mark.parametrize(
    "change",
    [
        {"grad_accum": 3}, {"grad_clip": 0.5}, {"grad_accum": 2, "grad_clip": 0.5},
        {"grad_accum": 3, "precision": "bf16"},
    ],
    ids=str,
)
def test_micro_batches_and_clipping(change, threads, reference):
    config = dataclasses.replace(RAGGED, **change)
    expected = outcome(config)
    assert expected[1] != reference[1]
    for scheduler, sync in (("fork-join", "step"), *(("task", sync) for sync in SYNCS)):
        how = {"scheduler": scheduler, "sync": sync, "threads": threads, "fusion": "rows" if threads > 2 else "none"}
        for _ in range(2):
            assert outcome(dataclasses.replace(config, **how)) == expected


@pytest.mark.parametrize("threads", [2, 3, *(pytest.param(each, marks=pytest.mark.slow) for each in (1, 8))])
def test_a_thousand_iterations_under_random_delays(threads, monkeypatch):
    small = ModelConfig(layers=2, heads=2, channels=16, vocab=29, context=8)
    config = dataclasses.replace(RAGGED, model=small, batch=2, seq=6, batch_slice=1, steps=1000, lr=1e-3)
    if threads == 3:
        config = dataclasses.replace(config, grad_accum=2, grad_clip=0.1)
    expected = outcome(config)
    monkeypatch.setenv("TASKLOOM_STRESS", str(threads))
    assert outcome(dataclasses.replace(config, scheduler="task", sync="none", threads=threads)) == expected


@pytest.mark.parametrize("examples", [2, pytest.param(15, marks=pytest.mark.slow)])
def test_any_shape_and_slices(examples):
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def check(draw_from):
        every_scheduler_agrees(draw_from.draw)

    check()


def every_scheduler_agrees(draw):
    """Check that a random configuration gives the same bits under every scheduler."""
    heads, layers = draw(st.integers(1, 3)), st.integers(1, 4)
    context = draw(st.integers(1, 24))
    seq, batch = draw(st.integers(1, context)), draw(st.integers(1, 4))
    config = dataclasses.replace(
        RAGGED,
        model=ModelConfig(draw(layers), heads, heads * draw(st.integers(1, 9)), draw(st.integers(2, 300)), context),
        batch=batch, seq=seq, steps=2,
        batch_slice=draw(st.integers(1, batch)), token_slice=draw(st.integers(1, seq)),
        seed=draw(st.integers(0, 99)), blas=draw(st.sampled_from(LIBRARIES)),
        precision=draw(st.sampled_from(["fp32", "bf16"])),
        grad_accum=draw(st.integers(1, 3)), grad_clip=draw(st.sampled_from([0.0, 0.3])),
    )  # fmt: skip
    expected = outcome(config)
    for threads in (2, 3):
        assert outcome(dataclasses.replace(config, scheduler="fork-join", threads=threads)) == expected
        for sync in SYNCS:
            assert outcome(dataclasses.replace(config, scheduler="task", sync=sync, threads=threads)) == expected


@pytest.mark.parametrize("seed", range(5))
def test_any_order_that_the_graph_allows_gives_the_same_bits(seed):
    """One thread executes random topological orders, which none of our schedulers would choose."""
    planned = prepare.plan(dataclasses.replace(RAGGED, steps=3))
    config, rng = planned.config, random.Random(seed)
    orders = [list(range(len(planned.program.tasks))), topological(planned.graph, rng)]
    assert orders[0] != orders[1]
    weights = []
    for order in orders:
        memory = Memory(memory_plan(config))
        fill(memory, config, network_of(config).data(config))
        bound = dispatch.bind(planned.program, memory, 1, table.choose([gemm.ours()], [], lambda _: None))
        record = new_record(1, config.steps, 0, 64, 0)
        serial_loop(0, bound.tasks[order], bound.context, record, memory.arrays["control"], config.steps)
        assert len(set(memory.arrays["losses"])) == config.steps
        weights.append(train.weights_sha256(memory.weights))
    assert weights[0] == outcome(config)[1]
    assert weights[0] == weights[1]


def topological(tasks: graph.Graph, rng: random.Random) -> list[int]:
    """A random order of the task numbers that respects the graph."""
    waiting = [0] * len(tasks)
    for _, b in tasks.edges:
        waiting[b] += 1
    ready, order = [n for n, w in enumerate(waiting) if w == 0], []
    while ready:
        node = ready.pop(rng.randrange(len(ready)))
        if tasks.task[node] != graph.WAIT:
            order.append(tasks.task[node])
        for a, b in tasks.edges:
            if a == node:
                waiting[b] -= 1
                if waiting[b] == 0:
                    ready.append(b)
    return order


def test_slicing_changes_only_the_rounding():
    losses = [
        train.train(dataclasses.replace(RAGGED, batch_slice=b, token_slice=t)).losses for b, t in ((1, 1), (3, 10))
    ]
    np.testing.assert_allclose(losses[0], losses[1], rtol=2e-5)
