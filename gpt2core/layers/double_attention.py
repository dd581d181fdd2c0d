"""Attention over attention of padded documents and queries, by the products of their states.

Rows of documents and of queries are time-major within a group of samples.
Source: Cui et al. 2017, Attention-over-Attention Neural Networks for Reading Comprehension
"""

from functools import partial
from typing import Any, NamedTuple

from gpt2core.compile.jit import address_of, kernel
from gpt2core.compile.later import exp32, float32, maximum32, np
from gpt2core.gemm.operands import into, plain, transposed
from gpt2core.gemm.products import multiply
from gpt2core.step.builder import Builder
from gpt2core.step.grid import F32, ROWS, Grid
from gpt2core.step.ops import Product, Read, Tensor, Update, Write
from gpt2core.step.signature import Int32s, Matrix, Multiply, TileInt, Vector

SAMPLES, GROUP, QUERY = "sample0:sample1", "group0:group1", "query0:query1"
ZERO, ONE = float32(0.0), float32(1.0)


class Lengths(NamedTuple):
    """Positions of each sample's document and query, (B,) int32."""

    document_lengths: Int32s
    query_lengths: Int32s


@kernel
def match(
    scores: Matrix, document: Matrix, query: Matrix, by: Multiply, sample0: TileInt, sample1: TileInt, row0: TileInt,
    row1: TileInt, query0: TileInt,
):  # fmt: skip
    """The products of the states of documents' positions and of their queries'.

    Writes:   scores (N, Q) =, rows [row0, row1)
    Reads:    document (N, D), query (B*Q, D)
    Maths:    scores = document @ query.T, sample by sample
    Tiles:    slices are independent
    """
    D, Q, n = document.shape[1], scores.shape[1], sample1 - sample0
    for i in range(n):
        multiply(
            by, (row1 - row0) // n, Q, D, plain(address_of(document, (row0 + i) * D), n * D),
            transposed(address_of(query, (query0 + i) * D), n * D),
            into(address_of(scores, (row0 + i) * Q), n * Q, 0),
        )  # fmt: skip


@kernel
def match_backward_document(
    ddocument: Matrix, dscores: Matrix, query: Matrix, by: Multiply, sample0: TileInt, sample1: TileInt,
    row0: TileInt, row1: TileInt, query0: TileInt,
):  # fmt: skip
    """The gradient of documents' states.

    Writes:   ddocument (N, D) =, rows [row0, row1)
    Reads:    dscores (N, Q), query (B*Q, D)
    Maths:    ddocument = dscores @ query
    Tiles:    slices are independent
    """
    D, Q, n = query.shape[1], dscores.shape[1], sample1 - sample0
    for i in range(n):
        multiply(
            by, (row1 - row0) // n, D, Q, plain(address_of(dscores, (row0 + i) * Q), n * Q),
            plain(address_of(query, (query0 + i) * D), n * D),
            into(address_of(ddocument, (row0 + i) * D), n * D, 0),
        )  # fmt: skip


@kernel
def match_backward_query(
    dquery: Matrix, dscores: Matrix, document: Matrix, by: Multiply, sample0: TileInt, sample1: TileInt,
    group0: TileInt, group1: TileInt, query0: TileInt,
):  # fmt: skip
    """The gradient of queries' states.

    Writes:   dquery (B*Q, D) =
    Reads:    dscores (N, Q), document (N, D)
    Maths:    dquery = dscores.T @ document
    Tiles:    groups of samples are independent
    """
    D, Q, n = document.shape[1], dscores.shape[1], sample1 - sample0
    for i in range(n):
        multiply(
            by, Q, D, (group1 - group0) // n, transposed(address_of(dscores, (group0 + i) * Q), n * Q),
            plain(address_of(document, (group0 + i) * D), n * D),
            into(address_of(dquery, (query0 + i) * D), n * D, 0),
        )  # fmt: skip


@kernel
def double_attention(
    scores: Matrix, rows: Matrix, mean: Matrix, attended: Vector, lengths: Lengths, sample0: TileInt, sample1: TileInt,
    group0: TileInt, group1: TileInt,
):  # fmt: skip
    """Attention to each position of the document.

    Writes:   scores (N, Q): on entry the products, on exit alpha, their softmax over the document, column by column;
              rows (N, Q) =: beta, their softmax over the query, row by row; mean (B, Q) =: that of beta over the
              document; attended (N,) = alpha . mean. All are 0 after the end of either.
    Reads:    lengths
    Tiles:    groups of samples are independent
    """
    Q, n = scores.shape[1], sample1 - sample0
    T = (group1 - group0) // n
    for i in range(n):
        S, W, total_of = lengths.document_lengths[sample0 + i], lengths.query_lengths[sample0 + i], mean[sample0 + i]
        total_of[:] = 0
        for t in range(T):
            own, beta = scores[group0 + t * n + i], rows[group0 + t * n + i]
            beta[:] = 0
            if t >= S:
                own[:] = 0
                continue
            top = own[0]
            for q in range(1, W):
                top = maximum32(top, own[q])
            total = ZERO
            for q in range(W):
                e = exp32(own[q] - top)
                beta[q] = e
                total += e
            scale = ONE / total
            for q in range(W):
                beta[q] *= scale
                total_of[q] += beta[q]
        share = ONE / np.float32(S)
        for q in range(W):
            total_of[q] *= share
        for q in range(Q):
            if q >= W:
                for t in range(S):
                    scores[group0 + t * n + i, q] = 0
                continue
            top = scores[group0 + i, q]
            for t in range(1, S):
                top = maximum32(top, scores[group0 + t * n + i, q])
            total = ZERO
            for t in range(S):
                e = exp32(scores[group0 + t * n + i, q] - top)
                scores[group0 + t * n + i, q] = e
                total += e
            scale = ONE / total
            for t in range(S):
                scores[group0 + t * n + i, q] *= scale
        for t in range(T):
            own, total = scores[group0 + t * n + i], ZERO
            for q in range(W):
                total += own[q] * total_of[q]
            attended[group0 + t * n + i] = total


@kernel
def double_attention_backward(
    scores: Matrix, dmean: Matrix, dattended: Vector, rows: Matrix, mean: Matrix, lengths: Lengths,
    sample0: TileInt, sample1: TileInt, group0: TileInt,
):  # fmt: skip
    """The gradient of the products.

    Writes:   scores (N, Q): on entry alpha, on exit the gradient of the products; dmean (B, Q) =
    Reads:    dattended (N,), rows, mean, lengths as `double_attention`
    Tiles:    groups of samples are independent
    """
    Q, n = scores.shape[1], sample1 - sample0
    for i in range(n):
        S, W = lengths.document_lengths[sample0 + i], lengths.query_lengths[sample0 + i]
        own, grad = mean[sample0 + i], dmean[sample0 + i]
        grad[:] = 0
        for t in range(S):
            alpha, d = scores[group0 + t * n + i], dattended[group0 + t * n + i]
            for q in range(Q):
                grad[q] += d * alpha[q]
        share = ONE / np.float32(S)
        for t in range(S):
            row = group0 + t * n + i
            alpha, beta, d, expected = scores[row], rows[row], dattended[row], ZERO
            for q in range(W):
                expected += beta[q] * grad[q]
            for q in range(W):
                alpha[q] = alpha[q] * own[q] * (d - grad[q]) + beta[q] * (grad[q] - expected) * share


def forward(
    step: Builder, grid: Grid, groups: Grid, *,
    scores: Tensor, rows: Tensor, mean: Tensor, attended: Tensor, document: Tensor, query: Tensor,
    document_lengths: Tensor, query_lengths: Tensor, TS: int,
) -> None:  # fmt: skip
    """Add the products over slices of at most TS positions, and both softmaxes over groups. Reverse: the gradients of
    `document` and of `query`, which nothing else reads; that of the scores is in place."""
    (N, Q), D, B = step.shape(scores), step.shape(document)[1], step.shape(mean)[0]
    flop, bytes_, query_bytes = 2 * Q * D, F32 * (D + Q), F32 * Q * D
    lengths: dict[str, Any] = {
        "document_lengths": Read(document_lengths, SAMPLES), "query_lengths": Read(query_lengths, SAMPLES),
    }  # fmt: skip
    step.op(
        "match", "forward", match, grid, grid.cost(ROWS, flop, bytes_, query_bytes), scores=Write(scores, ROWS),
        document=Read(document, ROWS), query=Read(query, QUERY), by=Product(0, 1, TS, Q, D),
    )  # fmt: skip

    def backward_of_match() -> None:
        step.op(
            "match", "backward", match_backward_document, grid, grid.cost(ROWS, flop, bytes_, query_bytes),
            ddocument=Write(step.tape.gradient(document), ROWS), dscores=Read(scores, ROWS), query=Read(query, QUERY),
            by=Product(0, 0, TS, D, Q),
        )  # fmt: skip
        step.op(
            "match_dquery", "backward", match_backward_query, groups, groups.cost(GROUP, flop, bytes_),
            dquery=Write(step.tape.gradient(query), QUERY), dscores=Read(scores, GROUP),
            document=Read(document, GROUP), by=Product(1, 0, Q, D, N // B),
        )  # fmt: skip

    step.tape.gradient_in(scores, scores)
    step.tape.leave(backward_of_match, out=scores, inp=document)
    step.op(
        "attention_over_attention", "forward", double_attention, groups, groups.cost(GROUP, 22 * Q, 3 * F32 * Q),
        scores=Update(scores, GROUP), rows=Write(rows, GROUP), mean=Write(mean, SAMPLES),
        attended=Write(attended, GROUP), **lengths,
    )  # fmt: skip
    reverse = partial(
        step.op, "attention_over_attention", "backward", double_attention_backward, groups,
        groups.cost(GROUP, 10 * Q, 3 * F32 * Q), scores=Update(scores, GROUP),
        dmean=Write(Tensor(f"d{mean.name}"), SAMPLES), dattended=Read(step.tape.gradient(attended), GROUP),
        rows=Read(rows, GROUP), mean=Read(mean, SAMPLES), **lengths,
    )  # fmt: skip
    step.tape.leave(reverse, out=attended, inp=scores)
