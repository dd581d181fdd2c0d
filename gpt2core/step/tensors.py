"""Tables of (name, shape, dtype): every tensor of a run, and so every size, known before anything is allocated.

Standard library only, so that a server can answer how much memory a run needs without loading a trainer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from gpt2core.spec.config import ModelConfig, TrainConfig
from gpt2core.step import control, slicing

ALIGN = 64
ITEMSIZE = {"float32": 4, "float64": 8, "int32": 4, "int64": 8}
KINDS = ("weights", "gradients", "optimizer", "activations", "temporary")
ATTENTION_BLOCK = 64  # queries that attention takes at a time
PANEL = 48  # columns of B that our own matrix product brings together
PRODUCT_DEPTH = 768  # words of a column that it takes at a time
PRODUCT_BLOCK = 256 * PRODUCT_DEPTH  # words of A: with a panel, what a core's second cache holds
PRODUCT_SCRATCH = PRODUCT_DEPTH * (PANEL + 2) + PRODUCT_BLOCK  # words; two for the place of a line


@dataclass(frozen=True)
class TensorSpec:
    """One tensor: its name, its shape (outermost first, C order) and its dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.size * ITEMSIZE[self.dtype]


@dataclass(frozen=True)
class ArenaPlan:
    """Where each tensor lies in one arena: byte offsets, each a multiple of ALIGN."""

    specs: tuple[TensorSpec, ...]
    offsets: tuple[int, ...]
    bytes: int


def plan_arena(specs: Iterable[TensorSpec]) -> ArenaPlan:
    """Lay tensors one after the other, each aligned."""
    specs, offsets, end = tuple(specs), [], 0
    for spec in specs:
        offsets.append(end)
        end += -(-spec.bytes // ALIGN) * ALIGN
    return ArenaPlan(specs, tuple(offsets), end)


def weight_specs(model: ModelConfig) -> list[TensorSpec]:
    """GPT-2's weights in llm.c's order: matrices are (out, in), each kind stacked over the L layers."""
    L, C, Vp = model.layers, model.channels, model.padded_vocab
    return [
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
    ]


def gradient_specs(model: ModelConfig) -> list[TensorSpec]:
    """The weights' gradients, laid out as the weights are: dX is the gradient of X."""
    return [TensorSpec("d" + spec.name, spec.shape) for spec in weight_specs(model)]


def optimizer_specs(model: ModelConfig) -> list[TensorSpec]:
    """AdamW's two moments, each laid out as the whole weights arena is."""
    size = plan_arena(weight_specs(model)).bytes // ITEMSIZE["float32"]
    return [TensorSpec("first_moment", (size,)), TensorSpec("second_moment", (size,))]


def ring_layers(model: ModelConfig) -> int:
    """Layers whose activation gradients live at once: weight gradients may lag behind by that much."""
    return min(model.layers, 3)


def block_gradient_size(model: ModelConfig) -> int:
    """Elements of the gradient of one block, whichever weight's, with that of its bias; of a LayerNorm's too."""
    matrices = [spec.shape[-2:] for spec in weight_specs(model) if len(spec.shape) == 3 or spec.name in ("wte", "wpe")]
    return max(2 * model.channels, *(slicing.block_rows(*shape) * (shape[1] + 1) for shape in matrices))


def update_parts(model: ModelConfig) -> int:
    """How many tiles update the weights: the blocks of every matrix, and every LayerNorm."""
    shape = {spec.name: spec.shape[-2:] for spec in weight_specs(model)}

    def blocks(*names: str) -> int:
        return sum(len(slicing.cut_rows(*shape[name])) for name in names)

    layer = blocks("qkvw", "attprojw", "fcw", "fcprojw") + 2
    return blocks("wte", "wpe") + model.layers * layer + 1


def activation_specs(config: TrainConfig) -> list[TensorSpec]:
    """What the forward pass keeps for the backward pass. N = B*T rows; LayerNorms are counted 0..2L."""
    model = config.model
    L, C, NH, N = model.layers, model.channels, model.heads, config.batch * config.seq
    return [
        TensorSpec("inputs", (N,), "int32"),
        TensorSpec("targets", (N,), "int32"),
        TensorSpec("row_batch", (N,), "int32"),
        TensorSpec("row_time", (N,), "int32"),
        TensorSpec("residual", (2 * L + 1, N, C)),
        TensorSpec("normed", (2 * L + 1, N, C)),
        TensorSpec("mean", (2 * L + 1, N)),
        TensorSpec("rstd", (2 * L + 1, N)),
        TensorSpec("qkv", (L, N, 3 * C)),
        TensorSpec("lse", (L, N, NH)),
        TensorSpec("attended", (L, N, C)),
        TensorSpec("hidden", (L, N, 4 * C)),
        TensorSpec("logits", (N, model.padded_vocab)),
        TensorSpec("loss", (N,)),
    ]


def temporary_specs(config: TrainConfig) -> list[TensorSpec]:
    """Gradients of activations, in rings of a few layers; partial sums; scratch for each thread; the run's scalars."""
    model = config.model
    L, C, N, ring = model.layers, model.channels, config.batch * config.seq, ring_layers(config.model)
    return [
        TensorSpec("branch", (N, C)),
        TensorSpec("dnormed", (N, C)),
        TensorSpec("dresidual", (2 * ring + 1, N, C)),
        TensorSpec("dqkv", (ring, N, 3 * C)),
        TensorSpec("dattended", (ring, N, C)),
        TensorSpec("dhidden", (ring, N, 4 * C)),
        TensorSpec("activated", (ring, N, 4 * C)),
        TensorSpec("partial", ((2 * L + 1) * slicing.count(config), 2 * C)),
        TensorSpec("strips", (config.threads, 2, ATTENTION_BLOCK * config.seq)),
        *([TensorSpec("gradient", (config.threads, block_gradient_size(model)))] if config.fused == "all" else []),
        TensorSpec("words", (config.threads, PRODUCT_SCRATCH), "int32"),
        TensorSpec("losses", (config.steps,), "float64"),
        *(clipping_specs(config) if config.grad_clip else []),
        TensorSpec("settings", (6,), "float64"),
        TensorSpec("control", (control.CELLS,), "int64"),
    ]


def clipping_specs(config: TrainConfig) -> list[TensorSpec]:
    """The gradients' norm: its parts, each step's, and the factor that follows from it."""
    return [
        TensorSpec("squares", (update_parts(config.model),), "float64"),
        TensorSpec("gradient_norms", (config.steps,), "float64"),
        TensorSpec("clipping", (1,), "float64"),
    ]


def plan(config: TrainConfig) -> dict[str, ArenaPlan]:
    """One arena a kind."""
    return {
        "weights": plan_arena(weight_specs(config.model)),
        "gradients": plan_arena([] if config.fused == "all" else gradient_specs(config.model)),
        "optimizer": plan_arena(optimizer_specs(config.model)),
        "activations": plan_arena(activation_specs(config)),
        "temporary": plan_arena(temporary_specs(config)),
    }


def memory_bytes(config: TrainConfig) -> dict[str, int]:
    """Bytes of each arena; exact."""
    return {kind: arena.bytes for kind, arena in plan(config).items()}
