"""Tensors share memory only if their lives do not overlap, and need no more of it than before lives placed them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpt2core.networks import lifetimes
from gpt2core.networks.memory import memory_bytes, plan
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import GraphError
from gpt2core.spec.models import model_from
from gpt2core.step.builder import Builder
from gpt2core.step.grid import ONE_TILE
from gpt2core.step.ops import Read, Tensor, Update, Write
from gpt2core.step.placement import Need, Policy, place
from gpt2core.step.signature import Matrix
from gpt2core.step.sketch import Life, Sketch
from gpt2core.step.tensors import ALIGN, TensorSpec, plan_arena

POLICIES = [Policy(), Policy(spare=1), Policy(alike=False)]
NEEDS = st.lists(
    st.builds(
        lambda rows, row_bytes, first, length: Need(rows, row_bytes, first, first + length),
        st.sampled_from((1, 5, 16)), st.sampled_from((4, 64, 100)), st.integers(0, 30), st.integers(0, 9),
    ),
    max_size=25,
)  # fmt: skip


def overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] < b[1] and b[0] < a[1]


@given(NEEDS, st.sampled_from(POLICIES))
def test_what_is_needed_at_one_time_shares_no_byte(needs: list[Need], policy: Policy) -> None:
    offsets, size = place(needs, policy)
    assert all(offset % ALIGN == 0 for offset in offsets)
    assert size == max((offset + need.bytes for offset, need in zip(offsets, needs, strict=True)), default=0) or (
        policy.spare and size <= sum(need.bytes for need in needs)
    )
    for (a, at), (b, bt) in itertools.combinations(zip(needs, offsets, strict=True), 2):
        same_bytes = overlap((at, at + a.bytes), (bt, bt + b.bytes))
        if same_bytes:
            assert not overlap((a.first, a.last + 1), (b.first, b.last + 1))
            assert not policy.alike or (a[:2] == b[:2] and at == bt)


@given(NEEDS)
def test_places_of_one_kind_are_as_many_as_are_needed_at_once(needs: list[Need]) -> None:
    alike = [need._replace(rows=8, row_bytes=64) for need in needs]
    times = [sum(need.first <= t <= need.last for need in alike) for t in range(40)]
    assert place(alike, Policy())[1] == max(times) * 512
    assert place(alike, Policy(spare=1))[1] == min(max(times) + 1, len(alike)) * 512 * bool(alike)


def test_the_place_that_is_free_for_the_longest_time_is_taken() -> None:
    chain = [Need(1, 64, t, t + 1) for t in range(6)]
    assert place(chain, Policy())[0] == [0, 64, 0, 64, 0, 64]
    assert place(chain, Policy(spare=1))[0] == [0, 64, 128, 0, 64, 128]


def kernel_of(out: Matrix, inp: Matrix):
    """Stands for any kernel: nothing runs."""


def chain(step: Builder, *names: str, update: bool = False) -> None:
    """Ops that each compute a tensor from the one before it."""
    for name, other in itertools.pairwise(names):
        out = (Update if update else Write)(Tensor(other))
        step.op(other, "forward", kernel_of, ONE_TILE, [(1, 1)], out=out, inp=Read(Tensor(name)))


def plans(*names: str):
    return {"activations": plan_arena([TensorSpec(name, (4, 4)) for name in names])}


def test_lives_go_from_the_first_op_to_the_last() -> None:
    sketch = Sketch(plans("x", "a", "b", "c", "d"), "none")
    chain(sketch, "x", "a", "b", "c")
    sketch.rename(Tensor("c"), Tensor("d"))
    chain(sketch, "d", "b")
    assert sketch.lives() == [
        Life((Tensor("x"),), 0, 4),  # read before it is written: its values come from before the step
        Life((Tensor("a"),), 0, 1), Life((Tensor("b"),), 1, 3), Life((Tensor("c"), Tensor("d")), 2, 3),
    ]  # fmt: skip


def test_fused_ops_are_one_in_time() -> None:
    sketch = Sketch(plans("x", "a", "b"), "rows")
    with sketch.fused():
        chain(sketch, "x", "a", "b")
    assert [life[1:] for life in sketch.lives()] == [(0, 1), (0, 0), (0, 0)]


def test_fillers_may_be_late_by_layers() -> None:
    """Op 0 of layer 2 writes a, op 1 is its filler; layers 1 and 0 follow."""
    sketch = Sketch(plans("a", "b"), "none")
    ops = ((2, False, Write), (2, True, Read), (1, False, Read), (1, False, Read), (0, False, Read))
    for layer, filler, use in ops:
        name = "a" if layer == 2 else "b"
        sketch.op("op", "backward", kernel_of, ONE_TILE, [(1, 1)], layer, filler, inp=use(Tensor(name)))
    assert [{life.tensors[0].name: life.last for life in sketch.lives(late)}["a"] for late in (0, 1, 2)] == [1, 3, 4]


def test_a_tensor_is_used_whole_or_by_layers() -> None:
    sketch = Sketch(plans("x", "a"), "none")
    chain(sketch, "x", "a")
    sketch.op("part", "forward", kernel_of, ONE_TILE, [(1, 1)], inp=Read(Tensor("a", 1)))
    with pytest.raises(GraphError, match="a is used as a whole and by layers"):
        sketch.lives()


def test_a_tensor_that_is_read_after_another_one_has_overwritten_it_is_refused() -> None:
    """The race proof could not see it, since it takes the program's order as meant."""
    (arena,) = plans("x", "a", "b").values()
    step = Builder({"activations": type(arena)(arena.specs, (0, 256, 256), 512)})
    chain(step, "x", "a", "b")
    with pytest.raises(GraphError, match=r"^a is read, but b has overwritten it$"):
        chain(step, "a", "x")
    with pytest.raises(GraphError, match=r"^x is computed in place of b, but they lie in different places$"):
        step.rename(Tensor("b"), Tensor("x"))
    step.rename(Tensor("b"), Tensor("a"))
    chain(step, "a", "x", update=True)


MIB = 1 << 20
BEFORE = {  # MiB of all arenas when networks placed tensors by hand; threads 2 and 16
    ("gpt2-124m", 4, 64, "fp32"): (1576.77, 1612.00),
    ("gpt2-124m", 4, 256, "fp32"): (2019.96, 2070.03),
    ("gpt2-124m", 8, 1024, "fp32"): (6156.76, 6338.16),
    ("gpt2-124m", 4, 64, "bf16"): (1532.33, 1573.94),
    ("gpt2-124m", 4, 256, "bf16"): (1839.21, 1893.78),
    ("gpt2-350m", 4, 64, "fp32"): (4366.94, 4403.67),
    ("gpt2-774m", 4, 64, "fp32"): (9378.30, 9416.50),
    ("gpt2-1.5b", 4, 64, "fp32"): (18650.75, 18690.91),
    ("small", 4, 64, "fp32"): (53.12, 71.34),
    ("tiny", 4, 64, "fp32"): (5.81, 21.37),
    # LSTMs: and the panels of their recurrent weights, which came later (0.08, 26.42, 138.97 and 65.25 MiB)
    ("lstm-tiny", 4, 64, "fp32"): (3.27, 17.85),
    ("lstm-medium", 20, 35, "fp32"): (309.88, 339.52),
    ("lstm-large", 20, 35, "fp32"): (986.03, 1016.34),
    ("lstm-deep", 4, 64, "fp32"): (414.51, 444.26),
}


@pytest.mark.parametrize("case", BEFORE, ids=str)
def test_no_model_needs_more_memory_than_with_places_by_hand(case: tuple[str, int, int, str]) -> None:
    model, batch, seq, precision = case
    for threads, most in zip((2, 16), BEFORE[case], strict=True):
        config = TrainConfig(
            model_from(model), batch, seq, threads=threads, precision=precision, allow_oversubscription=True
        )
        assert sum(memory_bytes(config).values()) / MIB < most + 0.01


def test_lives_do_not_depend_on_the_number_of_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few chunks of time stand for all, so that sizes are known at once."""
    for model in ("tiny", "lstm-tiny"):
        config = TrainConfig(model_from(model), 3, 20, batch_slice=1, token_slice=2)
        short = plan(config)["activations"]
        with monkeypatch.context() as patched:
            patched.setattr(lifetimes, "MOST_CHUNKS", 10)
            assert plan(config)["activations"] == short


@pytest.mark.parametrize("model", ["tiny", "lstm-tiny", "resnet14-cifar", "vgg11-cifar", "seq2seq-tiny", "reader-tiny"])
@pytest.mark.parametrize(
    "settings",
    [
        {"lr_schedule": "cosine", "lr_warmup": 299, "lr_final": 0.1},
        {"lr_schedule": "steps", "lr_every": 100, "lr_hold": 200},
        {"warmup": 299},
        {"stop_at": {"loss": 0.5}},
    ],
    ids=str,
)
def test_lives_do_not_depend_on_how_long_a_run_is(model: str, settings: dict[str, Any]) -> None:
    """Settings that fit only so many steps are those of the run, not of the few steps whose lives are found."""
    plain = {"model": model, "batch": 4, "steps": 300}
    plans = [plan(TrainConfig.from_dict({**plain, **more}))["activations"] for more in ({}, settings)]
    assert plans[0] == plans[1]
