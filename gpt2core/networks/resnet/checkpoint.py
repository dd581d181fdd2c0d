"""A ResNet's weights in safetensors, by the names of a torch module as torchvision's: (out, in, rows, columns) there,
(out, rows, columns, in) in memory.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gpt2core.networks import image_files
from gpt2core.networks.image_files import about
from gpt2core.networks.resnet.tensors import PRESETS, STAGES, Resnet, convolutions, weight_specs
from gpt2core.networks.shards import check_tensors, read_tensors
from gpt2core.spec.data import CHANNELS
from gpt2core.spec.errors import ConfigError, ShapeMismatch

__all__ = ["about", "check_suffix", "in_file", "read_checkpoint", "read_model", "shapes", "write_checkpoint"]

FIRST, HEAD = "conv1.weight", "fc.weight"
OF_BLOCK = re.compile(r"layer([1-9])\.(0|[1-9]\d{0,2})\.conv1\.weight")

Weights = Mapping[str, NDArray[np.float32]]


def read_model(path: str | Path) -> Resnet:
    """The model in a file, from the shapes of its tensors. It has a preset's name if it has that preset's sizes.

    No shape limits the images' side, so it is the default. Raises UnreadableFile, BadMagic, BadVersion, TruncatedFile,
    CountMismatch, ShapeMismatch.
    """
    stored = read_tensors(path).stored
    width, channels, *window = image_files.shape_of(path, stored, FIRST, 4, Resnet.network)
    classes, _ = image_files.shape_of(path, stored, HEAD, 2, Resnet.network)
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
    return image_files.shapes(weight_specs(model), convolutions(model))


def read_checkpoint(path: str | Path, model: Resnet, weights: Weights) -> None:
    """Fill the weights from a file. Nothing is written unless all tensors agree."""
    read_model(path)  # names a file that contradicts itself
    image_files.read(path, shapes(model), weights)


def in_file(model: Resnet, weights: Weights) -> dict[str, NDArray[np.float32]]:
    """The weights as files have them."""
    return image_files.in_file(shapes(model), weights)


def write_checkpoint(path: str | Path, model: Resnet, weights: Weights) -> None:
    """Write a file, completely or not at all. Raises ConfigError for another suffix, UnreadableFile."""
    image_files.write(path, shapes(model), weights, Resnet.network)


def check_suffix(path: str | Path) -> None:
    """Raise ConfigError for a path that names another format."""
    image_files.check_suffix(path, Resnet.network)
