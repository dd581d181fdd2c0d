"""Softmax, cross-entropy and its gradient where each rank has the logits of some tokens of the vocabulary."""

import math

from gpt2core.compile.jit import kernel, runtime
from gpt2core.compile.later import exp32, like, maximum32, np, whole
from gpt2core.layers.sums import OF_OTHERS, of_others, place_of
from gpt2core.step.builder import Builder
from gpt2core.step.grid import ROWS, Grid
from gpt2core.step.ops import Read, Tensor, Update, Write
from gpt2core.step.signature import Int32s, Matrix, MatrixOrHalves, Scalar, TileInt, Vector

OWN, OTHERS = Tensor("own_softmax"), Tensor("other_softmax")


@kernel
def sums_of_exponentials(
    logits: MatrixOrHalves, own: Matrix, targets: Int32s, V: Scalar, first: Scalar, row0: TileInt, row1: TileInt
):
    """What a rank tells the others of its logits of rows [row0, row1), those of the tokens [first, first + V).

    Writes:   own (N, 3) =: top, the largest logit; the sum of exp(l - top); the target's logit, or 0 if another rank
              has it
    Reads:    logits (N, W), float32 or bfloat16; targets (N,) int32
    Tiles:    disjoint row ranges are independent
    Cost:     6*V flop, 4*V bytes per row, 2*V in bfloat16
    """
    for n in range(row0, row1):
        row, target = logits[n], targets[n] - first
        top = whole(row[0])
        for v in range(V):
            top = maximum32(top, whole(row[v]))
        own[n, 2] = whole(row[target]) if 0 <= target < V else np.float32(0)
        total = np.float32(0)
        for v in range(V):
            total += exp32(whole(row[v]) - top)
        own[n, 0], own[n, 1] = top, total


@kernel
def fold_cross_entropy(
    logits: MatrixOrHalves, loss: Vector, own: Matrix, others: Matrix, targets: Int32s, rank: Scalar, V: Scalar,
    first: Scalar, micros: Scalar, row0: TileInt, row1: TileInt,
):  # fmt: skip
    """Turn logits of rows [row0, row1) into the gradient of the step's mean loss, over `micros` batches.

    Writes:   logits (N, W), float32 or bfloat16: on exit their gradient, 0 in the columns from V on; loss (N,) =
    Reads:    own (N, 3), others ((R - 1) * N, 3): what this rank and the others tell, rank after rank; targets (N,)
    Maths:    that of loss.cross_entropy; the sum over the vocabulary is that of the ranks' sums in rank order
    Tiles:    disjoint row ranges are independent
    Cost:     6*V flop, 8*W bytes per row, 4*W in bfloat16
    Source:   the sums of parts with their maxima: Milakov & Gimelshein 2018
    """
    share = np.float32(1.0) / np.float32(own.shape[0] * micros)
    for n in range(row0, row1):
        row, target = logits[n], targets[n] - first
        top, total, loss[n] = of_all_ranks(own, others, rank, n)
        scale = share / total
        for v in range(V):
            row[v] = like(exp32(whole(row[v]) - top) * scale, row[v])
        if 0 <= target < V:
            row[target] = like(exp32(own[n, 2] - top) * scale - share, row[target])
        for v in range(V, logits.shape[1]):
            row[v] = 0


@runtime
def of_all_ranks(own, others, rank, n):
    """Of row n over all ranks: the largest logit, the sum of the exponentials in rank order, and the loss. Not a
    kernel, which may reorder the sum."""
    N, total = own.shape[0], np.float32(0)
    top, logit = own[n, 0], own[n, 2]
    for at in range(n, others.shape[0], N):
        top = maximum32(top, others[at, 0])
        logit += others[at, 2]  # all but one are 0
    for peer in range(others.shape[0] // N + 1):
        part = own[n]
        if peer != rank:
            part = others[place_of(peer, rank) * N + n]
        total += part[1] * exp32(part[0] - top)
    return top, total, np.float32(math.log(total)) + top - logit


def forward_backward(
    step: Builder, grid: Grid, *, logits: Tensor, loss: Tensor, targets: Tensor, vocab: int, micros: int
) -> None:
    """Add the loss of each row, and the gradient of this rank's logits in their place, over a grid of rows."""
    rows, W = step.shape(logits)
    rank, first = step.matrix_rank.number, step.matrix_rank.number * W
    V, size = min(W, vocab - first), step.itemsize(logits)
    step.op(
        "cross_entropy", "loss", sums_of_exponentials, grid, grid.cost(ROWS, 6 * V, size * V),
        logits=Read(logits, ROWS), own=Write(OWN, ROWS), targets=Read(targets, ROWS), V=V, first=first,
    )  # fmt: skip
    step.rows(step, "cross_entropy", "loss", None, OWN, OTHERS)
    step.op(
        "cross_entropy_fold", "loss", fold_cross_entropy, of_others(step, grid, rows),
        grid.cost(ROWS, 6 * V, 2 * size * W),
        logits=Update(logits, ROWS), loss=Write(loss, ROWS), own=Read(OWN, ROWS), others=Read(OTHERS, OF_OTHERS),
        targets=Read(targets, ROWS), rank=rank, V=V, first=first, micros=micros,
    )  # fmt: skip
    step.tape.gradient_in(logits, logits)
