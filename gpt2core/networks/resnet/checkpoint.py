"""A ResNet's weights in safetensors, by the names of a torch module as torchvision's: (out, in, rows, columns) there,
(out, rows, columns, in) in memory.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save_file

from gpt2core.networks.resnet.tensors import PRESETS, STAGES, Resnet, convolutions, weight_specs
from gpt2core.networks.shards import Stored, check_tensors, few, read_tensors
from gpt2core.node.files import replacing
from gpt2core.spec.data import CHANNELS
from gpt2core.spec.errors import ConfigError, ShapeMismatch, UnreadableFile

FIRST, HEAD = "conv1.weight", "fc.weight"
SUFFIX = ".safetensors"
OF_BLOCK = re.compile(r"layer([1-9])\.(0|[1-9]\d{0,2})\.conv1\.weight")

Weights = Mapping[str, NDArray[np.float32]]


def read_model(path: str | Path) -> Resnet:
    """The model in a file, from the shapes of its tensors. It has a preset's name if it has that preset's sizes.

    No shape limits the images' side, so it is the default. Raises UnreadableFile, BadMagic, BadVersion, TruncatedFile,
    CountMismatch, ShapeMismatch.
    """
    stored = read_tensors(path).stored
    width, channels, *window = _shape(path, stored, FIRST, 4)
    classes, _ = _shape(path, stored, HEAD, 2)
    if (channels, *window) != (CHANNELS, 3, 3):
        raise ShapeMismatch(path, f"{FIRST} has shape {(width, channels, *window)}; expected (width, {CHANNELS}, 3, 3)")
    found = {(int(each[1]), int(each[2])) for name in stored if (each := OF_BLOCK.fullmatch(name))}
    if not found or max(found)[0] != STAGES:
        raise ShapeMismatch(path, f"has {max(found, default=(0,))[0]} stages of blocks; a resnet has {STAGES}")
    try:
        model = Resnet(1 + max(index for _, index in found), width, classes)
    except ConfigError as error:
        raise ShapeMismatch(path, f"its {error}") from error
    check_tensors(path, stored, shapes(model), f"a model with {FIRST} {(width, channels, *window)}")
    return next((each for each in PRESETS.values() if dataclasses.replace(each, name=model.name) == model), model)


def shapes(model: Resnet) -> dict[str, tuple[int, ...]]:
    """Shape of each tensor in a file."""
    windows = {each.weight: (each.OC, each.C, each.size, each.size) for each in convolutions(model)}
    return {spec.name: windows.get(spec.name, spec.shape) for spec in weight_specs(model)}


def read_checkpoint(path: str | Path, model: Resnet, weights: Weights) -> None:
    """Fill the weights from a file; F16 and BF16 are widened exactly. Nothing is written unless all tensors agree."""
    read_model(path)  # names a file that contradicts itself
    stored = read_tensors(path).stored
    check_tensors(path, stored, shapes(model), "the requested model")
    for name, shape in shapes(model).items():
        out = np.empty(shape, np.float32)
        stored[name].copy_to(out)
        weights[name][...] = _channels_last(out).reshape(weights[name].shape)


def _channels_last(weight: NDArray[np.float32]) -> NDArray[np.float32]:
    return weight.transpose(0, 2, 3, 1) if weight.ndim == 4 else weight


def in_file(model: Resnet, weights: Weights) -> dict[str, NDArray[np.float32]]:
    """The weights as files have them."""
    found = {}
    for name, shape in shapes(model).items():
        array = weights[name]
        if len(shape) == 4:
            array = array.reshape(shape[0], *shape[2:], shape[1]).transpose(0, 3, 1, 2)
        found[name] = np.ascontiguousarray(array)
    return found


def about(path: str | Path) -> dict[str, Any]:
    """Format of a file and of its numbers, as the result has them."""
    dtypes = sorted({each.dtype for each in read_tensors(path).stored.values()})
    return {"format": "safetensors", "dtype": ", ".join(dtypes)}


def write_checkpoint(path: str | Path, model: Resnet, weights: Weights) -> None:
    """Write a file, completely or not at all. Raises ConfigError for another suffix, UnreadableFile."""
    check_suffix(path)
    with replacing(path) as part:
        try:
            save_file(in_file(model, weights), part, {"format": "pt"})
        except SafetensorError as error:
            raise UnreadableFile(path, str(error)) from error


def check_suffix(path: str | Path) -> None:
    """Raise ConfigError for a path that names another format."""
    if Path(path).suffix != SUFFIX:
        raise ConfigError("save", str(path), f"a path that ends in {SUFFIX}, the file format of a resnet")


def _shape(path: str | Path, stored: Mapping[str, Stored], name: str, rank: int) -> tuple[int, ...]:
    if name not in stored:
        raise ShapeMismatch(path, f"has no tensor {name}, which a resnet needs, but has {few(stored.keys())}")
    shape = stored[name].shape
    if len(shape) != rank:
        raise ShapeMismatch(path, f"{name} has shape {shape}, not {rank} dimensions")
    return shape
