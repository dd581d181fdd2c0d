"""The probability of each word of a document: the sum of the attention to all its positions; and the answer's loss.

Rows of documents are time-major within a group of samples.
"""

import math
from functools import partial
from typing import Any

from gpt2core.compile.jit import kernel
from gpt2core.compile.later import float32, maximum32, np
from gpt2core.step.builder import Builder
from gpt2core.step.grid import F32, Grid
from gpt2core.step.ops import Read, Tensor, Update, Write
from gpt2core.step.signature import Int32s, Matrix, Scalar, TileInt, Vector

SAMPLES, GROUP = "sample0:sample1", "group0:group1"
ZERO = float32(0.0)


@kernel
def pointer_sum(
    probabilities: Matrix, attended: Vector, document: Int32s, lengths: Int32s, sample0: TileInt, sample1: TileInt,
    group0: TileInt,
):  # fmt: skip
    """The probability of the word at each position.

    Writes:   probabilities (B, T) =, 0 after the end of a document
    Reads:    attended (N,); document (N,), lengths (B,) int32
    Maths:    the sum of attended over all positions of the same word, in their order
    Tiles:    groups of samples are independent
    Source:   Kadlec et al. 2016, attention sum
    """
    n = sample1 - sample0
    for i in range(n):
        to, S = probabilities[sample0 + i], lengths[sample0 + i]
        to[:] = 0
        for t in range(S):
            word, total = document[group0 + t * n + i], ZERO
            for u in range(S):
                if document[group0 + u * n + i] == word:
                    total += attended[group0 + u * n + i]
            to[t] = total


@kernel
def pointer_sum_backward(
    dattended: Vector, dprobabilities: Matrix, document: Int32s, lengths: Int32s, sample0: TileInt, sample1: TileInt,
    group0: TileInt, group1: TileInt,
):  # fmt: skip
    """The gradient of the attention.

    Writes:   dattended (N,) =
    Reads:    dprobabilities (B, T); document, lengths as `pointer_sum`
    Tiles:    groups of samples are independent
    """
    n = sample1 - sample0
    for row in range(group0, group1):
        dattended[row] = 0
    for i in range(n):
        grad, S = dprobabilities[sample0 + i], lengths[sample0 + i]
        for u in range(S):
            if grad[u] == 0:
                continue
            word = document[group0 + u * n + i]
            for t in range(S):
                if document[group0 + t * n + i] == word:
                    dattended[group0 + t * n + i] += grad[u]


@kernel
def pointer_loss(
    loss: Vector, right: Vector, probabilities: Matrix, document: Int32s, answers: Int32s, lengths: Int32s,
    sample0: TileInt, sample1: TileInt, group0: TileInt,
):  # fmt: skip
    """The loss of each answer.

    Writes:   loss (B,) =; right (B,) =, 1 where no word of the document is more likely than the answer, otherwise 0
    Reads:    probabilities (B, T); document (N,), answers, lengths (B,) int32; each answer is in its document
    Maths:    loss = -log(probability of the answer)
    Tiles:    groups of samples are independent
    """
    n = sample1 - sample0
    for i in range(n):
        b, probability, top = sample0 + i, ZERO, ZERO
        for t in range(lengths[b]):
            top = maximum32(top, probabilities[b, t])
            if document[group0 + t * n + i] == answers[b]:
                probability = probabilities[b, t]
        loss[b] = np.float32(-math.log(probability)) if probability > 0 else np.float32(math.inf)
        right[b] = 1.0 if probability >= top else 0.0


@kernel
def pointer_loss_backward(
    probabilities: Matrix, loss: Vector, right: Vector, document: Int32s, answers: Int32s, lengths: Int32s,
    micros: Scalar, sample0: TileInt, sample1: TileInt, group0: TileInt,
):  # fmt: skip
    """`pointer_loss`, and the gradient of the step's mean loss over `micros` batches of B records.

    Writes:   probabilities (B, T): on exit their gradient, at the first position of the answer; loss, right as there
    Reads:    document, answers, lengths as there
    Tiles:    groups of samples are independent
    """
    pointer_loss(loss, right, probabilities, document, answers, lengths, sample0, sample1, group0)
    n, count = sample1 - sample0, np.float32(loss.shape[0] * micros)
    for i in range(n):
        b = sample0 + i
        row, first = probabilities[b], -1
        for t in range(lengths[b]):
            if first < 0 and document[group0 + t * n + i] == answers[b]:
                first = t
        share = np.float32(-1.0) / (row[first] * count)
        row[:] = 0
        row[first] = share


def forward(
    step: Builder, groups: Grid, *, probabilities: Tensor, attended: Tensor, document: Tensor, lengths: Tensor
) -> None:
    """Add the sums over groups. Reverse: the gradient of the attention."""
    T = step.shape(probabilities)[1]
    of: dict[str, Any] = {"document": Read(document, GROUP), "lengths": Read(lengths, SAMPLES)}
    step.op(
        "pointer_sum", "forward", pointer_sum, groups, groups.cost(SAMPLES, T * T, 3 * F32 * T),
        probabilities=Write(probabilities, SAMPLES), attended=Read(attended, GROUP), **of,
    )  # fmt: skip
    reverse = partial(_backward, step, groups, probabilities, attended, of)
    step.tape.leave(reverse, out=probabilities, inp=attended)


def _backward(step: Builder, groups: Grid, probabilities: Tensor, attended: Tensor, of: dict[str, Any]) -> None:
    T = step.shape(probabilities)[1]
    step.op(
        "pointer_sum", "backward", pointer_sum_backward, groups, groups.cost(SAMPLES, T, 3 * F32 * T),
        dattended=Write(step.tape.gradient(attended), GROUP),
        dprobabilities=Read(step.tape.gradient(probabilities), SAMPLES), **of,
    )  # fmt: skip


def losses(
    step: Builder, groups: Grid, *, probabilities: Tensor, loss: Tensor, right: Tensor, document: Tensor,
    answers: Tensor, lengths: Tensor, micros: int | None,
) -> None:  # fmt: skip
    """Add the loss of each answer and whether it is right; with `micros` also the gradient, in place of the
    probabilities."""
    T = step.shape(probabilities)[1]
    trains: dict[str, Any] = {"probabilities": Read(probabilities, SAMPLES)}
    if micros is not None:
        trains = {"probabilities": Update(probabilities, SAMPLES), "micros": micros}
        step.tape.gradient_in(probabilities, probabilities)
    step.op(
        "pointer_loss", "loss", pointer_loss if micros is None else pointer_loss_backward, groups,
        groups.cost(SAMPLES, 2 * T, 3 * F32 * T), loss=Write(loss, SAMPLES), right=Write(right, SAMPLES),
        document=Read(document, GROUP), answers=Read(answers, SAMPLES), lengths=Read(lengths, SAMPLES), **trains,
    )  # fmt: skip
