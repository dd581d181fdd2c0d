"""Tables of GPT-2's tensors. No Numba and no NumPy: a server sizes runs with them."""

from __future__ import annotations

import functools
import math

from gpt2core.layers.sizes import ATTENTION_BLOCK, PART, PART_ROWS
from gpt2core.networks import token_rows
from gpt2core.optimizers import state
from gpt2core.spec.config import ModelConfig, TrainConfig
from gpt2core.step import slicing
from gpt2core.step.ops import Tensor
from gpt2core.step.tensors import HALF, TensorSpec


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


def lag(config: TrainConfig) -> int:
    """Number of layers by which weight gradients may lag behind: until then nothing overwrites what they read.

    On two threads one layer is enough. On more, the critical path would be longer by it (docs/decisions/0009).
    """
    return 1 if config.threads <= 2 else 2


def halves(config: TrainConfig) -> bool:
    """Whether `attended`, `hidden` and `logits` are bfloat16 (docs/decisions/0024)."""
    return config.precision == "bf16"


def activation_specs(config: TrainConfig) -> list[TensorSpec]:
    """Tensors that the forward pass keeps for the backward pass. N = B*T rows; LayerNorms are counted 0..2L.

    Before a part of `residual` is written, it has the output of the LayerNorm before it, and what the branch adds. The
    part of `hidden` after a layer's own has the GELU's output.

    In the backward pass, each part of `residual` becomes its gradient, and `hidden` the GELU's output. Other gradients
    are in parts that are no longer needed: that of a layer's `qkv` in the part after it, those of its `hidden` and of
    its LayerNorms' outputs in the parts that belong to the layer `lag` layers after it. A LayerNorm's output replaces
    its gradient once it has been read.
    """
    model = model_of(config)
    L, C, NH, N, after = model.layers, model.channels, model.heads, config.batch * config.seq, lag(config)
    kind = HALF if halves(config) else "float32"
    return [
        *token_rows.specs(config),
        TensorSpec("residual", (2 * (L + after) + 1, N, C)),
        TensorSpec("mean", (2 * L + 1, N)),
        TensorSpec("rstd", (2 * L + 1, N)),
        TensorSpec("qkv", (L + 1, N, 3 * C)),
        TensorSpec("lse", (L, N, NH)),
        TensorSpec("attended", (L, N, C), kind),
        TensorSpec("hidden", (L + after, N, 4 * C), kind),
        *head_specs(config)["activations"],
    ]


def head_specs(config: TrainConfig) -> dict[str, list[TensorSpec]]:
    """The tensors of the head by their arenas."""
    model = model_of(config)
    return token_rows.head_specs(config, model.channels, model.padded_vocab, HALF if halves(config) else "float32")


def places(config: TrainConfig) -> dict[Tensor, Tensor]:
    """Tensors that lie where others do: `lag` is how far apart are those of one layer that weight gradients read."""
    L, after = model_of(config).layers, lag(config)
    found = {}
    for i in range(2 * L + 1):
        found[Tensor("normed", i)] = Tensor("residual", i + 1)
        found[Tensor("dnormed", i)] = Tensor("residual", i + 2 * after)
    for layer in range(L):
        hidden, later = Tensor("hidden", layer), Tensor("hidden", layer + after)
        found[Tensor("activated", layer)] = Tensor("hidden", layer + 1)
        found[Tensor("dhidden", layer)] = later
        found[Tensor("expanded", layer)] = Tensor("wide") if halves(config) else hidden
        found[Tensor("dactivated", layer)] = Tensor("wide") if halves(config) else later
        found[Tensor("dqkv", layer)] = Tensor("qkv", layer + 1)
        found[Tensor("heads", layer)] = found[Tensor("dattended", layer)] = Tensor("dattended")
    return found


def temporary_specs(config: TrainConfig) -> list[TensorSpec]:
    """The gradient of attention's output, partial sums, scratch for each thread.

    With bfloat16, `dattended` has attention's output before it is rounded, `wide` that of fc and the gradient of
    GELU's; `rounded` and `part` are a thread's rows and part of the logits.
    """
    model = model_of(config)
    L, C, N = model.layers, model.channels, config.batch * config.seq
    rows = min(math.prod(slicing.sizes(config)), PART_ROWS)
    for_halves = [
        TensorSpec("wide", (N, 4 * C)),
        TensorSpec("rounded", (config.threads, rows, C), HALF),
        TensorSpec("part", (config.threads, min(PART, rows * model.padded_vocab))),  # at least a row
    ]
    return [
        TensorSpec("dattended", (N, C)),
        *(for_halves if halves(config) else []),
        *head_specs(config)["temporary"],
        *([TensorSpec("partial", ((2 * L + 1) * slicing.count(config), 2 * C))] if config.mode == "train" else []),
        TensorSpec("strips", (config.threads, 2, (ATTENTION_BLOCK + 1) * config.seq)),
        *([TensorSpec("gradient", (config.threads, block_gradient_size(model)))] if config.fused == "all" else []),
        *(state.clipping(config.steps, update_parts(model)) if config.grad_clip else []),
    ]


@functools.lru_cache(maxsize=16)
def _trained(model: ModelConfig, names: tuple[str, ...], keeps_gradients: bool) -> dict[str, list[TensorSpec]]:
    return state.arenas_with(names, weight_specs(model), keeps_gradients)


def tensors(config: TrainConfig) -> dict[str, list[TensorSpec]]:
    """Every tensor by its arena. With fusion "all" a gradient lives only until its task has updated the weight."""
    return {
        **_trained(model_of(config), state.names(config), config.fused != "all"),
        "activations": activation_specs(config),
        "temporary": temporary_specs(config),
    }
