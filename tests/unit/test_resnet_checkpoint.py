"""A ResNet's weights in safetensors: read exactly, written as torchvision names them, and refused by tensor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from gpt2core.networks import network
from gpt2core.networks.image_files import about, write_checkpoint
from gpt2core.networks.resnet.network import NETWORK
from gpt2core.networks.resnet.tensors import PRESETS, Resnet
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import BadVersion, ConfigError, ShapeMismatch

MODEL = Resnet(blocks=2, width=3, classes=5)
Weights = dict[str, np.ndarray]


def weights_of(model: Resnet, seed: int | None = 0) -> Weights:
    """Random weights; NaN without a seed."""
    rng = np.random.default_rng(seed)
    return {
        spec.name: np.full(spec.shape, np.nan, np.float32) if seed is None
        else rng.normal(size=spec.shape).astype(np.float32)
        for spec in model.weights
    }  # fmt: skip


def read_checkpoint(path: Path, model: Resnet, weights: Weights) -> None:
    NETWORK.read(TrainConfig(model, checkpoint=str(path)), weights)


def tensors_of(path: Path) -> Weights:
    with safe_open(path, framework="numpy") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


def test_what_is_written_is_read(path: Path) -> None:
    weights, found = weights_of(MODEL), weights_of(MODEL, None)
    write_checkpoint(path, MODEL, weights)
    assert NETWORK.model_in(str(path)) == MODEL
    read_checkpoint(path, MODEL, found)
    for name, array in weights.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)
    assert about(path) == {"format": "safetensors", "dtype": "F32"}


def test_names_and_shapes_are_torchvisions(path: Path) -> None:
    weights = weights_of(MODEL)
    write_checkpoint(path, MODEL, weights)
    stored = tensors_of(path)
    assert stored["layer2.0.downsample.0.weight"].shape == (6, 3, 1, 1)
    assert stored["fc.weight"].shape == (5, 12)
    conv = stored["layer3.0.conv1.weight"]
    assert conv.shape == (12, 6, 3, 3)
    assert conv[7, 4, 2, 1] == weights["layer3.0.conv1.weight"].reshape(12, 3, 3, 6)[7, 2, 1, 4]
    assert len(stored) == 1 + 2 * 6 + 2 + 2


def test_a_file_with_a_presets_sizes_has_its_name(path: Path) -> None:
    known = PRESETS["resnet14-cifar"]
    write_checkpoint(path, known, weights_of(known))
    assert NETWORK.model_in(str(path)) is known
    assert network.model_in(str(path)) is known


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"conv1.weight": None}, ShapeMismatch, "has no tensor conv1.weight, which a resnet needs, but has fc"),
        ({"fc.bias": None}, ShapeMismatch, r"has no tensor fc.bias; a model with conv1.weight \(3, 3, 3, 3\)"),
        ({"layer3.1.conv2.weight": None}, ShapeMismatch, "has no tensor layer3.1.conv2.weight"),
        ({"bn1.weight": np.zeros(3, np.float32)}, ShapeMismatch, "has tensor bn1.weight, which"),
        ({"layer4.0.conv1.weight": np.zeros(3, np.float32)}, ShapeMismatch, "has 4 stages of blocks"),
        ({"conv1.weight": np.zeros((3, 3, 7, 7), np.float32)}, ShapeMismatch, r"expected \(width, 3, 3, 3\)"),
        ({"conv1.weight": np.zeros((3, 3), np.float32)}, ShapeMismatch, r"\(3, 3\), not 4 dimensions"),
        ({"fc.bias": np.zeros(5)}, BadVersion, "fc.bias is F64"),
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


def test_a_file_of_another_model_is_refused(path: Path) -> None:
    write_checkpoint(path, MODEL, weights_of(MODEL))
    other = Resnet(blocks=2, width=3, classes=6)
    with pytest.raises(ShapeMismatch, match=r"fc.weight has shape \(5, 12\) in the file; the requested model needs"):
        read_checkpoint(path, other, weights_of(other, None))


def test_another_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ends in \.safetensors, the file format of a resnet"):
        write_checkpoint(tmp_path / "model.bin", MODEL, weights_of(MODEL))
