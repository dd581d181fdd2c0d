"""Ops that networks for next-token prediction share."""

from __future__ import annotations

from gpt2core.layers import loss, tokens
from gpt2core.spec.config import TrainConfig
from gpt2core.step.builder import Builder
from gpt2core.step.grid import Grid
from gpt2core.step.ops import Outside, Tensor


def load(step: Builder, config: TrainConfig, grid: Grid) -> None:
    """Add the loading of a batch's tokens and their successors over a grid of rows."""
    tokens.forward(
        step, grid,
        inputs=Tensor("inputs"), targets=Tensor("targets"), stream=Outside("stream"),
        row_batch=Tensor("row_batch"), row_time=Tensor("row_time"), T=config.seq,
        parts=config.batch if config.carry_state else 0, micros=config.grad_accum,
    )  # fmt: skip


def mean_loss(step: Builder, config: TrainConfig, grid: Grid) -> None:
    """Add the step's mean loss, and the gradient in place of the logits, over a grid of rows."""
    loss.forward_backward(
        step, grid, logits=Tensor("logits"), loss=Tensor("loss"), targets=Tensor("targets"),
        vocab=config.model.vocab, micros=config.grad_accum,
    )  # fmt: skip
    loss.mean(
        step, losses=Tensor("losses"), control=Tensor("control"), loss=Tensor("loss"), micros=config.grad_accum
    )  # fmt: skip
