"""Tables of the tensors that an optimizer needs beside the weights. No Numba, because servers size runs with them."""

from __future__ import annotations

from collections.abc import Sequence

from gpt2core.step.tensors import ITEMSIZE, TensorSpec, plan_arena


def arenas(weights: Sequence[TensorSpec], keeps_gradients: bool = True) -> dict[str, list[TensorSpec]]:
    """Tensors for training some weights: weights, gradients and moments."""
    return {
        "weights": list(weights),
        "gradients": gradients(weights) if keeps_gradients else [],
        "optimizer": moments(weights),
    }


def gradients(weights: Sequence[TensorSpec]) -> list[TensorSpec]:
    """The weights' gradients, laid out as the weights are: dX is the gradient of X."""
    return [TensorSpec("d" + spec.name, spec.shape) for spec in weights]


def moments(weights: Sequence[TensorSpec]) -> list[TensorSpec]:
    """AdamW's two moments, each laid out as the whole weights arena is."""
    size = plan_arena(weights).bytes // ITEMSIZE["float32"]
    return [TensorSpec("first_moment", (size,)), TensorSpec("second_moment", (size,))]


def clipping(steps: int, parts: int) -> list[TensorSpec]:
    """The gradients' norm: its parts, each step's, and the factor that follows from it."""
    return [
        TensorSpec("squares", (parts,), "float64"),
        TensorSpec("gradient_norms", (steps,), "float64"),
        TensorSpec("clipping", (1,), "float64"),
    ]
