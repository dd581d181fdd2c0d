"""Ranks that divide the batch of a VGG's convolutions and the matrices of its dense layers, without MPI: the numbers of
one rank, and steps without races."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest

from gpt2core.networks import program
from gpt2core.networks.exchanged import layout_of
from gpt2core.networks.memory import plan
from gpt2core.networks.network import network_of
from gpt2core.networks.vgg.tensors import DIVIDED, Vgg, weight_specs
from gpt2core.run.train import train
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.fields import SYNCS
from gpt2core.step import graph
from gpt2core.step.rank import Rank
from tests.support.divided import have_the_norms_of_one, have_the_same_weights, train_divided, trained

MODEL = Vgg(width=2, hidden=24, classes=7)
SMALL = TrainConfig(
    model=MODEL, batch=12, steps=4, warmup=0, lr=0.02, batch_slice=2, scheduler="serial", parallel="hybrid",
    allow_oversubscription=True,
)  # fmt: skip
WAYS: list[dict[str, Any]] = [
    {"fusion": "none"}, {"fusion": "rows"}, {"grad_accum": 2}, {"grad_clip": 0.5},
    {"optimizer": "adamw", "lr": 1e-3, "momentum": 0.0},
]  # fmt: skip


def ranked(ranks: int, **settings: Any) -> TrainConfig:
    return dataclasses.replace(SMALL, ranks=ranks, **settings)


def part_of(name: str, whole: Any, rank: Rank) -> Any:
    return np.split(whole, rank.total, DIVIDED[name])[rank.number] if name in DIVIDED else whole


@pytest.mark.parametrize("ranks", [2, 3])  # slices of all rows cross the borders of three ranks' parts
@pytest.mark.parametrize("how", WAYS, ids=str)
def test_the_losses_are_those_of_one_rank(ranks, how):
    settings = {**how, "batch_slice": 3 if ranks == 3 else 2}
    one = train(ranked(1, **settings))
    losses, _ = train_divided(ranked(ranks, **settings))
    assert len(set(one.losses)) == SMALL.steps
    np.testing.assert_allclose(losses, one.losses, rtol=1e-5)


def test_the_accuracy_is_that_of_one_rank():
    one, (first, second) = train(ranked(1)), trained(ranked(2))
    for each in (first, second):
        assert each.memory.arrays["accuracies"].tolist() == pytest.approx(one.accuracy)
    assert len(set(one.accuracy)) > 1


@pytest.mark.parametrize("ranks", [2, 3])
def test_the_norm_counts_each_gradient_once(ranks):
    """Those that ranks fold, those of divided matrices, and those of weights that all ranks have."""
    have_the_norms_of_one(*(ranked(count, grad_clip=0.5) for count in (1, ranks)))


def test_fusion_changes_no_bit():
    (losses, weights), (others, theirs) = (train_divided(ranked(2, **how)) for how in WAYS[:2])
    assert others == losses
    have_the_same_weights(weights, theirs)


@pytest.mark.parametrize("ranks", [2, 3])
def test_each_rank_has_its_part_of_the_weights_of_one_rank(ranks):
    """At first exactly, after steps nearly. What ranks do not divide has the same bits on all of them."""
    first = {spec.name: np.empty(spec.shape, np.float32) for spec in weight_specs(MODEL)}
    network_of(SMALL).initialise(SMALL, first)
    _, (final,) = train_divided(ranked(1))
    _, begun = train_divided(ranked(ranks, steps=1, lr=0.0))
    _, ended = train_divided(ranked(ranks))
    moved = Counter[str]()
    for number, (name, whole) in itertools.product(range(ranks), first.items()):
        part, expected = (part_of(name, each, Rank(number, ranks)) for each in (whole, final[name]))
        np.testing.assert_array_equal(begun[number][name], part, name)
        np.testing.assert_allclose(ended[number][name], expected, rtol=0, atol=1e-5, err_msg=name)
        moved[name] += int((expected != part).sum())
        if name not in DIVIDED:
            np.testing.assert_array_equal(ended[number][name], ended[0][name], name)
    assert min(moved.values()) > 0


@pytest.mark.parametrize("scheduler", ["task", "omp-task"])
@pytest.mark.parametrize("how", WAYS, ids=str)
def test_every_step_of_a_rank_is_free_of_races(scheduler, how):
    for rank, sync in itertools.product(range(2), SYNCS):
        step = program.build(ranked(2, scheduler=scheduler, sync=sync, **how), rank=rank)
        graph.validate(step, graph.build(step, sync))


@pytest.mark.parametrize("ranks", [2, 3])
def test_messages_meet_and_fill_what_others_read(ranks):
    wish = ranked(ranks, grad_clip=1.0)
    every = [layout_of(wish, number) for number in range(ranks)]
    for one, other in itertools.permutations(every, 2):
        sent = [(m.tag, m.elements) for m in one.messages if not m.receives and m.peer == other.rank.number]
        expected = [(m.tag, m.elements) for m in other.messages if m.receives and m.peer == one.rank.number]
        assert sent == expected
    specs = {spec.name: spec for kind in plan(wish).values() for spec in kind.specs}
    assert specs["requests"].size == len(every[0].messages)
    own = specs["pooled"].size
    copied = {"gather": range(own, 2 * own)}  # rank 1's own rows
    for kind, name in (("fc", "other_sums"), ("gather_dinp", "other_rows"), ("gather", "gathered")):
        places = Counter[int](copied.get(kind, ()))
        for message in itertools.chain(*every[1].by_kind[kind]):
            if message.receives:
                places.update(range(message.offset, message.offset + message.elements))
        assert places == Counter(range(specs[name].size)), kind


def test_buckets_are_the_weights_before_the_gather():
    layout = layout_of(ranked(2), 0)
    spans = [(piece.begin, piece.end) for bucket in layout.buckets for piece in bucket.pieces]
    assert sum(end - begin for begin, end in spans) == sum(
        spec.size for each in MODEL.convolutions for spec in each.specs
    )


def test_automatic_slices_are_those_of_a_ranks_images():
    wish = ranked(2, batch=64, batch_slice=None)
    decided = program.decided(wish)
    assert decided.batch_slice == program.decided(wish.batch_part).batch_slice
    assert decided.batch_slice != program.decided(ranked(1, batch=64, batch_slice=None)).batch_slice
    assert plan(wish) == plan(decided)


def test_memory_is_that_of_a_rank():
    """The part of the divided matrices, and of the images; the optimizer's state of convolutions is whole."""
    wide = dataclasses.replace(MODEL, hidden=960)
    one, part = (plan(ranked(ranks, model=wide, fusion="rows")) for ranks in (1, 3))
    divided = sum(spec.bytes for spec in weight_specs(wide) if spec.name in DIVIDED)
    for kind in ("weights", "gradients", "optimizer"):
        saved = one[kind].bytes - part[kind].bytes
        assert abs(saved - divided * 2 // 3) <= 64 * len(one["weights"].specs), kind
    images = {spec.name: spec.bytes for spec in part["activations"].specs}
    assert images["images"] * 3 == next(s.bytes for s in one["activations"].specs if s.name == "images")


@pytest.mark.parametrize(("settings", "field", "accepted"), [
    ({"ranks": 5, "batch": 10}, "ranks", r"with parallel hybrid a divisor of the model's hidden \(24\)"),
    ({"ranks": 8}, "ranks", r"a divisor of batch \(12\)"),
    ({"ranks": 2, "batch_slice": 7}, "batch_slice", r"1 to batch \(12\) / ranks \(2\)"),
    ({"ranks": 2, "fusion": "all"}, "fusion", "none or rows"),
    ({"ranks": 2, "evaluate_every": 2}, "evaluate_every", "the default 0 with parallel hybrid, since no rank has all"),
    ({"ranks": 2, "parallel": "tensor"}, "parallel", "data or hybrid, since ranks of network vgg divide no other"),
    ({"ranks": 2, "model": "tiny", "seq": 8}, "parallel", "data or tensor, since ranks of network gpt2 divide no"),
    ({"ranks": 2, "model": "resnet14-cifar"}, "parallel", "the default 'data', since network resnet does not read it"),
])  # fmt: skip
def test_what_such_ranks_do_not_support_is_refused(settings, field, accepted):
    with pytest.raises(ConfigError, match=accepted) as refused:
        TrainConfig.from_dict({**SMALL.to_dict(), **settings})
    assert field in {refused.value.field, *(other.field for other in refused.value.others)}
