"""Weights and files of a small GPT-2, for the tests of checkpoints."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from gpt2core.networks.gpt2.tensors import weight_specs
from gpt2core.spec.models import ModelConfig

MODEL = ModelConfig(layers=2, heads=3, channels=24, vocab=50, context=11)
Weights = dict[str, np.ndarray]


def buffers(model: ModelConfig = MODEL, fill: float = np.nan) -> Weights:
    return {spec.name: np.full(spec.shape, fill, dtype=np.float32) for spec in weight_specs(model)}


def random_weights(model: ModelConfig = MODEL, seed: int = 0) -> Weights:
    rng = np.random.default_rng(seed)
    weights = {spec.name: rng.standard_normal(spec.shape, dtype=np.float32) for spec in weight_specs(model)}
    weights["wte"][model.vocab :] = 0.0
    return weights


def assert_same(got: Weights, expected: Weights) -> None:
    for name, array in expected.items():
        np.testing.assert_array_equal(got[name], array, err_msg=name)


def patch_header(path: Path, index: int, value: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[4 * index : 4 * index + 4] = value.to_bytes(4, "little", signed=True)
    path.write_bytes(raw)


def rewrite(path: Path, change: Callable[[Weights], Any], metadata: dict[str, str] | None = None) -> None:
    """Save a safetensors file again after a change to its tensors."""
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata if metadata is not None else {"n_head": str(MODEL.heads)})


def halves(array: np.ndarray) -> np.ndarray:
    """The bfloat16 of each float32, cut off, as its bits."""
    return (array.view(np.uint32) >> 16).astype(np.uint16)


def write_bf16(path: Path, tensors: Weights, metadata: dict[str, str] | None = None) -> None:
    """A safetensors file whose tensors are BF16; NumPy has no such dtype, so the header is written here."""
    header: dict[str, Any] = {"__metadata__": metadata or {"format": "pt"}}
    at, parts = 0, []
    for name, array in tensors.items():
        bits = halves(np.ascontiguousarray(array)).tobytes()
        header[name] = {"dtype": "BF16", "shape": list(array.shape), "data_offsets": [at, at + len(bits)]}
        at += len(bits)
        parts.append(bits)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(parts))
