"""Weights of networks with convolutions in safetensors, by the names of a torch module: (out, in, rows, columns) there,
(out, rows, columns, in) in memory. `shapes`: those in a file, by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save_file

from gpt2core.layers.windows import Convolution
from gpt2core.networks.shards import Stored, check_tensors, few, read_tensors
from gpt2core.node.files import replacing
from gpt2core.spec.errors import ConfigError, ShapeMismatch, UnreadableFile
from gpt2core.step.tensors import TensorSpec

SUFFIX = ".safetensors"

Weights = Mapping[str, NDArray[np.float32]]
Shapes = Mapping[str, tuple[int, ...]]


def shapes(specs: Iterable[TensorSpec], convolutions: Iterable[Convolution]) -> dict[str, tuple[int, ...]]:
    """Shape of each tensor in a file."""
    windows = {each.weight: (each.OC, each.C, each.size, each.size) for each in convolutions}
    return {spec.name: windows.get(spec.name, spec.shape) for spec in specs}


def read(path: str | Path, shapes: Shapes, weights: Weights) -> None:
    """Fill the weights from a file; F16 and BF16 are widened exactly. Nothing is written unless all tensors agree."""
    stored = read_tensors(path).stored
    check_tensors(path, stored, shapes, "the requested model")
    for name, shape in shapes.items():
        out = np.empty(shape, np.float32)
        stored[name].copy_to(out)
        if out.ndim == 4:
            out = out.transpose(0, 2, 3, 1)
        weights[name][...] = out.reshape(weights[name].shape)


def in_file(shapes: Shapes, weights: Weights) -> dict[str, NDArray[np.float32]]:
    """The weights as files have them."""
    found = {}
    for name, shape in shapes.items():
        array = weights[name]
        if len(shape) == 4:
            array = array.reshape(shape[0], *shape[2:], shape[1]).transpose(0, 3, 1, 2)
        found[name] = np.ascontiguousarray(array)
    return found


def about(path: str | Path) -> dict[str, Any]:
    """Format of a file and of its numbers, as the result has them."""
    dtypes = sorted({each.dtype for each in read_tensors(path).stored.values()})
    return {"format": "safetensors", "dtype": ", ".join(dtypes)}


def write(path: str | Path, shapes: Shapes, weights: Weights, network: str) -> None:
    """Write a file, completely or not at all. Raises ConfigError for another suffix, UnreadableFile."""
    check_suffix(path, network)
    with replacing(path) as part:
        try:
            save_file(in_file(shapes, weights), part, {"format": "pt"})
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
