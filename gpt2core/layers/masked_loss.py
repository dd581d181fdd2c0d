"""Softmax, cross-entropy and its gradient over the rows that are not padding, in place on the logits.

The mean is over all targets of a step, so that it does not depend on how a step is cut into batches.
"""

import math

from gpt2core.compile.jit import kernel
from gpt2core.compile.later import exp32, maximum32, np
from gpt2core.layers.pairs import targets_of_step
from gpt2core.step.builder import Builder
from gpt2core.step.grid import F32, ROWS, Grid
from gpt2core.step.ops import Outside, Read, Tensor, Update, Write
from gpt2core.step.signature import Int32s, Matrix, Scalar, Step, TileInt, Vector


@kernel
def masked_cross_entropy(
    logits: Matrix, loss: Vector, targets: Int32s, lengths: Int32s, B: Scalar, micros: Scalar, step: Step,
    row0: TileInt, row1: TileInt,
):  # fmt: skip
    """Turn the logits of rows [row0, row1) into the gradient of the step's mean loss over the rows with a target.

    Writes:   logits (N, V): on entry the logits, on exit their gradient; loss (N,) =: each row's loss times
              N * micros / M, so that the mean over all rows of the step is that over its M targets
    Reads:    targets (N,) int32, below 0 for none; lengths (2*pairs,) int32: of both sequences of each pair, of which
              the step has `micros` batches of B
    Maths:    loss = logsumexp(l) - l[target]; dl = (softmax(l) - onehot(target)) / M; both 0 for no target
    Tiles:    disjoint row ranges are independent
    Source:   torch.nn.functional.cross_entropy with ignore_index
    """
    V, count = logits.shape[1], targets_of_step(lengths, B, micros, step)
    share, weight = np.float32(1.0 / count), np.float32(logits.shape[0] * micros / count)
    for n in range(row0, row1):
        row, target = logits[n], targets[n]
        if target < 0:
            row[:] = 0
            loss[n] = 0
            continue
        top = row[0]
        for v in range(V):
            top = maximum32(top, row[v])
        wanted, total = row[target], np.float32(0)
        for v in range(V):
            e = exp32(row[v] - top)
            row[v] = e
            total += e
        loss[n] = (np.float32(math.log(total)) + top - wanted) * weight
        scale = share / total
        for v in range(V):
            row[v] *= scale
        row[target] -= share


@kernel
def masked_negative_log_likelihood(
    loss: Vector, logits: Matrix, targets: Int32s, lengths: Int32s, B: Scalar, micros: Scalar,
    step: Step, row0: TileInt, row1: TileInt,
):  # fmt: skip
    """The loss of rows [row0, row1) of `masked_cross_entropy`. The logits stay.

    Writes:   loss (N,) =
    Reads:    logits (N, V); targets, lengths as there
    Maths:    loss = (logsumexp(l) - l[target]) * N * micros / M; 0 for no target
    Tiles:    disjoint row ranges are independent
    """
    V, count = logits.shape[1], targets_of_step(lengths, B, micros, step)
    weight = np.float32(logits.shape[0] * micros / count)
    for n in range(row0, row1):
        row, target = logits[n], targets[n]
        if target < 0:
            loss[n] = 0
            continue
        top = row[0]
        for v in range(V):
            top = maximum32(top, row[v])
        total = np.float32(0)
        for v in range(V):
            total += exp32(row[v] - top)
        loss[n] = (np.float32(math.log(total)) + top - row[target]) * weight


def forward_backward(
    step: Builder, grid: Grid, *, logits: Tensor, loss: Tensor, targets: Tensor, B: int, micros: int
) -> None:
    """Add the loss of each row with a target, and its gradient in place of the logits, over a grid of rows."""
    V = step.shape(logits)[-1]
    step.op(
        "cross_entropy", "loss", masked_cross_entropy, grid, grid.cost(ROWS, 12 * V, 2 * F32 * V),
        logits=Update(logits, ROWS), loss=Write(loss, ROWS), targets=Read(targets, ROWS), lengths=Outside("lengths"),
        B=B, micros=micros,
    )  # fmt: skip
    step.tape.gradient_in(logits, logits)


def forward(step: Builder, grid: Grid, *, logits: Tensor, loss: Tensor, targets: Tensor, B: int, micros: int) -> None:
    """Add the loss of each row with a target, without a gradient."""
    V = step.shape(logits)[-1]
    step.op(
        "negative_log_likelihood", "loss", masked_negative_log_likelihood, grid, grid.cost(ROWS, 10 * V, F32 * V),
        loss=Write(loss, ROWS), logits=Read(logits, ROWS), targets=Read(targets, ROWS),
        lengths=Outside("lengths"), B=B, micros=micros,
    )  # fmt: skip
