"""Ranks that divide a GPT-2's matrices, without MPI: the numbers of one rank, and steps without races."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest

from gpt2core.networks import program
from gpt2core.networks.exchanged import layout_of
from gpt2core.networks.gpt2.initial import initial_weights
from gpt2core.networks.gpt2.parts import part_of, whole_of
from gpt2core.networks.gpt2.tensors import DIVIDED, weight_specs
from gpt2core.networks.memory import plan
from gpt2core.run.train import train
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.fields import SYNCS
from gpt2core.spec.models import ModelConfig
from gpt2core.step import graph
from gpt2core.step.rank import Rank
from gpt2core.step.tensors import SCRATCH
from tests.support.divided import have_the_norms_of_one, have_the_same_weights, train_divided

MODEL = ModelConfig(layers=2, heads=4, channels=32, vocab=200, context=16)  # the last of 4 ranks has 8 tokens
SMALL = TrainConfig(
    model=MODEL, batch=3, seq=10, steps=4, warmup=0, lr=1e-2, batch_slice=1, token_slice=4, data="synthetic",
    scheduler="serial", parallel="tensor", allow_oversubscription=True,
)  # fmt: skip
WAYS: list[dict[str, Any]] = [
    {"fusion": "none"}, {"fusion": "rows"}, {"fusion": "all"}, {"grad_accum": 2}, {"grad_clip": 0.5},
    {"precision": "bf16"},
]  # fmt: skip


def ranked(ranks: int, **settings: Any) -> TrainConfig:
    return dataclasses.replace(SMALL, ranks=ranks, **settings)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("how", WAYS, ids=str)
def test_the_losses_are_those_of_one_rank(ranks, how):
    one = train(ranked(1, **how)).losses
    losses, _ = train_divided(ranked(ranks, **how))
    assert len(set(one)) == SMALL.steps
    np.testing.assert_allclose(losses, one, rtol=1e-5)


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_norm_counts_each_gradient_once(ranks):
    """Also of those weights that all ranks have."""
    have_the_norms_of_one(*(ranked(count, grad_clip=0.5) for count in (1, ranks)))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_fusion_changes_no_bit(precision):
    found = [train_divided(ranked(2, precision=precision, **how)) for how in WAYS[:3]]
    for losses, weights in found[1:]:
        assert losses == found[0][0]
        have_the_same_weights(weights, found[0][1])


@pytest.mark.parametrize("ranks", [2, 4])
def test_each_rank_has_its_part_of_the_weights_of_one_rank(ranks):
    """At first exactly; after steps of SGD, which does not magnify roundings, nearly. What ranks do not divide has the
    same bits on all of them."""
    first = {spec.name: np.empty(spec.shape, np.float32) for spec in weight_specs(MODEL)}
    initial_weights(MODEL, SMALL.seed, first)
    sgd = {"optimizer": "sgd", "lr": 0.5}
    final, _ = train_divided_weights(ranked(1, **sgd))
    _, begun = train_divided(ranked(ranks, steps=1, lr=0.0))
    _, ended = train_divided(ranked(ranks, **sgd))
    for name, whole in first.items():
        parts = [part_of(name, whole, Rank(number, ranks)) for number in range(ranks)]
        np.testing.assert_array_equal(whole_of(name, parts), whole, name)
    moved = 0.0
    for number in range(ranks):
        for name, whole in first.items():
            part = part_of(name, whole, Rank(number, ranks))
            np.testing.assert_array_equal(begun[number][name], part, name)
            expected = part_of(name, final[name], Rank(number, ranks))
            np.testing.assert_allclose(ended[number][name], expected, rtol=0, atol=1e-5, err_msg=name)
            moved = max(moved, float(np.abs(expected - part).max()))
            if name not in DIVIDED:
                np.testing.assert_array_equal(ended[number][name], ended[0][name], name)
    assert moved > 1e-2


def train_divided_weights(config: TrainConfig) -> tuple[dict[str, Any], list[float]]:
    losses, (weights,) = train_divided(config)
    assert losses == list(train(config).losses)  # one rank has nothing to divide
    return weights, losses


@pytest.mark.parametrize("scheduler", ["task", "omp-task"])
@pytest.mark.parametrize("how", WAYS, ids=str)
def test_every_step_of_a_rank_is_free_of_races(scheduler, how):
    for rank, sync in itertools.product(range(2), SYNCS):
        step = program.build(ranked(2, scheduler=scheduler, sync=sync, **how), rank=rank)
        graph.validate(step, graph.build(step, sync))


def test_a_slice_is_computed_while_another_one_travels():
    """Under task, what follows the exchange of a slice does not wait for that of a later one."""
    tasks = graph.build(program.build(ranked(2, scheduler="task")), "step")
    number = {label: node for node, label in enumerate(tasks.label)}
    before: dict[int, set[int]] = {}
    for node in range(len(tasks)):
        before[node] = {node}.union(*(before[a] for a, b in tasks.edges if b == node))
    first = next(label for label in tasks.label if label.startswith("projection_fold") and label.endswith("s0"))
    last = next(label for label in tasks.label if label.startswith("projection_arrived") and label.endswith("s8"))
    assert number[first.replace("s0", "s8")] not in before[number[first]]
    assert number[last] not in before[number[first]]


@pytest.mark.parametrize("ranks", [2, 4])
def test_messages_meet_and_fill_what_others_sum(ranks):
    wish = ranked(ranks, grad_clip=1.0)
    every = [layout_of(wish, number) for number in range(ranks)]
    for one, other in itertools.permutations(every, 2):
        sent = [(m.tag, m.elements) for m in one.messages if not m.receives and m.peer == other.rank.number]
        expected = [(m.tag, m.elements) for m in other.messages if m.receives and m.peer == one.rank.number]
        assert sent == expected
    shapes = {spec.name: spec.size for spec in plan(wish)["temporary"].specs}
    assert shapes["requests"] == len(every[0].messages)
    for kind, name in (("projection", "other_sums"), ("cross_entropy", "other_softmax")):
        places = Counter[int]()
        for message in itertools.chain(*every[1].by_kind[kind]):
            if message.receives:
                places.update(range(message.offset, message.offset + message.elements))
        assert places == Counter(range(shapes[name]))


def test_memory_is_that_of_a_rank():
    """What ranks divide takes its share of a rank's memory; an arena may be up to a line larger for each tensor."""
    one, part = plan(ranked(1)), plan(ranked(4))
    divided = sum(spec.bytes for spec in one["weights"].specs if spec.name in DIVIDED)
    for kind in ("weights", "optimizer"):
        times = 2 if kind == "optimizer" else 1
        saved = times * divided * 3 // 4
        assert abs(one[kind].bytes - saved - part[kind].bytes) <= times * 64 * len(one["weights"].specs)
    assert part["activations"].bytes < one["activations"].bytes
    assert {SCRATCH, "own_sums", "other_sums"} <= {spec.name for spec in part["temporary"].specs}


@pytest.mark.parametrize(("settings", "field", "accepted"), [
    ({"ranks": 3}, "ranks", r"with parallel tensor a divisor of the model's heads \(4\)"),
    ({"ranks": 2, "model": ModelConfig(2, 4, 32, 64, 16)}, "ranks",
     r"with parallel tensor a divisor of the padded vocabulary \(128\) that leaves each rank some of its 64 tokens"),
    ({"ranks": 2, "parallel": "pipeline"}, "parallel", "one of data, tensor"),
    ({"ranks": 1, "mode": "infer", "lr": 1e-4}, "parallel", "the default 'data', since mode infer computes no"),
    ({"ranks": 2, "model": "lstm-tiny"}, "parallel", "the default 'data', since network lstm does not read it"),
])  # fmt: skip
def test_what_such_ranks_do_not_support_is_refused(settings, field, accepted):
    with pytest.raises(ConfigError, match=accepted) as refused:
        TrainConfig.from_dict({**SMALL.to_dict(), **settings})
    assert field in {refused.value.field, *(other.field for other in refused.value.others)}


def test_the_batch_need_not_be_divided():
    wish = ranked(2)
    assert wish.part is wish
    assert ranked(2, batch=1).tokens_per_step == 10
