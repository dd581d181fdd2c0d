"""Weights that are bfloat16 in memory: rounded to nearest, and filled from every source as float32 weights are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gpt2core.networks import halves
from gpt2core.networks.gpt2 import checkpoint as of_gpt2
from gpt2core.networks.gpt2 import initial as initial_gpt2
from gpt2core.networks.gpt2.tensors import MATRICES, weight_specs
from gpt2core.networks.lstm import checkpoint as of_lstm
from gpt2core.networks.lstm import initial as initial_lstm
from gpt2core.networks.lstm import tensors as lstm_tensors
from gpt2core.networks.lstm.tensors import Lstm
from gpt2core.networks.network import network_of
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.models import model_from
from tests.support.checkpoints import MODEL, random_weights, write_bf16

LSTM = Lstm(embedding=24, hidden=32, layers=2, vocab=61)
Weights = dict[str, np.ndarray]


def both(specs, matrices) -> tuple[Weights, Weights]:
    """Arrays of float32, and the same with matrices of bfloat16."""
    whole = {spec.name: np.full(spec.shape, np.nan, np.float32) for spec in specs}
    half = {name: np.full(each.shape, 0xFFFF, np.uint16) if name in matrices else each.copy()
            for name, each in whole.items()}  # fmt: skip
    return whole, half


def assert_rounded(half: Weights, whole: Weights) -> None:
    assert {each.dtype for each in half.values()} == {np.dtype(np.uint16), np.dtype(np.float32)}
    for name, array in whole.items():
        expected = array if half[name].dtype == np.float32 else halves.rounded(array)
        np.testing.assert_array_equal(half[name], expected, err_msg=name)


def test_rounding_is_to_nearest_and_even() -> None:
    bits = np.array([0x3F800000, 0x3F808000, 0x3F818000, 0x3F807FFF, 0x3F808001, 0x7F7FFFFF, 0x7F800000, 0xFF800000,
                     0x80000000, 0x00000001, 0x00008001, 0x007FFFFF], np.uint32)  # fmt: skip
    expected = [0x3F80, 0x3F80, 0x3F82, 0x3F80, 0x3F81, 0x7F80, 0x7F80, 0xFF80, 0x8000, 0, 1, 0x0080]
    assert halves.rounded(bits.view(np.float32)).tolist() == expected
    for nan in (0x7F800001, 0xFFFFFFFF, 0x7FC00000):
        found = halves.rounded(np.array([1.0, np.uint32(nan).view(np.float32)], np.float32))
        assert found[0] == 0x3F80
        assert np.isnan(halves.widened(found)[1])
    values = np.random.default_rng(0).standard_normal((50, 70), dtype=np.float32)
    near = halves.widened(halves.rounded(values))
    assert (np.abs(near - values) <= np.abs(values) * 2**-8).all()
    np.testing.assert_array_equal(halves.rounded(near), halves.rounded(values))
    np.testing.assert_array_equal(halves.rounded(values.T), halves.rounded(values).T)


@pytest.mark.parametrize("at_once", [7, 1000, halves.AT_ONCE])
def test_initial_weights_are_those_of_float32(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(halves, "AT_ONCE", at_once)
    whole, half = both(weight_specs(MODEL), MATRICES)
    for weights in (whole, half):
        initial_gpt2.initial_weights(MODEL, 3, weights)
    assert_rounded(half, whole)
    matrices = [each.name for each in lstm_tensors.matrices(LSTM)]
    for scale in (0.0, 0.05):
        whole, half = both(lstm_tensors.weight_specs(LSTM), matrices)
        for weights in (whole, half):
            initial_lstm.initial_weights(LSTM, 3, scale, weights)
        assert_rounded(half, whole)


@pytest.mark.parametrize("name", ["weights.bin", "weights.safetensors", "halves.safetensors"])
def test_weights_from_files_are_rounded(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(halves, "AT_ONCE", 100)
    path, weights = tmp_path / name, random_weights()
    if name == "halves.safetensors":
        of_gpt2.write_checkpoint(tmp_path / "whole.safetensors", MODEL, weights)
        from safetensors.numpy import load_file

        write_bf16(path, load_file(tmp_path / "whole.safetensors"), {"n_head": str(MODEL.heads)})
    else:
        of_gpt2.write_checkpoint(path, MODEL, weights)
    whole, half = both(weight_specs(MODEL), MATRICES)
    for found in (whole, half):
        of_gpt2.read_checkpoint(path, MODEL, found)
    assert_rounded(half, whole)


def test_an_lstms_weights_from_a_file_are_rounded(tmp_path: Path) -> None:
    whole, half = both(lstm_tensors.weight_specs(LSTM), [each.name for each in lstm_tensors.matrices(LSTM)])
    initial_lstm.initial_weights(LSTM, 3, 0.0, whole)
    of_lstm.write_checkpoint(tmp_path / "weights.safetensors", LSTM, whole)
    of_lstm.read_checkpoint(tmp_path / "weights.safetensors", LSTM, half)
    assert_rounded(half, whole)


@pytest.mark.parametrize("model", ["seq2seq-tiny", "reader-tiny"])
def test_weights_of_recurrent_encoders_are_those_of_float32_rounded(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drawn from a seed, and read from a file."""
    monkeypatch.setattr(halves, "AT_ONCE", 100)
    path = str(tmp_path / "weights.safetensors")
    keeps = TrainConfig(model_from(model), mode="infer", precision="bf16")
    network = network_of(keeps)
    specs = network.tensors(keeps)["weights"]
    matrices = [spec.name for spec in specs if spec.dtype == "uint16"]
    assert matrices == [spec.name for spec in specs if len(spec.shape) == 2]
    whole, half = both(specs, matrices)
    for weights in (whole, half):
        network.initialise(keeps, weights)
    assert_rounded(half, whole)
    network.write(TrainConfig(model_from(model), save=path), whole)
    _, read = both(specs, matrices)
    network.read(TrainConfig(model_from(model), mode="infer", precision="bf16", checkpoint=path), read)
    assert_rounded(read, whole)
