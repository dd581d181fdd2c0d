"""Automatic slices of an LSTM: enough chunks for a wavefront, groups as large as that allows."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpt2core.networks.lstm.slices import MOST_SLICES, estimate
from gpt2core.networks.program import MAX_SLICES
from gpt2core.spec.config import TrainConfig
from gpt2core.step import slicing


def sizes(model: str, batch: int, seq: int, threads: int, **given: int) -> tuple[int, int]:
    return slicing.sizes(TrainConfig.from_dict(
        {"model": model, "batch": batch, "seq": seq, "threads": threads, **given}
    ))  # fmt: skip


@pytest.mark.parametrize(
    ("model", "shape", "threads", "expected"),
    [
        ("lstm-deep", (4, 64), 2, (4, 16)),
        ("lstm-deep", (4, 64), 8, (4, 8)),
        ("lstm-medium", (20, 35), 2, (20, 7)),
        ("lstm-large", (20, 35), 2, (20, 7)),
        ("lstm-tiny", (1, 1), 2, (1, 1)),
    ],
)
def test_a_batch_is_cut_along_time_first(model, shape, threads, expected):
    """Small groups would read the recurrent weights for few rows. Eight layers on eight threads need more chunks."""
    batch, seq = shape
    assert sizes(model, batch, seq, threads) == expected


def test_two_layers_on_many_threads_need_groups():
    assert sizes("lstm-medium", 64, 32, 16)[0] < 64


@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 64), st.data())
def test_slices_are_few_and_those_that_are_given_are_kept(batch, seq, threads, data):
    config = TrainConfig.from_dict({"model": "lstm-deep", "batch": batch, "seq": seq, "threads": threads})
    assert slicing.count(config) <= MOST_SLICES <= MAX_SLICES
    one, two = (slicing.sizes(dataclasses.replace(config, threads=count)) for count in (1, 2))
    assert one == two
    assert slicing.sizes(dataclasses.replace(config, scheduler="fork-join")) == slicing.sizes(config)
    time = data.draw(st.integers(1, seq))
    assert slicing.sizes(dataclasses.replace(config, token_slice=time))[1] == time
    assert slicing.resolve(config) == slicing.resolve(slicing.resolve(config))


def test_the_estimate_grows_with_smaller_groups_on_one_thread():
    whole, halves = (estimate(2, 20, 35, 1, samples, 7) for samples in (20, 10))
    assert whole < halves
