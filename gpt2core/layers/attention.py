"""Causal multi-head attention on one slice, without the T x T matrices.

A slice's rows are contiguous, its sequences one after the other; the slices of a group of sequences follow each other
in time. So the keys of one sequence are consecutive rows in each slice (`row_of`). The products of these keys with a
block of at most BLOCK queries are in a strip of BLOCK x T floats of scratch.
"""

import math

import numpy as np

from gpt2core.compile.jit import address_of, kernel
from gpt2core.compile.vector import exp32, maximum32
from gpt2core.gemm.multiply import multiply
from gpt2core.layers.sizes import ATTENTION_BLOCK
from gpt2core.step.builder import Builder
from gpt2core.step.grid import F32, ROWS, Cost, Grid
from gpt2core.step.ops import Own, Product, Read, Tensor, Write
from gpt2core.step.signature import Matrix, Multiply, OwnMatrix, Scalar, TileInt

BLOCK = ATTENTION_BLOCK
ONE, ZERO = np.float32(1.0), np.float32(0.0)


@kernel
def row_of(b, t, sample0, sample1, T, TS):
    """Row of token t of sequence b, which is one of the group [sample0, sample1) cut into slices of TS tokens."""
    k = t // TS
    length = min(TS, T - k * TS)
    return sample0 * T + k * TS * (sample1 - sample0) + (b - sample0) * length + (t - k * TS)


@kernel
def run_length(t, end, sample0, sample1, TS):
    """Number of tokens from t to end in consecutive rows: those up to the slice's end, or all if the group has one
    sequence."""
    if sample1 - sample0 == 1:
        return end - t
    return min(end, (t // TS + 1) * TS) - t


@kernel
def attention_forward(
    out: Matrix, lse: Matrix, qkv: Matrix, by: Multiply, strips: OwnMatrix,
    sample0: TileInt, sample1: TileInt, pos0: TileInt, pos1: TileInt, T: Scalar, TS: Scalar,
):  # fmt: skip
    """Attend from the tokens [pos0, pos1) of the sequences [sample0, sample1) to all that are not later.

    Writes:   out (N, C) =; lse (N, NH) =: log of the sum of the scores' exponentials; strips (2, >= BLOCK*T): scratch
    Reads:    qkv (N, 3*C): query, key and value of every head, from the group's slices up to this one
    Maths:    out = softmax(q k^T / sqrt(hs), causal) v
    Tiles:    disjoint slices are independent
    Cost:     4*C*(t + 1) flop per row at time t
    Source:   Vaswani et al. 2017; the backward pass's use of lse: Dao 2023
    """
    NH, C = lse.shape[1], out.shape[1]
    hs, C3 = C // NH, 3 * C
    scale = np.float32(1.0 / math.sqrt(hs))
    scores = strips[0]
    at = address_of(strips, 0)
    for b in range(sample0, sample1):
        for q0 in range(pos0, pos1, BLOCK):
            q1 = min(q0 + BLOCK, pos1)
            n, row = q1 - q0, row_of(b, q0, sample0, sample1, T, TS)
            for h in range(NH):
                key = 0
                while key < q1:
                    run = run_length(key, q1, sample0, sample1, TS)
                    base = row_of(b, key, sample0, sample1, T, TS) * C3
                    multiply(
                        by, 0, 1, n, run, hs, address_of(qkv, row * C3 + h * hs), C3,
                        address_of(qkv, base + C + h * hs), C3, at + 4 * key, q1, 0,
                    )  # fmt: skip
                    key += run
                for i in range(n):
                    seen = q0 + i + 1
                    line = scores[i * q1 : (i + 1) * q1]
                    top = line[0]
                    for j in range(seen):
                        top = maximum32(top, line[j])
                    top *= scale
                    total = ZERO
                    for j in range(seen):
                        e = exp32(scale * line[j] - top)
                        line[j] = e
                        total += e
                    share = ONE / total
                    for j in range(seen):
                        line[j] *= share
                    for j in range(seen, q1):
                        line[j] = ZERO
                    lse[row + i, h] = top + np.float32(math.log(total))
                key = 0
                while key < q1:
                    run = run_length(key, q1, sample0, sample1, TS)
                    base = row_of(b, key, sample0, sample1, T, TS) * C3
                    multiply(
                        by, 0, 0, n, hs, run, at + 4 * key, q1,
                        address_of(qkv, base + 2 * C + h * hs), C3, address_of(out, row * C + h * hs), C, key,
                    )  # fmt: skip
                    key += run


@kernel
def score_gradients(p, ds, n, width, row, key0, pos0, out, dout, lse, h, hs, scale):
    """Turn q k^T and dout v^T into probabilities and gradients of the scores, in place on two (n, width) strips.

    Query i is in row `row` + i at position pos0 + i; column j is the key at key0 + j. Later keys get 0.
    Maths: p = exp(scale * s - lse); ds = scale * p * (dp - sum over channels of dout * out).
    """
    for i in range(n):
        seen = min(width, max(0, pos0 + i + 1 - key0))
        level, delta = lse[row + i, h], ZERO
        ours, theirs = out[row + i, h * hs : (h + 1) * hs], dout[row + i, h * hs : (h + 1) * hs]
        for c in range(hs):
            delta += theirs[c] * ours[c]
        pl, dl = p[i * width : (i + 1) * width], ds[i * width : (i + 1) * width]
        for j in range(seen):
            e = exp32(scale * pl[j] - level)
            pl[j] = e
            dl[j] = scale * e * (dl[j] - delta)
        for j in range(seen, width):
            pl[j] = ZERO
            dl[j] = ZERO


@kernel
def attention_backward(
    dqkv: Matrix, dout: Matrix, qkv: Matrix, out: Matrix, lse: Matrix, by: Multiply, strips: OwnMatrix,
    sample0: TileInt, sample1: TileInt, pos0: TileInt, pos1: TileInt, T: Scalar, TS: Scalar,
):  # fmt: skip
    """The gradients of one slice's queries, keys and values: every value has one owner, so nothing is accumulated
    across tiles. Scores are computed again from q, k and lse.

    Writes:   dqkv (N, 3*C) =, this slice's rows; strips (2, >= BLOCK*T): scratch
    Reads:    qkv (N, 3*C) of the whole group; dout, out (N, C), lse (N, NH) of this slice and the group's later ones
    Maths:    dv = p^T dout; ds = p * (dout v^T - rowsum(dout * out)) / sqrt(hs); dq = ds k; dk = ds^T q
    Tiles:    disjoint slices are independent
    Cost:     10*C*(t + 1) flop per row at time t, and 4*C again for each pair of tokens in two slices
    Source:   Dao et al. 2022, algorithm 4, with the loops exchanged so that each owner computes its gradients
    """
    NH, C = lse.shape[1], out.shape[1]
    hs, C3 = C // NH, 3 * C
    scale = np.float32(1.0 / math.sqrt(hs))
    p, ds = strips[0], strips[1]
    at_p, at_ds = address_of(strips, 0), address_of(strips, strips.shape[1])
    for b in range(sample0, sample1):
        own = row_of(b, pos0, sample0, sample1, T, TS)
        dqkv[own : own + pos1 - pos0, C:] = ZERO
        for h in range(NH):
            at_q, at_k, at_v = h * hs, C + h * hs, 2 * C + h * hs
            # This slice's queries with every key that is not later.
            for q0 in range(pos0, pos1, BLOCK):
                q1 = min(q0 + BLOCK, pos1)
                n, row = q1 - q0, own + q0 - pos0
                q, dy = address_of(qkv, row * C3 + at_q), address_of(dout, row * C + at_q)
                key = 0
                while key < q1:
                    run = run_length(key, q1, sample0, sample1, TS)
                    base = row_of(b, key, sample0, sample1, T, TS) * C3
                    multiply(by, 0, 1, n, run, hs, q, C3, address_of(qkv, base + at_k), C3, at_p + 4 * key, q1, 0)
                    multiply(by, 0, 1, n, run, hs, dy, C, address_of(qkv, base + at_v), C3, at_ds + 4 * key, q1, 0)
                    key += run
                score_gradients(p, ds, n, q1, row, 0, q0, out, dout, lse, h, hs, scale)
                key = 0
                while key < q1:
                    run = run_length(key, q1, sample0, sample1, TS)
                    k = address_of(qkv, row_of(b, key, sample0, sample1, T, TS) * C3 + at_k)
                    multiply(
                        by, 0, 0, n, hs, run, at_ds + 4 * key, q1, k, C3, address_of(dqkv, row * C3 + at_q), C3, key
                    )
                    key += run
                width = q1 - pos0
                multiply(by, 1, 0, width, hs, n, at_ds + 4 * pos0, q1, q, C3, address_of(dqkv, own * C3 + at_k), C3, 1)
                multiply(by, 1, 0, width, hs, n, at_p + 4 * pos0, q1, dy, C, address_of(dqkv, own * C3 + at_v), C3, 1)
            # This slice's keys and values with the queries of later slices.
            width, q0 = pos1 - pos0, pos1
            k, v = address_of(qkv, own * C3 + at_k), address_of(qkv, own * C3 + at_v)
            while q0 < T:
                n = min(BLOCK, run_length(q0, T, sample0, sample1, TS))
                row = row_of(b, q0, sample0, sample1, T, TS)
                q, dy = address_of(qkv, row * C3 + at_q), address_of(dout, row * C + at_q)
                multiply(by, 0, 1, n, width, hs, q, C3, k, C3, at_p, width, 0)
                multiply(by, 0, 1, n, width, hs, dy, C, v, C3, at_ds, width, 0)
                score_gradients(p, ds, n, width, row, pos0, q0, out, dout, lse, h, hs, scale)
                multiply(by, 1, 0, width, hs, n, at_ds, width, q, C3, address_of(dqkv, own * C3 + at_k), C3, 1)
                multiply(by, 1, 0, width, hs, n, at_p, width, dy, C, address_of(dqkv, own * C3 + at_v), C3, 1)
                q0 += n


def forward(
    step: Builder, grid: Grid, layer: int, *, out: Tensor, lse: Tensor, qkv: Tensor, strips: Own, T: int, TS: int
) -> None:
    """Add attention over a grid of slices of at most TS tokens of the T of a sequence.

    A tile needs keys and values of its group's slices up to its own: the rows from `group0`.
    """
    C, NH = step.shape(out)[-1], step.shape(lse)[-1]
    pairs = [pairs_before(pos0, pos1) for pos0, pos1 in grid.ranges("pos0:pos1")]
    step.op(
        "attention", "forward", attention_forward, grid, _cost(grid, [4 * C * n for n in pairs], F32 * (4 * C + NH)),
        layer,
        out=Write(out, ROWS), lse=Write(lse, ROWS), qkv=Read(qkv, "group0:row1"), by=scores(C // NH, T, TS),
        strips=strips, T=T, TS=TS,
    )  # fmt: skip


def backward(
    step: Builder, grid: Grid, layer: int, *,
    dqkv: Tensor, dout: Tensor, qkv: Tensor, out: Tensor, lse: Tensor, strips: Own, T: int, TS: int,
) -> None:  # fmt: skip
    """Add the backward pass. A tile also needs the later slices of its group: the rows up to `group1`."""
    C, NH = step.shape(out)[-1], step.shape(lse)[-1]
    flop = [C * pair_flop_backward(pos0, pos1, T) for pos0, pos1 in grid.ranges("pos0:pos1")]
    step.op(
        "attention", "backward", attention_backward, grid, _cost(grid, flop, F32 * (8 * C + NH)), layer,
        dqkv=Write(dqkv, ROWS), dout=Read(dout, "row0:group1"), qkv=Read(qkv, "group0:group1"),
        out=Read(out, "row0:group1"), lse=Read(lse, "row0:group1"), by=scores(C // NH, T, TS),
        strips=strips, T=T, TS=TS,
    )  # fmt: skip


def scores(hs: int, T: int, TS: int) -> Product:
    """Represents all products of attention: a block of queries by all keys of a head."""
    return Product(0, 1, min(BLOCK, TS), T, hs)


def pairs_before(pos0: int, pos1: int) -> int:
    """(query, key) pairs of one sequence with pos0 <= query < pos1 and key <= query."""
    return (pos1 * (pos1 + 1) - pos0 * (pos0 + 1)) // 2


def pair_flop_backward(pos0: int, pos1: int, T: int) -> int:
    """Flop a channel of attention's backward pass over one slice of a sequence of T tokens.

    A pair of a query and a key takes five products. If both are in this slice, all five are made here; if only the
    query is, p, dp and dq; if only the key is, p and dp again, dk and dv.
    """
    own = pos1 - pos0
    return 10 * (pairs_before(pos0, pos1) - own * pos0) + 6 * own * pos0 + 8 * own * (T - pos1)


def _cost(grid: Grid, sequence_flop: list[int], row_bytes: int) -> list[Cost]:
    """Cost of each tile, from the FLOP of one of its sequences."""
    spans = zip(sequence_flop, grid.ranges("sample0:sample1"), grid.ranges(ROWS), strict=True)
    return [((sample1 - sample0) * flop, (row1 - row0) * row_bytes) for flop, (sample0, sample1), (row0, row1) in spans]
