"""Ops that networks for classification share."""

from __future__ import annotations

from collections.abc import Sequence

from gpt2core.layers import linear, loss
from gpt2core.networks import language
from gpt2core.networks.language import LOGITS, LOSS, TARGETS
from gpt2core.spec.config import TrainConfig
from gpt2core.step import slicing
from gpt2core.step.builder import Builder
from gpt2core.step.ops import Tensor
from gpt2core.step.slicing import Slice
from gpt2core.step.tensors import TensorSpec

RIGHT, ACCURACIES = Tensor("right"), Tensor("accuracies")


def specs(config: TrainConfig) -> dict[str, list[TensorSpec]]:
    """Whether each row's class is right, and the share of them in each step, by their arenas."""
    if "loss" not in config.phases:
        return {"activations": [], "temporary": []}
    return {
        "activations": [TensorSpec(RIGHT.name, (config.batch,))],
        "temporary": [TensorSpec(ACCURACIES.name, (config.steps,), "float64")],
    }


def head(
    step: Builder, config: TrainConfig, slices: Sequence[Slice], *, inp: Tensor, weight: Tensor, bias: Tensor
) -> None:
    """Add the logits, and the step's loss and accuracy if it has them; with a reverse pass the gradient in place of the
    logits."""
    if not config.has_gradients:
        language.head(
            step, config, slices, inp=inp, weight=weight, bias=bias, right=RIGHT if config.score else None
        )
        if config.score:
            loss.accuracy(step, accuracies=ACCURACIES, right=RIGHT, micros=1)
        return
    grid, micros = slicing.grid(slices), config.grad_accum
    linear.forward(step, "logits", grid, None, out=LOGITS, inp=inp, weight=weight, bias=bias)
    loss.classes(
        step, grid, logits=LOGITS, loss=LOSS, right=RIGHT, targets=TARGETS, vocab=config.model.vocab, micros=micros
    )
    loss.mean(step, losses=Tensor("losses"), control=Tensor("control"), loss=LOSS, micros=micros)
    loss.accuracy(step, accuracies=ACCURACIES, right=RIGHT, micros=micros)
