"""The update of a network's parameters for a configuration."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence

from gpt2core.optimizers import clipping
from gpt2core.optimizers.optimizer import Optimizer
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.optimizers import optimizer_of, schedule_of
from gpt2core.step.builder import Builder
from gpt2core.step.ops import Arena, Own, Tensor
from gpt2core.step.parameters import Parameter


def update_of(
    config: TrainConfig, share: clipping.Share | None = None
) -> Callable[[Builder, Sequence[Parameter], int | None, Arena | Own], None]:
    """The function (step, parameters, layer, gradients) that adds the optimizer's update of parameters as one op;
    before it, if the gradients' norm is limited, their norm. share: of several ranks, of whose gradients `parameters`
    are a part."""
    chosen, limited = optimizer_of(config), config.grad_clip > 0
    rates = Tensor("rates") if schedule_of(config).factor else None
    state = {name: Tensor(name) for name in chosen.tensors(config)}
    optimizer: Optimizer = importlib.import_module(chosen.module)

    def update(step: Builder, parameters: Sequence[Parameter], layer: int | None, gradients: Arena | Own) -> None:
        if limited and not isinstance(gradients, Own):  # else none is kept, which a limit refuses
            clipping.clip_norm(
                step, parameters, gradients, share,
                clipping=Tensor("clipping"), norms=Tensor("gradient_norms"), control=Tensor("control"),
                squares=Tensor("squares"), settings=Tensor("settings"),
            )  # fmt: skip
        optimizer.update(
            step, parameters, layer, gradients=gradients, settings=Tensor("settings"), rates=rates,
            clipping=Tensor("clipping") if limited else None, state=state,
        )  # fmt: skip

    return update
