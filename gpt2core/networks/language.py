"""Ops that networks for next-token prediction share."""

from __future__ import annotations

from collections.abc import Sequence

from gpt2core.layers import divided_loss, linear, loss, rows, tokens
from gpt2core.spec.config import TrainConfig
from gpt2core.step import slicing
from gpt2core.step.builder import Builder
from gpt2core.step.grid import ROWS, Grid
from gpt2core.step.ops import Outside, Own, Tensor
from gpt2core.step.slicing import Slice

LOGITS, TARGETS, LOSS = Tensor("logits"), Tensor("targets"), Tensor("loss")


def load(step: Builder, config: TrainConfig, grid: Grid) -> None:
    """Add the loading of a batch's tokens and their successors over a grid of rows."""
    tokens.forward(
        step, grid,
        inputs=Tensor("inputs"), targets=TARGETS, stream=Outside("stream"),
        row_batch=Tensor("row_batch"), row_time=Tensor("row_time"), T=config.seq,
        parts=config.batch if config.carry_state else 0, micros=config.grad_accum,
    )  # fmt: skip


def head(
    step: Builder, config: TrainConfig, slices: Sequence[Slice], *,
    inp: Tensor, weight: Tensor, bias: Tensor | None = None, time_major: bool = False, right: Tensor | None = None,
    divided: bool = False,
) -> None:  # fmt: skip
    """Add the logits that the run's mode needs (config.logits), and the step's loss if it has one.

    time_major: whether rows within a slice follow each other position by position; right: whether each row's class is
    right, of inference that scores classes; divided: whether each rank has the logits of some tokens.
    """
    grid = slicing.grid(slices)
    if config.has_gradients:
        of_ranks: linear.Divided = "outputs" if divided else None
        linear.forward(step, "logits", grid, None, out=LOGITS, inp=inp, weight=weight, bias=bias, divided=of_ranks)
        mean_loss(step, config, grid, divided)
        return
    out: Tensor | Own = LOGITS
    targets, longest, count = TARGETS, grid.longest(ROWS), step.count
    if config.logits == "last":
        grid = last_rows(slices, config.seq, time_major)
        found = Tensor("last_targets") if config.score else None
        rows.forward(step, grid, out=Tensor("last"), inp=inp, found=found, targets=found and TARGETS)
        inp, targets = Tensor("last"), Tensor("last_targets")
    elif config.logits == "none-kept":
        out = Own("logits")
    linear.apply(step, "logits", grid, None, out=out, inp=inp, weight=weight, bias=bias, longest=longest)
    if config.score:
        loss.forward(step, grid, logits=out, loss=LOSS, targets=targets, vocab=config.model.vocab, right=right)
        if config.logits == "none-kept":  # the thread's own logits are gone after the task
            step.fuse(step.count - count)
        loss.mean(step, losses=Tensor("losses"), control=Tensor("control"), loss=LOSS, micros=1)


def mean_loss(step: Builder, config: TrainConfig, grid: Grid, divided: bool = False) -> None:
    """Add the step's mean loss, and the gradient in place of the logits, over a grid of rows. divided: as `head`."""
    (divided_loss if divided else loss).forward_backward(
        step, grid, logits=LOGITS, loss=LOSS, targets=TARGETS, vocab=config.model.vocab, micros=config.grad_accum,
    )  # fmt: skip
    loss.mean(step, losses=Tensor("losses"), control=Tensor("control"), loss=LOSS, micros=config.grad_accum)


def last_rows(slices: Sequence[Slice], seq: int, time_major: bool) -> Grid:
    """A tile for each slice that ends its sequences: a row for each sequence, and where its last position lies."""
    ending = [each for each in slices if each.pos1 == seq]
    counts, lengths = ([each.sample1 - each.sample0 for each in ending], [each.pos1 - each.pos0 for each in ending])
    return Grid(tuple(f"s{each.index}" for each in ending)).with_columns(
        row0=[each.sample0 for each in ending], row1=[each.sample1 for each in ending],
        within0=[each.row0 for each in ending], within1=[each.row1 for each in ending],
        from0=[each.row1 - count if time_major else each.row0 + length - 1
               for each, count, length in zip(ending, counts, lengths, strict=True)],
        stride=[1 if time_major else length for length in lengths],
    )  # fmt: skip
