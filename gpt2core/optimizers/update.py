"""The update of a network's parameters for a configuration."""

from __future__ import annotations

from collections.abc import Sequence

from gpt2core.optimizers import adamw, clipping
from gpt2core.spec.config import TrainConfig
from gpt2core.step.builder import Builder
from gpt2core.step.ops import Arena, Own, Tensor
from gpt2core.step.parameters import GRADIENTS, Parameter


def update(
    step: Builder, config: TrainConfig, parameters: Sequence[Parameter], layer: int | None = None,
    gradients: Arena | Own = GRADIENTS,
) -> None:  # fmt: skip
    """Add AdamW of parameters as one op; before it, if the gradients' norm is limited, their norm."""
    if config.grad_clip:
        clipping.clip_norm(
            step, parameters,
            clipping=Tensor("clipping"), norms=Tensor("gradient_norms"), control=Tensor("control"),
            squares=Tensor("squares"), settings=Tensor("settings"),
        )  # fmt: skip
    adamw.update(
        step, parameters, layer, gradients=gradients, first=Tensor("first_moment"), second=Tensor("second_moment"),
        settings=Tensor("settings"), clipping=Tensor("clipping") if config.grad_clip else None,
    )
