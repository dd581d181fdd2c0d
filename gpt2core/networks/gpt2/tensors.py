"""Shapes of GPT-2's tensors; places of activations follow from their lifetimes (networks/lifetimes.py). No Numba and
no NumPy: a server sizes runs with them.
"""

from __future__ import annotations

import functools
import math

from gpt2core.layers.sizes import ATTENTION_BLOCK, PART, PART_ROWS
from gpt2core.networks import generation, token_rows
from gpt2core.optimizers import state
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.generation import positions
from gpt2core.spec.models import ModelConfig
from gpt2core.step import slicing
from gpt2core.step.tensors import HALF, TensorSpec

MATRICES = ("wte", "wpe", "qkvw", "attprojw", "fcw", "fcprojw")


def model_of(config: TrainConfig) -> ModelConfig:
    """The sizes of the GPT-2 that a configuration trains. Raises TypeError for another network's."""
    if not isinstance(config.model, ModelConfig):
        raise TypeError(f"{config.model} is not a GPT-2")
    return config.model


@functools.lru_cache(maxsize=16)  # a sweep sizes thousands of runs of one model
def weight_specs(model: ModelConfig) -> tuple[TensorSpec, ...]:
    """GPT-2's weights in llm.c's order: matrices are (out, in), each kind stacked over the L layers."""
    L, C, Vp = model.layers, model.channels, model.padded_vocab
    return (
        TensorSpec("wte", (Vp, C)),
        TensorSpec("wpe", (model.context, C)),
        TensorSpec("ln1w", (L, C)),
        TensorSpec("ln1b", (L, C)),
        TensorSpec("qkvw", (L, 3 * C, C)),
        TensorSpec("qkvb", (L, 3 * C)),
        TensorSpec("attprojw", (L, C, C)),
        TensorSpec("attprojb", (L, C)),
        TensorSpec("ln2w", (L, C)),
        TensorSpec("ln2b", (L, C)),
        TensorSpec("fcw", (L, 4 * C, C)),
        TensorSpec("fcb", (L, 4 * C)),
        TensorSpec("fcprojw", (L, C, 4 * C)),
        TensorSpec("fcprojb", (L, C)),
        TensorSpec("lnfw", (C,)),
        TensorSpec("lnfb", (C,)),
    )


@functools.lru_cache(maxsize=16)
def block_gradient_size(model: ModelConfig) -> int:
    """Elements of the gradient of one block of any weight, with its bias, or of a LayerNorm."""
    matrices = [spec.shape[-2:] for spec in weight_specs(model) if len(spec.shape) == 3 or spec.name in ("wte", "wpe")]
    return max(2 * model.channels, *(slicing.block_rows(*shape) * (shape[1] + 1) for shape in matrices))


def update_parts(model: ModelConfig) -> int:
    """Number of tiles that update weights: the blocks of every matrix, and every LayerNorm."""
    shape = {spec.name: spec.shape[-2:] for spec in weight_specs(model)}

    def blocks(*names: str) -> int:
        return sum(slicing.block_count(*shape[name]) for name in names)

    layer = blocks("qkvw", "attprojw", "fcw", "fcprojw") + 2
    return blocks("wte", "wpe") + model.layers * layer + 1


def halves(config: TrainConfig) -> bool:
    """Whether `attended`, `hidden` and `logits` are bfloat16 (docs/decisions/0024). Those of generation are float32."""
    return config.precision == "bf16" and not config.generate


def activation_specs(config: TrainConfig) -> list[TensorSpec]:
    """Tensors of the forward pass, and their gradients. N = B*T rows; LayerNorms are counted 0..2L.

    With bfloat16, `heads` and `expanded` are what attention and fc give before they are rounded; else `expanded`
    becomes `hidden`, and `dactivated` becomes `dhidden`.
    """
    model = model_of(config)
    L, C, NH, N = model.layers, model.channels, model.heads, config.batch * config.seq
    kind = HALF if halves(config) else "float32"
    return [
        *([TensorSpec("last", (1, C))] if config.generate else token_rows.specs(config)),
        *(TensorSpec(name, (2 * L + 1, N, C)) for name in ("residual", "normed", "dnormed")),
        *(TensorSpec(name, (2 * L + 1, N)) for name in ("mean", "rstd")),
        *(TensorSpec(name, (L, N, 3 * C)) for name in ("qkv", "dqkv")),
        TensorSpec("lse", (L, N, NH)),
        *(TensorSpec(name, (L, N, C)) for name in ("heads", "dattended")),
        TensorSpec("attended", (L, N, C), kind),
        *(TensorSpec(name, (L, N, 4 * C)) for name in ("expanded", "dactivated")),
        *(TensorSpec(name, (L, N, 4 * C), kind) for name in ("hidden", "activated", "dhidden")),
        *head_specs(config)["activations"],
    ]


def cache_specs(config: TrainConfig) -> list[TensorSpec]:
    """Keys and values of every position that generation reads, head by head."""
    model = model_of(config)
    size = positions(config) * model.channels // model.heads
    return [TensorSpec(name, (model.layers, model.heads, size)) for name in ("keys", "values")]


def head_specs(config: TrainConfig) -> dict[str, list[TensorSpec]]:
    """The tensors of the head by their arenas."""
    model = model_of(config)
    if config.generate:
        return generation.specs(config, model.padded_vocab, 4 * model.channels, cache_specs(config))
    return token_rows.head_specs(config, model.channels, model.padded_vocab, HALF if halves(config) else "float32")


def temporary_specs(config: TrainConfig) -> list[TensorSpec]:
    """Partial sums, scratch for each thread. With bfloat16, `rounded` and `part` are a thread's rows and part of the
    logits.
    """
    model = model_of(config)
    L, C = model.layers, model.channels
    rows = min(math.prod(slicing.sizes(config)), PART_ROWS)
    for_halves = [
        TensorSpec("rounded", (config.threads, rows, C), HALF),
        TensorSpec("part", (config.threads, min(PART, rows * model.padded_vocab))),  # at least a row
    ]
    return [
        *(for_halves if halves(config) else []),
        *head_specs(config)["temporary"],
        *([TensorSpec("partial", ((2 * L + 1) * slicing.count(config), 2 * C))] if config.has_gradients else []),
        TensorSpec("scores", (config.threads, positions(config)))
        if config.generate and not config.reads_prompt
        else TensorSpec("strips", (config.threads, 2, (ATTENTION_BLOCK + 1) * config.seq)),
        *([TensorSpec("gradient", (config.threads, block_gradient_size(model)))] if config.fused == "all" else []),
        *(state.clipping(config.steps, update_parts(model)) if config.grad_clip else []),
    ]


@functools.lru_cache(maxsize=16)
def _trained(model: ModelConfig, names: tuple[str, ...], keeps_gradients: bool) -> dict[str, list[TensorSpec]]:
    return state.arenas_with(names, weight_specs(model), keeps_gradients)


def tensors(config: TrainConfig) -> dict[str, list[TensorSpec]]:
    """Every tensor by its arena. With fusion "all" a gradient lives only until its task has updated the weight."""
    trained = _trained(model_of(config), state.names(config), config.fused != "all")
    return {
        **state.in_precision(config, trained, MATRICES),
        "activations": activation_specs(config),
        "temporary": temporary_specs(config),
    }
