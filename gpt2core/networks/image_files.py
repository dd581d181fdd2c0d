"""Weights of networks of convolutions in safetensors, by torchvision's names. A convolution's weight is (out, in, rows,
columns) there and (out, rows, columns, in) in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save_file

from gpt2core.networks.convolutional import ConvolutionalModel, ConvolutionalNetwork
from gpt2core.networks.shards import Stored, check_tensors, few, read_tensors
from gpt2core.node.files import replacing
from gpt2core.spec.data import CHANNELS
from gpt2core.spec.errors import ConfigError, ShapeMismatch, UnreadableFile

SUFFIX = ".safetensors"

Weights = Mapping[str, NDArray[np.float32]]

def read_model(path: str | Path, network: ConvolutionalNetwork) -> ConvolutionalModel:
    """The model in a file, from the shapes of its tensors. It has a preset's name if it has that preset's sizes.

    No shape limits the images' side, so it is the default. Raises UnreadableFile, BadMagic, BadVersion, TruncatedFile,
    CountMismatch, ShapeMismatch.
    """
    stored, name = read_tensors(path).stored, network.model.network
    width, channels, *window = first = shape_of(path, stored, network.first, 4, name)
    classes, inputs = shape_of(path, stored, network.last, 2, name)
    if (channels, *window) != (CHANNELS, 3, 3):
        raise ShapeMismatch(path, f"{network.first} has shape {first}; expected (width, {CHANNELS}, 3, 3)")
    try:
        model = network.sized(path, stored.keys(), width, classes, inputs)
    except ConfigError as error:
        raise ShapeMismatch(path, f"its {error}") from error
    check_tensors(path, stored, shapes(model), f"a model with {network.first} {first}")
    presets = [each for each in network.presets.values() if isinstance(each, ConvolutionalModel)]
    return next((each for each in presets if {**each.to_dict(), "name": model.name} == model.to_dict()), model)


def shapes(model: ConvolutionalModel) -> dict[str, tuple[int, ...]]:
    """Shape of each tensor in a file."""
    windows = {each.weight: (each.OC, each.C, each.size, each.size) for each in model.convolutions}
    return {spec.name: windows.get(spec.name, spec.shape) for spec in model.weights}


def read_checkpoint(path: str | Path, model: ConvolutionalModel, weights: Weights) -> None:
    """Fill the weights from a file; F16 and BF16 are widened exactly. Nothing is written unless all tensors agree."""
    stored, expected = read_tensors(path).stored, shapes(model)
    check_tensors(path, stored, expected, "the requested model")
    for name, shape in expected.items():
        out = np.empty(shape, np.float32)
        stored[name].copy_to(out)
        if out.ndim == 4:
            out = out.transpose(0, 2, 3, 1)
        weights[name][...] = out.reshape(weights[name].shape)


def in_file(model: ConvolutionalModel, weights: Weights) -> dict[str, NDArray[np.float32]]:
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


def write_checkpoint(path: str | Path, model: ConvolutionalModel, weights: Weights) -> None:
    """Write a file, completely or not at all. Raises ConfigError for another suffix, UnreadableFile."""
    check_suffix(path, model.network)
    with replacing(path) as part:
        try:
            save_file(in_file(model, weights), part, {"format": "pt"})
        except SafetensorError as error:
            raise UnreadableFile(path, str(error)) from error


def check_suffix(path: str | Path, network: str) -> None:
    """Raise ConfigError for a path that names another format."""
    if Path(path).suffix != SUFFIX:
        raise ConfigError("save", str(path), f"a path that ends in {SUFFIX}, the file format of a {network}")


def shape_of(path: str | Path, stored: Mapping[str, Stored], name: str, rank: int, network: str) -> tuple[int, ...]:
    """Shape of a tensor that a network's file must have. Raises ShapeMismatch."""
    if name not in stored:
        raise ShapeMismatch(path, f"has no tensor {name}, which a {network} needs, but has {few(stored.keys())}")
    shape = stored[name].shape
    if len(shape) != rank:
        raise ShapeMismatch(path, f"{name} has shape {shape}, not {rank} dimensions")
    return shape
