"""An LSTM's weights in safetensors, by the names of a torch module with `embedding`, `lstm` and `head`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save_file

from gpt2core.networks.lstm.tensors import GATES, PRESETS, Lstm, weight_specs
from gpt2core.networks.shards import Stored, check_tensors, few, read_tensors
from gpt2core.node.files import replacing
from gpt2core.spec.errors import ConfigError, ShapeMismatch, UnreadableFile

EMBEDDING, RECURRENT = "embedding.weight", "lstm.weight_hh_l0"
SUFFIX = ".safetensors"
OF_LAYER = re.compile(r"lstm\.(?:weight|bias)_(?:ih|hh)_l(0|[1-9]\d{0,3})")

Weights = Mapping[str, NDArray[np.float32]]


def read_model(path: str | Path) -> Lstm:
    """The model in a file, from the shapes of its tensors. It has a preset's name if it has that preset's sizes.

    No shape limits the context, so it is the default. Raises UnreadableFile, BadMagic, BadVersion, TruncatedFile,
    CountMismatch, ShapeMismatch.
    """
    stored = read_tensors(path).stored
    layers = _layers(path, stored.keys())
    vocab, embedding = _two_sizes(path, stored, EMBEDDING)
    rows, hidden = _two_sizes(path, stored, RECURRENT)
    if rows % GATES:
        raise ShapeMismatch(path, f"{RECURRENT} has {rows} rows; those of {GATES} gates are a multiple of {GATES}")
    try:
        model = Lstm(embedding, hidden, layers, vocab, tied="head.weight" not in stored)
    except ConfigError as error:
        raise ShapeMismatch(path, f"its {error}") from error
    given = f"a model with {RECURRENT} {(rows, hidden)} and {EMBEDDING} {(vocab, embedding)}"
    check_tensors(path, stored, shapes(model), given)
    return next((each for each in PRESETS.values() if dataclasses.replace(each, name=model.name) == model), model)


def read_checkpoint(path: str | Path, model: Lstm, weights: Weights) -> None:
    """Fill the weights from a file; F16 and BF16 are widened exactly. Nothing is written unless all tensors agree."""
    read_model(path)  # names a file that contradicts itself
    stored = read_tensors(path).stored
    check_tensors(path, stored, shapes(model), "the requested model")
    for spec in weight_specs(model):
        stored[file_name(spec.name)].copy_to(weights[spec.name])


def about(path: str | Path) -> dict[str, Any]:
    """Format of a file and of its numbers, as the result has them."""
    dtypes = sorted({each.dtype for each in read_tensors(path).stored.values()})
    return {"format": "safetensors", "dtype": ", ".join(dtypes)}


def write_checkpoint(path: str | Path, model: Lstm, weights: Weights) -> None:
    """Write a file, completely or not at all. Raises ConfigError for another suffix, UnreadableFile."""
    check_suffix(path)
    tensors = {file_name(spec.name): weights[spec.name] for spec in weight_specs(model)}
    with replacing(path) as part:
        try:
            save_file(tensors, part, {"format": "pt"})
        except SafetensorError as error:
            raise UnreadableFile(path, str(error)) from error


def check_suffix(path: str | Path) -> None:
    """Raise ConfigError for a path that names another format."""
    if Path(path).suffix != SUFFIX:
        raise ConfigError("save", str(path), f"a path that ends in {SUFFIX}, the file format of an lstm")


def shapes(model: Lstm) -> dict[str, tuple[int, ...]]:
    """Shape of each tensor in a file."""
    return {file_name(spec.name): spec.shape for spec in weight_specs(model)}


def file_name(weight: str) -> str:
    """A weight's name in files."""
    single = {"embedding": EMBEDDING, "head": "head.weight", "head_bias": "head.bias"}
    return single.get(weight, f"lstm.{weight}")


def _layers(path: str | Path, names: Set[str]) -> int:
    """Number of layers. Raises ShapeMismatch if there are none, or gaps."""
    found = {int(each[1]) for name in names if (each := OF_LAYER.fullmatch(name))}
    if not found:
        raise ShapeMismatch(path, f"has no tensor {RECURRENT}: it is not an LSTM's, but has {few(names)}")
    gap = next((k for k in range(max(found)) if k not in found), None)
    if gap is not None:
        raise ShapeMismatch(path, f"has layer {max(found)} but no layer {gap}: lstm.weight_ih_l{gap} is missing")
    return 1 + max(found)


def _two_sizes(path: str | Path, stored: Mapping[str, Stored], name: str) -> tuple[int, int]:
    if name not in stored:
        raise ShapeMismatch(path, f"has no tensor {name}, which an LSTM needs")
    shape = stored[name].shape
    if len(shape) != 2:
        raise ShapeMismatch(path, f"{name} has shape {shape}, not two dimensions")
    return shape[0], shape[1]
