"""The update of a network's parameters for a configuration."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from gpt2core.optimizers import clipping
from gpt2core.optimizers.optimizer import Optimizer
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.optimizers import optimizer_of, schedule_of
from gpt2core.step.builder import Builder
from gpt2core.step.ops import Arena, Own, Tensor
from gpt2core.step.parameters import GRADIENTS, Parameter


def update(
    step: Builder, config: TrainConfig, parameters: Sequence[Parameter], layer: int | None = None,
    gradients: Arena | Own = GRADIENTS,
) -> None:  # fmt: skip
    """Add the optimizer's update of parameters as one op; before it, if the gradients' norm is limited, their norm."""
    if config.grad_clip:
        clipping.clip_norm(
            step, parameters,
            clipping=Tensor("clipping"), norms=Tensor("gradient_norms"), control=Tensor("control"),
            squares=Tensor("squares"), settings=Tensor("settings"),
        )  # fmt: skip
    chosen = optimizer_of(config)
    optimizer: Optimizer = importlib.import_module(chosen.module)
    optimizer.update(
        step, parameters, layer, gradients=gradients, settings=Tensor("settings"),
        rates=Tensor("rates") if schedule_of(config).factor else None,
        clipping=Tensor("clipping") if config.grad_clip else None,
        state={name: Tensor(name) for name in chosen.tensors(config)},
    )  # fmt: skip
