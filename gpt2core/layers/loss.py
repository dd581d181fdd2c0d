"""Softmax, cross-entropy and its gradient, in place on the logits."""

import math
from typing import Any

from gpt2core.compile.jit import kernel
from gpt2core.compile.later import exp32, half, maximum32, np, whole
from gpt2core.step.builder import Builder
from gpt2core.step.control import STOP
from gpt2core.step.grid import F32, ONE_TILE, ROWS, Grid
from gpt2core.step.ops import Own, Read, Reduce, Tensor, Update, Write, add_or_set
from gpt2core.step.signature import (
    Float64s,
    Halves,
    Int32s,
    Int64s,
    Matrix,
    MatrixOrHalves,
    OwnMatrix,
    OwnMatrixOrHalves,
    OwnVector,
    Scalar,
    Step,
    TileInt,
    Vector,
)


@kernel
def cross_entropy(
    logits: Matrix, loss: Vector, targets: Int32s, V: Scalar, micros: Scalar, row0: TileInt, row1: TileInt
):
    """Turn the logits of rows [row0, row1) into the gradient of the step's mean loss, over `micros` batches of N rows.

    Writes:   logits (N, Vp): on entry the logits, on exit their gradient, 0 in the columns from V on; loss (N,) =
    Reads:    targets (N,) int32
    Maths:    loss = logsumexp(l[:V]) - l[target]; dl = (softmax(l[:V]) - onehot(target)) / (N * micros)
    Tiles:    disjoint row ranges are independent
    Cost:     12*V flop, 8*Vp bytes per row
    Source:   torch.nn.functional.cross_entropy
    """
    share = np.float32(1.0) / np.float32(logits.shape[0] * micros)
    for n in range(row0, row1):
        row = logits[n]
        top = row[0]
        for v in range(V):
            top = maximum32(top, row[v])
        target = targets[n]
        wanted = row[target]
        total = np.float32(0)
        for v in range(V):
            e = exp32(row[v] - top)
            row[v] = e
            total += e
        loss[n] = np.float32(math.log(total)) + top - wanted
        scale = share / total
        for v in range(V):
            row[v] *= scale
        row[target] -= share
        for v in range(V, logits.shape[1]):
            row[v] = 0


@kernel
def cross_entropy_of_halves(
    logits: Halves, loss: Vector, part: OwnVector, targets: Int32s, V: Scalar, micros: Scalar,
    row0: TileInt, row1: TileInt,
):  # fmt: skip
    """`cross_entropy` of logits in bfloat16, and with their gradient in bfloat16, which is rounded once.

    Writes:   logits (N, Vp) bfloat16; loss (N,) =; part (at least V,), the exponentials of a row
    Reads:    targets (N,) int32
    Maths:    that of `cross_entropy`
    Tiles:    disjoint row ranges are independent
    Cost:     12*V flop, 4*Vp bytes per row
    """
    share = np.float32(1.0) / np.float32(logits.shape[0] * micros)
    for n in range(row0, row1):
        row = logits[n]
        top = whole(row[0])
        for v in range(V):
            top = maximum32(top, whole(row[v]))
        target = targets[n]
        wanted = whole(row[target])
        total = np.float32(0)
        for v in range(V):
            e = exp32(whole(row[v]) - top)
            part[v] = e
            total += e
        loss[n] = np.float32(math.log(total)) + top - wanted
        scale = share / total
        for v in range(V):
            row[v] = half(part[v] * scale)
        row[target] = half(part[target] * scale - share)
        for v in range(V, logits.shape[1]):
            row[v] = 0


@kernel
def negative_log_likelihood(
    loss: Vector, logits: MatrixOrHalves, targets: Int32s, V: Scalar, row0: TileInt, row1: TileInt
):
    """The loss of rows [row0, row1) of `cross_entropy`. The logits stay.

    Writes:   loss (N,) =
    Reads:    logits (N, Vp), float32 or bfloat16; targets (N,) int32
    Maths:    loss = logsumexp(l[:V]) - l[target]
    Tiles:    disjoint row ranges are independent
    Cost:     10*V flop, 4*Vp bytes per row
    """
    for n in range(row0, row1):
        row = logits[n]
        top = whole(row[0])
        for v in range(V):
            top = maximum32(top, whole(row[v]))
        total = np.float32(0)
        for v in range(V):
            total += exp32(whole(row[v]) - top)
        loss[n] = np.float32(math.log(total)) + top - whole(row[targets[n]])


@kernel
def own_negative_log_likelihood(
    loss: Vector, logits: OwnMatrixOrHalves, targets: Int32s, V: Scalar, row0: TileInt, row1: TileInt
):
    """`negative_log_likelihood` of logits whose first row is that of row0."""
    negative_log_likelihood(loss[row0:row1], logits, targets[row0:row1], V, 0, row1 - row0)


@kernel
def mark_right(right, logits, targets, V, row0, row1):
    """For rows [row0, row1) of logits, 1 where none is above the target's, otherwise 0."""
    for n in range(row0, row1):
        row = logits[n]
        top = row[0]
        for v in range(V):
            top = maximum32(top, row[v])
        right[n] = 1.0 if row[targets[n]] >= top else 0.0


@kernel
def cross_entropy_of_classes(
    logits: Matrix, loss: Vector, right: Vector, targets: Int32s, V: Scalar, micros: Scalar, row0: TileInt,
    row1: TileInt,
):  # fmt: skip
    """`cross_entropy`, and whether the target is the most likely class.

    Writes:   logits (N, V), loss (N,) as there; right (N,) =, 1 where no logit is above the target's, otherwise 0
    Reads:    targets (N,) int32
    Tiles:    disjoint row ranges are independent
    """
    mark_right(right, logits, targets, V, row0, row1)
    cross_entropy(logits, loss, targets, V, micros, row0, row1)


@kernel
def negative_log_likelihood_of_classes(
    loss: Vector, right: Vector, logits: Matrix, targets: Int32s, V: Scalar, row0: TileInt, row1: TileInt
):
    """`negative_log_likelihood`, and whether the target is the most likely class.

    Writes:   loss (N,) as there; right (N,) =, as `cross_entropy_of_classes`
    Reads:    logits (N, V), targets (N,) int32
    Tiles:    disjoint row ranges are independent
    """
    mark_right(right, logits, targets, V, row0, row1)
    negative_log_likelihood(loss, logits, targets, V, row0, row1)


@kernel
def own_negative_log_likelihood_of_classes(
    loss: Vector, right: Vector, logits: OwnMatrix, targets: Int32s, V: Scalar, row0: TileInt, row1: TileInt
):
    """`negative_log_likelihood_of_classes` of logits whose first row is that of row0."""
    negative_log_likelihood_of_classes(
        loss[row0:row1], right[row0:row1], logits, targets[row0:row1], V, 0, row1 - row0
    )


@kernel
def mean_accuracy(accuracies: Float64s, right: Vector, step: Step, micro: Scalar, micros: Scalar):
    """Batch `micro`'s part of the step's share of rows that are right.

    Writes:   accuracies (steps,) float64, element `step` = for the first batch, += for others
    Reads:    right (N,)
    """
    total = 0.0
    for n in range(right.shape[0]):
        total += right[n]
    share = total / (right.shape[0] * micros)
    accuracies[step] = accuracies[step] + share if micro else share


@kernel
def mean_loss(losses: Float64s, control: Int64s, loss: Vector, step: Step, micro: Scalar, micros: Scalar):
    """Batch `micro`'s part of the step's mean loss over `micros`; stops the run if it is not finite.

    Writes:   losses (steps,) float64, element `step` = for the first batch, += for others; control (any,) int64,
              element STOP = 1 if the loss is not finite
    Reads:    loss (N,)
    Maths:    the sum of loss / (N * micros), in the order of the rows in float64
    """
    total = 0.0
    for n in range(loss.shape[0]):
        total += loss[n]
    share = total / (loss.shape[0] * micros)
    losses[step] = losses[step] + share if micro else share
    if not math.isfinite(total):
        control[STOP] = 1


def forward_backward(
    step: Builder, grid: Grid, *, logits: Tensor, loss: Tensor, targets: Tensor, vocab: int, micros: int,
) -> None:  # fmt: skip
    """Add the loss of each row, and its gradient in place of the logits, over a grid of rows. Where logits are
    bfloat16, the threads' own `part` has at least `vocab` float32.
    """
    Vp, halves = step.shape(logits)[-1], step.is_half(logits)
    more: dict[str, Any] = {"part": Own("part")} if halves else {}
    step.op(
        "cross_entropy", "loss", cross_entropy_of_halves if halves else cross_entropy, grid,
        grid.cost(ROWS, 12 * vocab, 2 * step.itemsize(logits) * Vp),
        logits=Update(logits, ROWS), loss=Write(loss, ROWS), targets=Read(targets, ROWS), V=vocab, micros=micros,
        **more,
    )  # fmt: skip
    step.tape.gradient_in(logits, logits)


def classes(
    step: Builder, grid: Grid, *, logits: Tensor, loss: Tensor, right: Tensor, targets: Tensor, vocab: int, micros: int
) -> None:
    """Add the loss of each row and whether its class is right, and the gradient in place of the logits."""
    step.op(
        "cross_entropy", "loss", cross_entropy_of_classes, grid, grid.cost(ROWS, 12 * vocab, 2 * F32 * vocab),
        logits=Update(logits, ROWS), loss=Write(loss, ROWS), right=Write(right, ROWS), targets=Read(targets, ROWS),
        V=vocab, micros=micros,
    )  # fmt: skip
    step.tape.gradient_in(logits, logits)


def accuracy(step: Builder, *, accuracies: Tensor, right: Tensor, micros: int) -> None:
    """Add the share of rows that are right, as one tile."""
    (rows,) = step.shape(right)
    step.op(
        "mean_accuracy", "loss", mean_accuracy, ONE_TILE, [(rows, F32 * rows)],
        accuracies=add_or_set(step.micro > 0, accuracies), right=Read(right), micro=step.micro, micros=micros,
    )  # fmt: skip


def forward(
    step: Builder, grid: Grid, *,
    logits: Tensor | Own, loss: Tensor, targets: Tensor, vocab: int, right: Tensor | None = None,
) -> None:  # fmt: skip
    """Add the loss of each row over a grid of rows, without a gradient; of float32 also whether its class is `right`.

    `logits`: a tensor, or the threads' own rows of each tile.
    """
    own, tensor = isinstance(logits, Own), Tensor(logits.name)
    size = step.itemsize(tensor) * step.shape(tensor)[-1]
    chosen, more = (negative_log_likelihood, own_negative_log_likelihood)[own], dict[str, Any]()
    if right:
        chosen = (negative_log_likelihood_of_classes, own_negative_log_likelihood_of_classes)[own]
        more = {"right": Write(right, ROWS)}
    step.op(
        "negative_log_likelihood", "loss", chosen, grid, grid.cost(ROWS, 10 * vocab, size),
        loss=Write(loss, ROWS), logits=logits if isinstance(logits, Own) else Read(logits, ROWS),
        targets=Read(targets, ROWS), V=vocab, **more,
    )  # fmt: skip


def mean(step: Builder, *, losses: Tensor, control: Tensor, loss: Tensor, micros: int) -> None:
    """Add the mean of all rows' losses, as one tile."""
    (rows,) = step.shape(loss)
    step.op(
        "mean_loss", "loss", mean_loss, ONE_TILE, [(rows, F32 * rows)],
        losses=add_or_set(step.micro > 0, losses), control=Reduce(control), loss=Read(loss),
        micro=step.micro, micros=micros,
    )  # fmt: skip
