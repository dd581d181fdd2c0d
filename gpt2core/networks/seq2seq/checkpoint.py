"""Weights in safetensors, by the names of a torch module with `source_embedding`, `encoder`, `target_embedding`,
`decoder`, `combine` and `head`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save_file

from gpt2core.networks.seq2seq.tensors import PRESETS, Seq2seq, weight_specs
from gpt2core.networks.shards import Stored, check_tensors, few, read_tensors
from gpt2core.node.files import replacing
from gpt2core.spec.errors import ConfigError, ShapeMismatch, UnreadableFile

EMBEDDING, RECURRENT = "source_embedding.weight", "decoder.weight_hh_l0"
SUFFIX = ".safetensors"
PLAIN = {
    "source_embedding": EMBEDDING, "target_embedding": "target_embedding.weight", "combine": "combine.weight",
    "head": "head.weight", "head_bias": "head.bias",
    **{f"{of}_{kind}{way}{bias}": f"{of}.{'bias' if bias else 'weight'}_{kind}_l0{way}"
       for of, way in (("encoder", ""), ("encoder", "_reverse"), ("decoder", ""))
       for kind in ("ih", "hh") for bias in ("", "_bias")},
}  # fmt: skip

Weights = Mapping[str, NDArray[np.float32]]


def read_model(path: str | Path) -> Seq2seq:
    """The model in a file, from the shapes of its tensors. It has a preset's name if it has that preset's sizes.

    No shape limits the context, so it is the default. Raises UnreadableFile, BadMagic, BadVersion, TruncatedFile,
    CountMismatch, ShapeMismatch.
    """
    stored = read_tensors(path).stored
    vocab, embedding = _two_sizes(path, stored, EMBEDDING)
    rows, hidden = _two_sizes(path, stored, RECURRENT)
    try:
        model = Seq2seq(embedding, hidden, vocab)
    except ConfigError as error:
        raise ShapeMismatch(path, f"its {error}") from error
    given = f"a model with {RECURRENT} {(rows, hidden)} and {EMBEDDING} {(vocab, embedding)}"
    check_tensors(path, stored, shapes(model), given)
    return next((each for each in PRESETS.values() if dataclasses.replace(each, name=model.name) == model), model)


def read_checkpoint(path: str | Path, model: Seq2seq, weights: Weights) -> None:
    """Fill the weights from a file; F16 and BF16 are widened exactly. Nothing is written unless all tensors agree."""
    read_model(path)  # names a file that contradicts itself
    stored = read_tensors(path).stored
    check_tensors(path, stored, shapes(model), "the requested model")
    for name, part in parts(weights):
        stored[name].copy_to(part)


def about(path: str | Path) -> dict[str, Any]:
    """Format of a file and of its numbers, as the result has them."""
    dtypes = sorted({each.dtype for each in read_tensors(path).stored.values()})
    return {"format": "safetensors", "dtype": ", ".join(dtypes)}


def write_checkpoint(path: str | Path, _model: Seq2seq, weights: Weights) -> None:
    """Write a file, completely or not at all. Raises ConfigError for another suffix, UnreadableFile."""
    check_suffix(path)
    with replacing(path) as part:
        try:
            save_file(dict(parts(weights)), part, {"format": "pt"})
        except SafetensorError as error:
            raise UnreadableFile(path, str(error)) from error


def check_suffix(path: str | Path) -> None:
    """Raise ConfigError for a path that names another format."""
    if Path(path).suffix != SUFFIX:
        raise ConfigError("save", str(path), f"a path that ends in {SUFFIX}, the file format of a seq2seq")


def parts(weights: Weights) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Each tensor of a file: a weight, or one direction's rows of it."""
    for name, array in weights.items():
        if name.startswith("encoder_ih"):
            half = len(array) // 2
            bias = name.removeprefix("encoder_ih")
            yield PLAIN[name], array[:half]
            yield PLAIN[f"encoder_ih_reverse{bias}"], array[half:]
        else:
            yield PLAIN[name], array


def shapes(model: Seq2seq) -> dict[str, tuple[int, ...]]:
    """Shape of each tensor in a file."""
    none = {spec.name: np.broadcast_to(np.float32(0), spec.shape) for spec in weight_specs(model)}
    return {name: part.shape for name, part in parts(none)}


def _two_sizes(path: str | Path, stored: Mapping[str, Stored], name: str) -> tuple[int, int]:
    if name not in stored:
        raise ShapeMismatch(path, f"has no tensor {name}: it is not a seq2seq's, but has {few(stored.keys())}")
    shape = stored[name].shape
    if len(shape) != 2:
        raise ShapeMismatch(path, f"{name} has shape {shape}, not two dimensions")
    return shape[0], shape[1]
