"""Tables of the tensors that an optimizer needs beside the weights. No Numba, because servers size runs with them."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from gpt2core.spec.config import TrainConfig
from gpt2core.spec.optimizers import optimizer_of, schedule_of
from gpt2core.step import slicing
from gpt2core.step.tensors import HALF, ITEMSIZE, TensorSpec, plan_arena


def arenas(config: TrainConfig, weights: Sequence[TensorSpec]) -> dict[str, list[TensorSpec]]:
    """Tensors for training some weights: weights, gradients and the optimizer's."""
    return arenas_with(names(config), weights, keeps_gradients=True)


def arenas_with(
    names: Sequence[str], weights: Sequence[TensorSpec], keeps_gradients: bool
) -> dict[str, list[TensorSpec]]:
    """`arenas` with an optimizer's tensors of these names, each laid out as the whole weights arena is."""
    size = plan_arena(weights).bytes // ITEMSIZE["float32"]
    return {
        "weights": list(weights),
        "gradients": gradients(weights) if keeps_gradients else [],
        "optimizer": [TensorSpec(name, (size,)) for name in names],
    }


def constant(tensors: Mapping[str, list[TensorSpec]], keeps_gradients: bool) -> dict[str, list[TensorSpec]]:
    """Tensors of a step that updates nothing: weights, which no task writes, and nothing of the optimizer's."""
    weights = [dataclasses.replace(spec, constant=True) for spec in tensors["weights"]]
    kept = tensors["gradients"] if keeps_gradients else []
    return {**tensors, "weights": weights, "gradients": kept, "optimizer": []}


def in_precision(
    config: TrainConfig, tensors: Mapping[str, list[TensorSpec]], matrices: Collection[str]
) -> Mapping[str, list[TensorSpec]]:
    """Tensors with these weights as bfloat16 where the run keeps them so."""
    if not config.has_half_weights:
        return tensors
    weights = [
        dataclasses.replace(spec, dtype=HALF) if spec.name in matrices else spec for spec in tensors["weights"]
    ]
    return {**tensors, "weights": weights}


def of_shards(config: TrainConfig, elements: int) -> list[TensorSpec]:
    """The optimizer's tensors of a rank, which keeps those of its shards."""
    return [TensorSpec(name, (elements,)) for name in names(config)]


def names(config: TrainConfig) -> tuple[str, ...]:
    """Names of the optimizer's tensors in a run."""
    return optimizer_of(config).tensors(config)


def gradients(weights: Sequence[TensorSpec]) -> list[TensorSpec]:
    """The weights' gradients, laid out as the weights are: dX is the gradient of X."""
    return [TensorSpec("d" + spec.name, spec.shape) for spec in weights]


def settings(config: TrainConfig) -> list[TensorSpec]:
    """The optimizer's settings, the weight decay of biases and the limit of the gradients' norm; with a schedule the
    learning rate of each step."""
    rates = [TensorSpec("rates", (config.steps,), "float64", True)] if schedule_of(config).factor else []
    return [TensorSpec("settings", (len(optimizer_of(config).settings) + 2,), "float64", True), *rates]


def clipping(steps: int, parts: int) -> list[TensorSpec]:
    """The gradients' norm: its parts, each step's, and the factor that follows from it."""
    return [
        TensorSpec("squares", (parts,), "float64"),
        TensorSpec("gradient_norms", (steps,), "float64"),
        TensorSpec("clipping", (1,), "float64"),
    ]


def for_update(config: TrainConfig, matrices: Sequence[tuple[int, ...]]) -> list[TensorSpec]:
    """What the update of these matrices and of their biases needs, block by block: with fusion "all" the gradient of
    each thread's block, and with a limit the gradients' norm."""
    sizes = [slicing.block_rows(rows, columns) * (columns + 1) for rows, columns in matrices]
    parts = sum(slicing.block_count(rows, columns) for rows, columns in matrices)
    return [
        *([TensorSpec("gradient", (config.threads, max(sizes)))] if config.fused == "all" else []),
        *(clipping(config.steps, parts) if config.grad_clip else []),
    ]
