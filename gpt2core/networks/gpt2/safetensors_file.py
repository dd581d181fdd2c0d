"""Hugging Face's GPT-2 in safetensors: its names, its Conv1D matrices, which are (in, out), and its configuration."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save_file

from gpt2core.networks.gpt2.tensors import weight_specs
from gpt2core.networks.shards import CONFIG, DTYPES, Tensors, read_config, read_tensors
from gpt2core.spec.errors import BadVersion, ConfigError, ShapeMismatch, UnreadableFile
from gpt2core.spec.models import ModelConfig

PREFIX = "transformer."  # of every name in a model with a head
HEAD = "lm_head.weight"  # the output matrix, which is wte
MASKS = (".attn.bias", ".attn.masked_bias")  # buffers, no weights
CHOICE = "multiple_choice_head."  # a second head of GPT2DoubleHeadsModel, beside the output matrix
HEAD_CHANNELS = 64  # channels of a head in every published GPT-2
# Keys of config.json that determine the function, with the values of GPT-2; each is missing in some files.
FUNCTION: Mapping[str, Sequence[object]] = {
    "model_type": ("gpt2",),
    "architectures": (["GPT2LMHeadModel"], ["GPT2Model"], ["GPT2DoubleHeadsModel"]),
    "auto_map": ({},),  # code beside the weights
    "activation_function": ("gelu_new", "gelu_pytorch_tanh", "gelu_fast"),  # three names of one function
    "layer_norm_epsilon": (1e-5,),
    "scale_attn_weights": (True,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "add_cross_attention": (False,),
    "tie_word_embeddings": (True,),
    "pruned_heads": ({},),
}
# Other names of sizes in config.json, which take precedence in Hugging Face's library.
SIZES = {"num_attention_heads": "n_head", "hidden_size": "n_embd", "num_hidden_layers": "n_layer",
         "max_position_embeddings": "n_positions"}  # fmt: skip
ADAPTER = "adapter_config.json"  # of weights that are added to those of the folder
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
    as JSON), the folder's config.json, `heads`, one head per 64 channels. A model whose configuration or tensors
    compute another function than GPT-2 is refused.
    Raises UnreadableFile, BadMagic, BadVersion, TruncatedFile, CountMismatch, ShapeMismatch.
    """
    tensors = _read(path)
    shapes = {name: each.shape for name, each in tensors.stored.items()}
    vocab, channels = _two_sizes(path, shapes, SINGLE["wte"])
    context, _ = _two_sizes(path, shapes, SINGLE["wpe"])
    layers = len({name.split(".")[1] for name in shapes if name.startswith("h.")})
    found = _given_heads(tensors, channels)
    if found is None:
        found = heads if heads and channels % heads == 0 else max(channels // HEAD_CHANNELS, 1)
    try:
        model = ModelConfig(layers, found, channels, vocab, context)
    except ConfigError as error:
        raise ShapeMismatch(path, f"its {error}") from error
    expected = tensor_shapes(model)
    for name, shape in expected.items():
        if name not in shapes:
            raise ShapeMismatch(path, f"has no tensor {name}, which a model of {layers} layers needs")
        if shapes[name] != shape:
            message = f"{name} has shape {shapes[name]} in the file"
            raise ShapeMismatch(path, f"{message}; with wte {(vocab, channels)} it is {shape}")
        dtype = tensors.stored[name].dtype
        if dtype not in DTYPES:
            raise BadVersion(path, f"{name} is {dtype}; supported: " + ", ".join(DTYPES))
    _check_others(tensors, expected)
    for where, config in _configs(tensors, channels):
        _check_config(where, config, model)
    return model


def read_weights(path: str | Path, model: ModelConfig, weights: Weights) -> None:
    """Fill all but the padded rows of wte from a file whose model is `model`, the result of read_model."""
    stored = _read(path).stored
    for name, ours in _places(model, weights):
        stored[name].copy_to(ours)


def dtypes(path: str | Path) -> list[str]:
    """The formats of the model's numbers, such as BF16."""
    return sorted({each.dtype for name, each in _read(path).stored.items() if not name.endswith(MASKS)})


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


def _read(path: str | Path) -> Tensors:
    """The file's tensors, without the prefix of a model with a head."""
    tensors = read_tensors(path)
    stored = {name.removeprefix(PREFIX): each for name, each in tensors.stored.items()}
    return dataclasses.replace(tensors, stored=stored)


def _two_sizes(path: str | Path, shapes: Mapping[str, tuple[int, ...]], name: str) -> tuple[int, int]:
    if len(shapes.get(name, ())) != 2:
        raise ShapeMismatch(path, f"has no tensor {name} of two dimensions: it is not a GPT-2")
    return shapes[name][0], shapes[name][1]


def _configs(tensors: Tensors, channels: int) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """The model's configurations with the file of each: in the metadata, and config.json in the folder. Beside a single
    file, a config.json of another number of channels is another model's.
    """
    with contextlib.suppress(ValueError, RecursionError):
        config = json.loads(tensors.metadata.get("config", ""))
        if isinstance(config, dict):
            yield tensors.path, _renamed(config)
    beside = _renamed(read_config(tensors.folder) or {})
    if tensors.path.suffix != ".safetensors" or beside.get("n_embd", channels) == channels:
        yield tensors.folder / CONFIG, beside


def _renamed(config: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**config, **{SIZES[key]: value for key, value in config.items() if key in SIZES}}


def _given_heads(tensors: Tensors, channels: int) -> int | None:
    """The number of heads in the metadata or the configuration; None if neither has it. Raises BadVersion."""
    if tensors.metadata.get("n_head", "").isdecimal():
        return int(tensors.metadata["n_head"])
    for where, config in _configs(tensors, channels):
        heads: object = config.get("n_head")
        if heads is not None and (not isinstance(heads, int) or isinstance(heads, bool)):
            raise BadVersion(where, f"n_head = {heads!r}; supported: a whole number")
        if heads is not None:
            return heads
    return None


def _check_config(where: Path, config: Mapping[str, Any], model: ModelConfig) -> None:
    """Raise ShapeMismatch for a configuration of other sizes, BadVersion for one of another function."""
    sizes = {"n_embd": model.channels, "n_layer": model.layers, "n_positions": model.context, "vocab_size": model.vocab,
             "n_ctx": model.context, "n_inner": 4 * model.channels}  # fmt: skip
    for key, size in sizes.items():
        if config.get(key) not in (None, size):
            raise ShapeMismatch(where, f"{key} = {config[key]!r}; the tensors beside it have {size}")
    for key, accepted in FUNCTION.items():
        if config.get(key) is not None and config[key] not in accepted:
            supported = " or ".join(json.dumps(value) for value in accepted)
            message = f"{key} = {json.dumps(config[key])} computes another function; supported: {supported}"
            raise BadVersion(where, message)


def _check_others(tensors: Tensors, expected: Mapping[str, Any]) -> None:
    """Raise BadVersion for a tensor that GPT-2 lacks, for an output matrix other than wte, and for an adapter."""
    if (tensors.folder / ADAPTER).exists():
        raise BadVersion(tensors.folder / ADAPTER, "names weights to add to these, which is not supported: merge them")
    for name in tensors.stored:
        if name not in expected and name != HEAD and not name.endswith(MASKS) and not name.startswith(CHOICE):
            raise BadVersion(tensors.path, f"{name} is no tensor of GPT-2, and would be ignored")
    head, wte = tensors.stored.get(HEAD), tensors.stored[SINGLE["wte"]]
    if head is not None and not (head.shape == wte.shape and head.same_values(wte)):
        raise BadVersion(tensors.path, f"{HEAD} differs from {SINGLE['wte']}; supported: one matrix for both")


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
