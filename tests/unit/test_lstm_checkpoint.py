"""An LSTM's weights in safetensors: read exactly, written as a torch module names them, and refused by tensor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from gpt2core.networks import network
from gpt2core.networks.gpt2 import checkpoint as of_gpt2
from gpt2core.networks.gpt2.tensors import weight_specs as gpt2_specs
from gpt2core.networks.lstm.checkpoint import about, read_checkpoint, read_model, write_checkpoint
from gpt2core.networks.lstm.tensors import PRESETS, Lstm, weight_specs
from gpt2core.spec.errors import BadMagic, BadVersion, ConfigError, ShapeMismatch, UnreadableFile
from gpt2core.spec.models import ModelConfig

MODEL = Lstm(embedding=5, hidden=6, layers=3, vocab=11)
TIED = Lstm(embedding=6, hidden=6, layers=1, vocab=11, tied=True)
Weights = dict[str, np.ndarray]


def weights_of(model: Lstm, seed: int | None = 0) -> Weights:
    """Random weights that every format has exactly; NaN without a seed."""
    rng = np.random.default_rng(seed)
    return {
        spec.name: np.full(spec.shape, np.nan, np.float32) if seed is None
        else (rng.integers(-64, 64, spec.shape) / 32).astype(np.float32)
        for spec in weight_specs(model)
    }  # fmt: skip


def tensors_of(path: Path) -> Weights:
    with safe_open(path, framework="numpy") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


@pytest.mark.parametrize("model", [MODEL, TIED], ids=["plain", "tied"])
def test_what_is_written_is_read(model: Lstm, path: Path) -> None:
    weights, found = weights_of(model), weights_of(model, None)
    write_checkpoint(path, model, weights)
    assert read_model(path) == model
    read_checkpoint(path, model, found)
    for name, array in weights.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)
    assert about(path) == {"format": "safetensors", "dtype": "F32"}
    names = set(tensors_of(path))
    assert {"embedding.weight", "head.bias", "lstm.weight_ih_l0", "lstm.bias_hh_l0"} <= names
    assert ("head.weight" in names) == (not model.tied)


def test_a_file_with_a_presets_sizes_has_its_name(path: Path) -> None:
    tiny = PRESETS["lstm-tiny"]
    write_checkpoint(path, tiny, weights_of(tiny))
    assert read_model(path) is tiny
    assert network.model_in(str(path)) is tiny
    assert network.model_in(str(path), "lstm") is tiny


def test_the_network_is_that_of_the_tensors(tmp_path: Path) -> None:
    gpt2 = ModelConfig(1, 1, 64, 11, 4)
    specs = gpt2_specs(gpt2)
    path = tmp_path / "gpt2.safetensors"
    of_gpt2.write_checkpoint(path, gpt2, {spec.name: np.zeros(spec.shape, np.float32) for spec in specs})
    assert network.model_in(str(path)) == gpt2
    with pytest.raises(ShapeMismatch, match=r"no tensor lstm.weight_hh_l0: it is not an LSTM's, but has h\.0\."):
        network.model_in(str(path), "lstm")
    write_checkpoint(path, MODEL, weights_of(MODEL))
    with pytest.raises(ShapeMismatch, match="it is not a GPT-2"):
        network.model_in(str(path), "gpt2")


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_halves_are_widened_exactly(dtype: str, path: Path) -> None:
    weights, found = weights_of(MODEL), weights_of(MODEL, None)
    write_checkpoint(path, MODEL, weights)
    halves = {name: array.astype(np.float16) for name, array in tensors_of(path).items()}
    save_file(halves, path)
    if dtype == "BF16":  # which NumPy lacks: the same bytes under another name
        upper = {name: (array.view(np.uint32) >> 16).astype(np.uint16) for name, array in _floats(halves).items()}
        save_file({name: bits.view(np.float16) for name, bits in upper.items()}, path)
        _rename_dtypes(path)
    read_checkpoint(path, MODEL, found)
    for name, array in weights.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)
    assert about(path)["dtype"] == dtype


def _floats(halves: Weights) -> Weights:
    return {name: array.astype(np.float32) for name, array in halves.items()}


def _rename_dtypes(path: Path) -> None:
    """Replace F16 by BF16 in a file's header."""
    content = path.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    header = content[8:end].replace(b'"F16"', b'"BF16"')
    path.write_bytes(len(header).to_bytes(8, "little") + header + content[end:])


def without(name: str) -> dict[str, None]:
    return {name: None}


ZEROS = np.zeros((4 * 6, 6), np.float32)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (without("lstm.bias_hh_l1"), ShapeMismatch, r"has no tensor lstm.bias_hh_l1; a model with .* shape \(24,\)"),
        (without("head.bias"), ShapeMismatch, "has no tensor head.bias"),
        (without("embedding.weight"), ShapeMismatch, "has no tensor embedding.weight"),
        (without("lstm.weight_hh_l0"), ShapeMismatch, "has no tensor lstm.weight_hh_l0"),
        (without("head.weight"), ShapeMismatch, r"model.embedding = 5 .*hidden \(6\)"),
        ({"lstm.weight_ih_l5": ZEROS}, ShapeMismatch, "has layer 5 but no layer 3: lstm.weight_ih_l3 is missing"),
        ({"lstm.weight_ih_l0_reverse": ZEROS}, ShapeMismatch, "has tensor lstm.weight_ih_l0_reverse, which"),
        ({"lstm.weight_hr_l0": ZEROS}, ShapeMismatch, "has tensor lstm.weight_hr_l0, which"),
        ({"lstm.weight_hh_l0": ZEROS[:23]}, ShapeMismatch, "has 23 rows; those of 4 gates"),
        ({"lstm.weight_hh_l0": ZEROS[0]}, ShapeMismatch, r"has shape \(6,\), not two dimensions"),
        ({"lstm.weight_hh_l2": ZEROS[:, :5].copy()}, ShapeMismatch, r"lstm.weight_hh_l2 has shape \(24, 5\)"),
        ({"head.weight": np.zeros((12, 6), np.float32)}, ShapeMismatch, r"head.weight has shape \(12, 6\).*\(11, 6\)"),
        ({"lstm.weight_ih_l0": ZEROS}, ShapeMismatch, r"lstm.weight_ih_l0 has shape \(24, 6\).* needs \(24, 5\)"),
        ({"head.bias": np.zeros(11)}, BadVersion, "head.bias is F64; supported: F32, F16, BF16"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_by_tensor(
    change: dict[str, np.ndarray | None], error: type[Exception], message: str, path: Path
) -> None:
    write_checkpoint(path, MODEL, weights_of(MODEL))
    changed = {**tensors_of(path), **change}
    save_file({name: array for name, array in changed.items() if array is not None}, path)
    found = weights_of(MODEL, None)
    with pytest.raises(error, match=message):
        read_checkpoint(path, MODEL, found)
    assert all(np.isnan(array).all() for array in found.values())


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Lstm(5, 6, 2, 11), "has tensor lstm.bias_hh_l2, which the requested model does not have"),
        (Lstm(5, 6, 4, 11), "has no tensor lstm.weight_ih_l3; the requested model needs"),
        (Lstm(5, 6, 3, 12), r"embedding.weight has shape \(11, 5\) in the file; the requested model needs \(12, 5\)"),
        (Lstm(6, 6, 3, 11, tied=True), r"embedding.weight has shape \(11, 5\)"),
    ],
)
def test_a_file_of_another_model_is_refused(model: Lstm, message: str, path: Path) -> None:
    write_checkpoint(path, MODEL, weights_of(MODEL))
    found = weights_of(model, None)
    with pytest.raises(ShapeMismatch, match=message):
        read_checkpoint(path, model, found)
    assert all(np.isnan(array).all() for array in found.values())


def test_files_that_are_none(path: Path, tmp_path: Path) -> None:
    path.write_bytes(b"not a header")
    with pytest.raises(BadMagic):
        read_model(path)
    with pytest.raises(UnreadableFile):
        read_model(tmp_path / "none.safetensors")
    with pytest.raises(ConfigError, match=r"ends in \.safetensors, the file format of an lstm"):
        write_checkpoint(tmp_path / "model.bin", MODEL, weights_of(MODEL))
    save_file({"x": np.zeros(2, np.float32)}, path)
    with pytest.raises(ShapeMismatch, match="not an LSTM's, but has x"):
        read_model(path)
