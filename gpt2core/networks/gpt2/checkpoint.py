"""A model's weights in files (llm.c's checkpoint, Hugging Face's GPT-2 safetensors)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from gpt2core.data.header import HEADER_BYTES, Header, new_header, read_header
from gpt2core.networks import halves
from gpt2core.networks.gpt2 import safetensors_file
from gpt2core.networks.gpt2.tensors import weight_specs
from gpt2core.networks.shards import is_safetensors
from gpt2core.node.files import open_regular, replacing
from gpt2core.spec.errors import ConfigError, CountMismatch, ShapeMismatch, TruncatedFile
from gpt2core.spec.models import PRESETS, ModelConfig

MAGIC = 20240326
FP32, BF16 = 3, 5
VERSIONS = {FP32: "fp32", BF16: "bf16"}
DTYPES = {FP32: "F32", BF16: "BF16"}  # as safetensors names them
VERSION_ITEM_BYTES = {FP32: 4, BF16: 2}
SUFFIXES = (".bin", ".safetensors")
CONVERTED_AT_ONCE = 1 << 20

Weights = Mapping[str, NDArray[np.float32]]


def read_model(path: str | Path) -> ModelConfig:
    """The model of a checkpoint, a file or Hugging Face's folder. It has a preset's name if it has that preset's sizes.

    If neither a safetensors file nor its config.json has the number of heads, heads of 64 channels are assumed.
    Raises UnreadableFile, BadMagic, BadVersion, TruncatedFile, CountMismatch, ShapeMismatch.
    """
    if is_safetensors(path):
        return with_preset_name(safetensors_file.read_model(path))
    with open_regular(path) as (stream, size_bytes):
        return with_preset_name(_llmc_model(path, _llmc_header(path, stream), size_bytes))


def read_checkpoint(path: str | Path, model: ModelConfig, weights: Weights) -> None:
    """Fill weights, arrays of float32 or bfloat16 named and shaped as weight_specs(model) says, from a checkpoint.

    llm.c's bf16 and safetensors' BF16 and F16 are widened exactly; for arrays of bfloat16 all are rounded. The padded
    rows of wte become zero, whatever the file contains. Raises ShapeMismatch naming the first tensor that differs from
    the model's, else as read_model; nothing is written to weights unless all sizes agree.
    """
    check_buffers(model, weights)
    if is_safetensors(path):
        check_same_model(path, safetensors_file.read_model(path, model.heads), model)
        safetensors_file.read_weights(path, model, weights)
    else:
        with open_regular(path) as (stream, size_bytes):
            header = _llmc_header(path, stream)
            check_same_model(path, _llmc_model(path, header, size_bytes), model)
            for spec in weight_specs(model):
                for part in halves.parts(weights[spec.name]):
                    _read_into(path, stream, part, int(header[1]))
    weights["wte"][model.vocab :] = 0


def write_checkpoint(path: str | Path, model: ModelConfig, weights: Weights) -> None:
    """Write weights, completely or not at all: an llm.c checkpoint in fp32 (.bin) or Hugging Face's GPT-2
    (.safetensors).

    Raises ConfigError for another suffix, UnreadableFile where it cannot be written.
    """
    check_buffers(model, weights)
    suffix = check_suffix(path)
    with replacing(path) as part:
        if suffix == ".safetensors":
            safetensors_file.write_weights(part, model, weights)
            return
        sizes = (model.context, model.vocab, model.layers, model.heads, model.channels, model.padded_vocab)
        with part.open("wb") as stream:
            stream.write(new_header(MAGIC, FP32, *sizes).tobytes())
            for spec in weight_specs(model):
                stream.write(weights[spec.name].astype("<f4", copy=False).data)


def check_suffix(path: str | Path) -> str:
    """The suffix that selects the format. Raises ConfigError for an unknown one."""
    suffix = Path(path).suffix
    if suffix not in SUFFIXES:
        raise ConfigError("save", str(path), "a path that ends in " + " or ".join(SUFFIXES))
    return suffix


def about(path: str | Path) -> dict[str, Any]:
    """Format and number format of a checkpoint, as a result has them."""
    if is_safetensors(path):
        return {"format": "safetensors", "dtype": ", ".join(safetensors_file.dtypes(path))}
    with open_regular(path) as (stream, _):
        return {"format": "llm.c", "dtype": DTYPES[int(_llmc_header(path, stream)[1])]}


def with_preset_name(model: ModelConfig) -> ModelConfig:
    for preset in PRESETS.values():
        if dataclasses.replace(preset, name=model.name) == model:
            return preset
    return model


def check_buffers(model: ModelConfig, weights: Weights) -> None:
    """Raise ValueError unless weights has every weight of the model, as a C-ordered array of its shape, of float32 or
    bfloat16."""
    for spec in weight_specs(model):
        array = weights[spec.name]
        if array.shape != spec.shape or array.dtype not in (np.float32, np.uint16) or not array.flags.c_contiguous:
            raise ValueError(f"{spec.name} is {array.dtype} {array.shape}, not C-ordered float32 {spec.shape}")


def check_same_model(path: str | Path, found: ModelConfig, model: ModelConfig) -> None:
    """Raise ShapeMismatch, naming the first tensor and both its sizes, unless the models agree in all but the name."""
    for theirs, ours in zip(weight_specs(found), weight_specs(model), strict=True):
        if theirs.shape != ours.shape:
            found_shape = f"{theirs.name} has shape {theirs.shape} in the file"
            raise ShapeMismatch(path, f"{found_shape}; the model needs {ours.shape}")
    for size in ("vocab", "heads"):
        if getattr(found, size) != getattr(model, size):
            sizes = f"{size} is {getattr(found, size)} in the file; the model has {getattr(model, size)}"
            raise ShapeMismatch(path, sizes)


def _llmc_header(path: str | Path, stream: BinaryIO) -> Header:
    return read_header(path, stream, MAGIC, VERSIONS)


def _llmc_model(path: str | Path, header: Header, size_bytes: int) -> ModelConfig:
    """The header's model, once the file has the size that it implies."""
    context, vocab, layers, heads, channels, padded_vocab = (int(value) for value in header[2:8])
    try:
        model = ModelConfig(layers, heads, channels, vocab, context)
    except ConfigError as error:
        raise ShapeMismatch(path, f"the header's {error}") from error
    if padded_vocab != model.padded_vocab:
        needed = f"{vocab} tokens, padded to a multiple of 128, need {model.padded_vocab}"
        raise ShapeMismatch(path, f"wte has {padded_vocab} rows in the file; {needed}")
    values = sum(spec.size for spec in weight_specs(model))
    expected_bytes = HEADER_BYTES + values * VERSION_ITEM_BYTES[int(header[1])]
    if size_bytes < expected_bytes:
        raise TruncatedFile(path, f"{size_bytes} bytes; the header's {values} weights need {expected_bytes}")
    if size_bytes > expected_bytes:
        raise CountMismatch(path, f"{size_bytes} bytes; the header's {values} weights fill only {expected_bytes}")
    return model


def _read_into(path: str | Path, stream: BinaryIO, flat: NDArray[np.float32], version: int) -> None:
    """Fill an array of one dimension with the next values of the file."""
    if version == FP32:
        _read_exactly(path, stream, flat)
        return
    half = np.empty(min(len(flat), CONVERTED_AT_ONCE), dtype=np.uint16)
    for start in range(0, len(flat), CONVERTED_AT_ONCE):
        bits = flat[start : start + CONVERTED_AT_ONCE].view(np.uint32)
        _read_exactly(path, stream, half[: len(bits)])
        bits[...] = half[: len(bits)]
        bits <<= 16  # a bf16 is the upper half of the float32 of the same value


def _read_exactly(path: str | Path, stream: BinaryIO, out: NDArray[np.float32] | NDArray[np.uint16]) -> None:
    if stream.readinto(out.data.cast("B")) != out.nbytes:  # type: ignore[attr-defined]
        raise TruncatedFile(path, "the file ended while it was read")
