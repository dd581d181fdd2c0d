"""Hugging Face's GPT-2 in safetensors: its names, and its Conv1D matrices, which are (in, out)."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from gpt2core.networks.gpt2.tensors import weight_specs
from gpt2core.node.files import open_regular
from gpt2core.spec.config import ModelConfig
from gpt2core.spec.errors import (
    BadMagic,
    BadVersion,
    ConfigError,
    CountMismatch,
    ShapeMismatch,
    TruncatedFile,
    UnreadableFile,
)

PREFIX = "transformer."  # of every name in a model with a head
READ_DTYPES = ("F32", "F16")
HEAD_CHANNELS = 64  # channels of a head in every published GPT-2
LENGTH_BYTES = 8
MOST_HEADER_BYTES = 100_000_000  # the format's own limit
TRANSPOSED = ("qkvw", "attprojw", "fcw", "fcprojw")

SINGLE = {"wte": "wte.weight", "wpe": "wpe.weight", "lnfw": "ln_f.weight", "lnfb": "ln_f.bias"}
PER_LAYER = {
    "ln1w": "ln_1.weight",
    "ln1b": "ln_1.bias",
    "qkvw": "attn.c_attn.weight",
    "qkvb": "attn.c_attn.bias",
    "attprojw": "attn.c_proj.weight",
    "attprojb": "attn.c_proj.bias",
    "ln2w": "ln_2.weight",
    "ln2b": "ln_2.bias",
    "fcw": "mlp.c_fc.weight",
    "fcb": "mlp.c_fc.bias",
    "fcprojw": "mlp.c_proj.weight",
    "fcprojb": "mlp.c_proj.bias",
}

Weights = Mapping[str, NDArray[np.float32]]


def read_model(path: str | Path, heads: int | None = None) -> ModelConfig:
    """The model, from the shapes of the tensors, each of which is checked against the others.

    No shape contains the number of heads. The first of these sources counts: the file's metadata (`n_head`, or `config`
    as JSON), a config.json in the file's folder with the same number of channels, `heads`, one head per 64 channels.
    Raises UnreadableFile, BadMagic, BadVersion, TruncatedFile, CountMismatch, ShapeMismatch.
    """
    with opened(path) as file:
        names = file.keys()
        shapes = {name.removeprefix(PREFIX): tuple(file.get_slice(name).get_shape()) for name in names}
        vocab, channels = _two_sizes(path, shapes, SINGLE["wte"])
        context, _ = _two_sizes(path, shapes, SINGLE["wpe"])
        layers = len({name.split(".")[1] for name in shapes if name.startswith("h.")})
        found = _said_heads(path, file.metadata() or {}, channels)
        if found is None:
            found = heads if heads and channels % heads == 0 else max(channels // HEAD_CHANNELS, 1)
        try:
            model = ModelConfig(layers, found, channels, vocab, context)
        except ConfigError as error:
            raise ShapeMismatch(path, f"its {error}") from error
        for name, shape in tensor_shapes(model).items():
            if name not in shapes:
                raise ShapeMismatch(path, f"has no tensor {name}, which a model of {layers} layers needs")
            if shapes[name] != shape:
                told = f"{name} has shape {shapes[name]} in the file"
                raise ShapeMismatch(path, f"{told}; with wte {(vocab, channels)} it is {shape}")
            dtype = file.get_slice(_name_in(file, name)).get_dtype()
            if dtype not in READ_DTYPES:
                raise BadVersion(path, f"{name} is {dtype}; supported: " + ", ".join(READ_DTYPES))
        return model


def read_weights(path: str | Path, model: ModelConfig, weights: Weights) -> None:
    """Fill all but the padded rows of wte from a file whose model is `model`, the result of read_model."""
    with opened(path) as file:
        for name, ours in _places(model, weights):
            ours[...] = file.get_tensor(_name_in(file, name))


def write_weights(path: str | Path, model: ModelConfig, weights: Weights) -> None:
    """Write the file in place. Meanwhile the matrices are in memory twice."""
    tensors = {name: np.ascontiguousarray(ours) for name, ours in _places(model, weights)}
    try:
        save_file(tensors, path, {"format": "pt", "n_head": str(model.heads)})
    except SafetensorError as error:
        raise UnreadableFile(path, str(error)) from error


def tensor_shapes(model: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Hugging Face's name and shape of every tensor of the model."""
    specs = {spec.name: np.broadcast_to(np.float32(0), spec.shape) for spec in weight_specs(model)}
    return {name: array.shape for name, array in _places(model, specs)}


@contextlib.contextmanager
def opened(path: str | Path) -> Iterator[Any]:
    """Open the safetensors file. The library has one error for all faults; the header tells them apart."""
    with open_regular(path) as (stream, size_bytes):
        try:
            with safe_open(path, framework="numpy") as file:
                yield file
        except SafetensorError as error:
            raw = stream.read(LENGTH_BYTES + 1)
            header_bytes = int.from_bytes(raw[:LENGTH_BYTES], "little")
            if len(raw) > LENGTH_BYTES and (raw[-1:] != b"{" or header_bytes > MOST_HEADER_BYTES):
                raise BadMagic(path, "does not begin with a safetensors header") from error
            if size_bytes < LENGTH_BYTES + header_bytes:
                raise TruncatedFile(path, f"{size_bytes} bytes; fewer than its header needs") from error
            stream.seek(LENGTH_BYTES)
            expected_bytes = _described_bytes(stream.read(header_bytes))
            if expected_bytes is None:
                raise BadMagic(path, f"has no safetensors header: {error}") from error
            expected_bytes += LENGTH_BYTES + header_bytes
            if size_bytes < expected_bytes:
                raise TruncatedFile(path, f"{size_bytes} bytes; its header's tensors need {expected_bytes}") from error
            raise CountMismatch(path, f"{size_bytes} bytes, {expected_bytes} by its header: {error}") from error


def _described_bytes(header: bytes) -> int | None:
    """The end of the last tensor according to the header, or None for an invalid header."""
    try:
        entries = json.loads(header)
        return max(int(entry["data_offsets"][1]) for name, entry in entries.items() if name != "__metadata__")
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return None


def _two_sizes(path: str | Path, shapes: Mapping[str, tuple[int, ...]], name: str) -> tuple[int, int]:
    if len(shapes.get(name, ())) != 2:
        raise ShapeMismatch(path, f"has no tensor {name} of two dimensions: it is not a GPT-2")
    return shapes[name][0], shapes[name][1]


def _said_heads(path: str | Path, metadata: Mapping[str, str], channels: int) -> int | None:
    """The number of heads in the metadata or in a config.json beside the file; None if neither has it."""
    if metadata.get("n_head", "").isdecimal():
        return int(metadata["n_head"])
    texts = [metadata.get("config", "")]
    with contextlib.suppress(OSError, UnicodeDecodeError):
        texts.append(Path(path).with_name("config.json").read_text(encoding="utf-8"))
    for text in texts:
        with contextlib.suppress(ValueError):
            config = json.loads(text)
            if isinstance(config, dict) and config.get("n_embd", channels) == channels:
                heads: object = config.get("n_head")
                if isinstance(heads, int) and not isinstance(heads, bool):
                    return heads
    return None


def _name_in(file: Any, name: str) -> str:
    names = file.keys()
    return PREFIX + name if PREFIX + name in names else name


def _places(
    model: ModelConfig, weights: Mapping[str, NDArray[np.float32]]
) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Each of Hugging Face's names with the view of our weights that has its shape."""
    for ours, name in SINGLE.items():
        yield name, weights[ours][: model.vocab] if ours == "wte" else weights[ours]
    for layer in range(model.layers):
        for ours, name in PER_LAYER.items():
            view = weights[ours][layer]
            yield f"h.{layer}.{name}", view.T if ours in TRANSPOSED else view
