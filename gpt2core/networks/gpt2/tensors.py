"""Shapes of GPT-2's tensors; places of activations follow from their lifetimes (networks/lifetimes.py). No Numba and
no NumPy: a server sizes runs with them.
"""

from __future__ import annotations

import functools
import math

from gpt2core.layers.sizes import ATTENTION_BLOCK, PART, PART_ROWS, TOLD
from gpt2core.networks import generation, token_rows
from gpt2core.optimizers import state
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.generation import positions
from gpt2core.spec.models import ModelConfig
from gpt2core.step import slicing
from gpt2core.step.tensors import HALF, TensorSpec

MATRICES = ("wte", "wpe", "qkvw", "attprojw", "fcw", "fcprojw")
# The dimension of each weight that ranks divide: wte by tokens, qkv by heads, fc by columns, and the two projections by
# what these give.
DIVIDED = {"wte": 0, "qkvw": 1, "qkvb": 1, "attprojw": 2, "fcw": 1, "fcb": 1, "fcprojw": 2}


def model_of(config: TrainConfig) -> ModelConfig:
    """The sizes of the GPT-2 that a configuration trains. Raises TypeError for another network's."""
    if not isinstance(config.model, ModelConfig):
        raise TypeError(f"{config.model} is not a GPT-2")
    return config.model


@functools.lru_cache(maxsize=16)  # a sweep sizes thousands of runs of one model
def weight_specs(model: ModelConfig, ranks: int = 1) -> tuple[TensorSpec, ...]:
    """GPT-2's weights in llm.c's order: matrices are (out, in), each kind stacked over the L layers. ranks: those that
    divide the matrices; the shapes are then one's (DIVIDED)."""
    L, C, Vp = model.layers, model.channels, model.padded_vocab
    whole = (
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
    return tuple(spec.part(DIVIDED, ranks) for spec in whole)


@functools.lru_cache(maxsize=16)
def block_gradient_size(model: ModelConfig, ranks: int) -> int:
    """Elements of the gradient of one block of any weight, with its bias, or of a LayerNorm."""
    specs = weight_specs(model, ranks)
    matrices = [spec.shape[-2:] for spec in specs if len(spec.shape) == 3 or spec.name in ("wte", "wpe")]
    return max(2 * model.channels, *(slicing.block_rows(*shape) * (shape[1] + 1) for shape in matrices))


def update_parts(model: ModelConfig, ranks: int) -> int:
    """Number of tiles that update weights: the blocks of every matrix, and every LayerNorm."""
    shape = {spec.name: spec.shape[-2:] for spec in weight_specs(model, ranks)}

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
    becomes `hidden`, and `dactivated` becomes `dhidden`. A rank of several that divide the matrices has K
    channels of its own heads.
    """
    model, ranks = model_of(config), config.matrix_ranks
    L, C, NH, N = model.layers, model.channels, model.heads // ranks, config.batch * config.seq
    K = C // ranks
    kind = HALF if halves(config) else "float32"
    return [
        *([TensorSpec("last", (1, C))] if config.generate else token_rows.specs(config)),
        *(TensorSpec(name, (2 * L + 1, N, C)) for name in ("residual", "normed", "dnormed")),
        *(TensorSpec(name, (2 * L + 1, N)) for name in ("mean", "rstd")),
        *(TensorSpec(name, (L, N, 3 * K)) for name in ("qkv", "dqkv")),
        TensorSpec("lse", (L, N, NH)),
        *(TensorSpec(name, (L, N, K)) for name in ("heads", "dattended")),
        TensorSpec("attended", (L, N, K), kind),
        *(TensorSpec(name, (L, N, 4 * K)) for name in ("expanded", "dactivated")),
        *(TensorSpec(name, (L, N, 4 * K), kind) for name in ("hidden", "activated", "dhidden")),
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
    columns = model.padded_vocab // config.matrix_ranks
    return token_rows.head_specs(config, model.channels, columns, HALF if halves(config) else "float32")


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
    of_blocks = [TensorSpec("gradient", (config.threads, block_gradient_size(model, config.matrix_ranks)))]
    return [
        *(for_halves if halves(config) else []),
        *sums_of_ranks(config),
        *head_specs(config)["temporary"],
        *([TensorSpec("partial", ((2 * L + 1) * slicing.count(config), 2 * C))] if config.has_gradients else []),
        TensorSpec("scores", (config.threads, positions(config)))
        if config.generate and not config.reads_prompt
        else TensorSpec("strips", (config.threads, 2, (ATTENTION_BLOCK + 1) * config.seq)),
        *(of_blocks if config.fused == "all" else []),
        *(state.clipping(config.steps, update_parts(model, config.matrix_ranks)) if config.grad_clip else []),
    ]


def sums_of_ranks(config: TrainConfig) -> list[TensorSpec]:
    """What ranks that divide the matrices exchange: their parts of rows' sums, and what each tells of its logits."""
    rows, others = config.batch * config.seq, config.matrix_ranks - 1
    widths = {"sums": model_of(config).channels, "softmax": TOLD} if others else {}
    return [TensorSpec(f"{whose}_{name}", (count * rows, width))
            for name, width in widths.items() for whose, count in (("own", 1), ("other", others))]  # fmt: skip


@functools.lru_cache(maxsize=16)
def _trained(
    model: ModelConfig, ranks: int, names: tuple[str, ...], keeps_gradients: bool
) -> dict[str, list[TensorSpec]]:
    return state.arenas_with(names, weight_specs(model, ranks), keeps_gradients)


def tensors(config: TrainConfig) -> dict[str, list[TensorSpec]]:
    """Every tensor by its arena. With fusion "all" a gradient lives only until its task has updated the weight."""
    trained = _trained(model_of(config), config.matrix_ranks, state.names(config), config.fused != "all")
    return {
        **state.in_precision(config, trained, MATRICES),
        "activations": activation_specs(config),
        "temporary": temporary_specs(config),
    }
