"""Slices and the positions of their rows."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpt2core.layers.attention import row_of, run_length
from gpt2core.networks.gpt2.tensors import weight_specs
from gpt2core.networks.memory import memory_bytes, plan
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.models import model_from
from gpt2core.step import slicing, tensors

SHAPES = st.integers(1, 9).flatmap(
    lambda b: st.integers(1, 40).flatmap(
        lambda t: st.tuples(st.just(b), st.just(t), st.integers(1, b), st.integers(1, t))
    )
)


def make(shape: tuple[int, int, int, int]) -> TrainConfig:
    batch, seq, batch_slice, token_slice = shape
    return TrainConfig(model=model_from("tiny"), batch=batch, seq=seq, batch_slice=batch_slice, token_slice=token_slice)


@given(SHAPES)
def test_slices_cover_every_token_once(shape):
    config = make(shape)
    slices = slicing.cut(config)
    assert [s.index for s in slices] == list(range(len(slices)))
    assert [s.row0 for s in slices] == [0, *(s.row1 for s in slices[:-1])]
    batch, time = slicing.row_tables(config)
    assert sorted(zip(batch, time, strict=True)) == [(b, t) for b in range(config.batch) for t in range(config.seq)]
    for s in slices:
        rows = {(b, t) for b in range(s.sample0, s.sample1) for t in range(s.pos0, s.pos1)}
        assert {(batch[r], time[r]) for r in range(s.row0, s.row1)} == rows
        assert all(slices[k].sample0 == s.sample0 for k in s.peers)


@given(SHAPES)
def test_attention_finds_the_rows(shape):
    """The kernel's arithmetic agrees with the tables, and its ranges have consecutive rows."""
    config = make(shape)
    at = {key: row for row, key in enumerate(zip(*slicing.row_tables(config), strict=True))}
    T, TS = config.seq, config.token_slice
    for s in slicing.cut(config):
        for b in range(s.sample0, s.sample1):
            for t in range(s.pos0, s.pos1):
                row = row_of.py_func(b, t, s.sample0, s.sample1, T, TS)
                assert row == at[b, t]
                run = run_length.py_func(t, T, s.sample0, s.sample1, TS)
                assert [at[b, t + i] for i in range(run)] == list(range(row, row + run))


@given(SHAPES, st.integers(1, 70))
def test_automatic_slices_are_alike_and_of_one_and_two_threads_the_same(shape, threads):
    config = TrainConfig(model=model_from("tiny"), batch=shape[0], seq=shape[1], threads=threads)
    for scheduler in ("task", "fork-join"):
        assert slicing.sizes(dataclasses.replace(config, scheduler=scheduler)) == slicing.sizes(config)
    one, two = (slicing.sizes(dataclasses.replace(config, threads=count)) for count in (1, 2))
    assert one == two
    slices = slicing.cut(config)
    assert len(slices) == slicing.count(config)
    rows = [s.rows for s in slices]
    groups, parts = len({s.sample0 for s in slices}), len(slices[0].peers)
    assert max(rows) <= max(slicing.AUTO_ROWS)
    assert max(s.sample1 - s.sample0 for s in slices) == -(-config.batch // groups)
    assert max(s.pos1 - s.pos0 for s in slices) == -(-config.seq // parts)


def sizes(batch, seq, threads, **given):
    return slicing.sizes(TrainConfig(model=model_from("gpt2-124m"), batch=batch, seq=seq, threads=threads, **given))


def test_automatic_slices_are_as_large_as_leaves_one_for_each_thread():
    assert [sizes(4, 64, threads) for threads in (1, 2, 4, 8, 16)] == [(2, 64), (2, 64), (1, 64), (1, 32), (1, 16)]
    assert [sizes(1, 1024, threads) for threads in (1, 2, 4, 8, 16)] == [(1, 256)] * 3 + [(1, 128), (1, 64)]
    assert sizes(8, 128, 3) == (1, 128)  # slices of 128: three for the busiest of three threads; of 256: two
    assert sizes(16, 1024, 64) == (1, 256)
    assert sizes(4, 64, 8, allow_oversubscription=True) == (2, 64)


def test_automatic_slices_fill_in_for_the_size_that_was_not_given():
    assert sizes(4, 64, 2, batch_slice=4) == (4, 32)
    assert sizes(4, 64, 2, token_slice=16) == (4, 16)
    assert sizes(4, 256, 2, token_slice=256, batch_slice=3) == (3, 256)
    config = TrainConfig(model=model_from("tiny"), batch=8, seq=128)
    assert slicing.resolve(config) == slicing.resolve(slicing.resolve(config))


def test_sizes_are_those_of_the_published_models():
    parameters = [("124m", 124_439_808), ("350m", 354_823_168), ("774m", 774_030_080), ("1.5b", 1_557_611_200)]
    for name, wanted in parameters:
        model: Any = model_from(f"gpt2-{name}")
        padding = (model.padded_vocab - model.vocab) * model.channels
        assert sum(spec.size for spec in weight_specs(model)) - padding == wanted


@pytest.mark.parametrize("shape", [(1, 1), (50304, 768), (1024, 768), (2304, 768), (3, 1 << 16), (1 << 14, 1 << 14)])
def test_blocks_are_counted_as_they_are_cut(shape):
    assert slicing.block_count(*shape) == len(slicing.cut_rows(*shape))


def test_memory_is_the_sum_of_aligned_tensors():
    config = TrainConfig(model=model_from("tiny"), batch=3, seq=10, fusion="none")
    for kind, arena in plan(config).items():
        ends = [o + s.bytes for o, s in zip(arena.offsets, arena.specs, strict=True)]
        assert all(offset % tensors.ALIGN == 0 for offset in arena.offsets)
        if kind != "activations":  # which share memory: test_lifetimes.py
            assert all(end <= start for end, start in zip(ends, arena.offsets[1:], strict=False))
        assert max(ends) <= arena.bytes == memory_bytes(config)[kind]
    double = memory_bytes(TrainConfig(model=model_from("tiny"), batch=6, seq=10))
    assert double["weights"] == memory_bytes(config)["weights"]
    assert memory_bytes(dataclasses.replace(config, fusion="all"))["gradients"] == 0
    assert memory_bytes(dataclasses.replace(config, fusion=None))["gradients"] == 0
    for change in ({"grad_accum": 2}, {"grad_clip": 1.0}):
        assert memory_bytes(dataclasses.replace(config, fusion=None, **change))["gradients"] > 0
    assert double["activations"] > 1.9 * memory_bytes(config)["activations"]
