"""Causal multi-head attention on one slice, without the T x T matrices.

A slice's rows are contiguous, its sequences one after the other; the slices of a group of sequences follow each other
in time. So the keys of one sequence are consecutive rows in each slice (`row_of`). The products of these keys with a
block of at most BLOCK queries are in a strip of BLOCK x T floats of scratch.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from gpt2core.compile.jit import address_of, kernel
from gpt2core.compile.later import exp32, float32, maximum32, np, whole
from gpt2core.gemm.operands import COLUMNS_FROM, COLUMNS_TO, WORDS_FROM, WORDS_TO, Band, into, plain, transposed
from gpt2core.gemm.products import multiply_band
from gpt2core.gemm.sizes import LANES
from gpt2core.layers.sizes import ATTENTION_BLOCK
from gpt2core.step.builder import Builder
from gpt2core.step.grid import F32, ROWS, Cost, Grid
from gpt2core.step.ops import Own, Product, Read, Tensor, Write
from gpt2core.step.signature import Matrix, MatrixOrHalves, Multiply, OwnMatrix, Scalar, TileInt
from gpt2core.step.slicing import Slice

BLOCK = ATTENTION_BLOCK
CHANNELS, HEADS, QKV = "q0:q1", "head0:head1", ("q0:q1", "k0:k1", "v0:v1")  # columns of the heads of a tile
ONE, ZERO = float32(1.0), float32(0.0)


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
def softmax(line, seen, scale):
    """Turn the first `seen` scores of a line into probabilities; log of the sum of their exponentials."""
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
    return top + np.float32(math.log(total))


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
                    q, k = address_of(qkv, row * C3 + h * hs), address_of(qkv, base + C + h * hs)
                    to = into(at + 4 * key, q1, 0)
                    multiply_band(by, n, run, hs, plain(q, C3), transposed(k, C3), to, Band(COLUMNS_TO, q0 - key))
                    key += run
                for i in range(n):
                    seen = q0 + i + 1
                    line = scores[i * q1 : (i + 1) * q1]
                    lse[row + i, h] = softmax(line, seen, scale)
                    for j in range(seen, q1):
                        line[j] = ZERO
                key = 0
                while key < q1:
                    run = run_length(key, q1, sample0, sample1, TS)
                    base = row_of(b, key, sample0, sample1, T, TS) * C3
                    v, to = address_of(qkv, base + 2 * C + h * hs), into(address_of(out, row * C + h * hs), C, key)
                    multiply_band(by, n, hs, run, plain(at + 4 * key, q1), plain(v, C3), to, Band(WORDS_TO, q0 - key))
                    key += run


@kernel
def score_gradients(p, ds, n, width, level, delta, scale):
    """Turn k q^T and v dout^T into probabilities and gradients of the scores, in place on two (n, width) strips.

    Row i is key i and column j is query j of `width` consecutive tokens; a query before its key gets 0. Loops begin at
    a multiple of LANES, so that whole vectors are left.
    Maths: p = exp(scale * s - lse); ds = scale * p * (dp - sum over channels of dout * out).
    """
    for i in range(n):
        start, end, first = i * width, (i + 1) * width, i // LANES * LANES
        pl, dl, levels, deltas = p[start + first : end], ds[start + first : end], level[first:width], delta[first:width]
        for j in range(len(pl)):  # from 0, so that it is vectorised
            e = exp32(scale * pl[j] - levels[j])
            pl[j] = e
            dl[j] = scale * e * (dl[j] - deltas[j])
        p[start : start + i] = ZERO
        ds[start : start + i] = ZERO


class Heads(NamedTuple):
    """A tile of attention's reverse: some heads of some sequences."""

    sample0: TileInt
    sample1: TileInt
    head0: TileInt
    head1: TileInt


@kernel
def attention_backward(
    dqkv: Matrix, dout: Matrix, qkv: Matrix, out: MatrixOrHalves, lse: Matrix, by: Multiply, strips: OwnMatrix,
    heads: Heads, T: Scalar, TS: Scalar,
):  # fmt: skip
    """The gradients of all queries, keys and values of the heads [head0, head1) of the sequences [sample0, sample1).
    Scores are computed again from q, k and lse, a block of keys with all queries that are not earlier.

    Writes:   dqkv (N, 3*C) =, these heads' columns of the group's rows; strips (2, >= (BLOCK + 1)*T): scratch
    Reads:    qkv (N, 3*C); dout, out (N, C); lse (N, NH): these heads' columns of the group's rows
    Maths:    dv = p^T dout; ds = p * (dout v^T - rowsum(dout * out)) / sqrt(hs); dq = ds k; dk = ds^T q
    Tiles:    disjoint heads and groups are independent
    Cost:     10*C/NH*(t + 1) flop per head and row at time t
    Source:   Dao 2023, algorithm 2, whose outer loop is over the keys
    """
    sample0, sample1, head0, head1 = heads
    NH, C = lse.shape[1], out.shape[1]
    hs, C3 = C // NH, 3 * C
    scale = np.float32(1.0 / math.sqrt(hs))
    p, ds, of_query = strips[0], strips[1], BLOCK * T
    level, delta = p[of_query : of_query + T], ds[of_query : of_query + T]
    at_p, at_ds = address_of(strips, 0), address_of(strips, strips.shape[1])
    for b in range(sample0, sample1):
        for h in range(head0, head1):
            at_q, at_k, at_v = h * hs, C + h * hs, 2 * C + h * hs
            t = 0
            while t < T:
                run, row = run_length(t, T, sample0, sample1, TS), row_of(b, t, sample0, sample1, T, TS)
                for i in range(run):
                    total = ZERO
                    ours, theirs = out[row + i, h * hs : (h + 1) * hs], dout[row + i, h * hs : (h + 1) * hs]
                    for c in range(hs):
                        total += theirs[c] * whole(ours[c])
                    level[t + i], delta[t + i] = lse[row + i, h], total
                t += run
            key = 0
            while key < T:
                n, width = min(BLOCK, run_length(key, T, sample0, sample1, TS)), T - key
                row = row_of(b, key, sample0, sample1, T, TS) * C3
                k, v = address_of(qkv, row + at_k), address_of(qkv, row + at_v)
                query = key
                while query < T:
                    run = run_length(query, T, sample0, sample1, TS)
                    base, column = row_of(b, query, sample0, sample1, T, TS), 4 * (query - key)
                    q, dy = address_of(qkv, base * C3 + at_q), address_of(dout, base * C + at_q)
                    to_p, to_ds = into(at_p + column, width, 0), into(at_ds + column, width, 0)
                    wanted = Band(COLUMNS_FROM, key - query)
                    multiply_band(by, n, run, hs, plain(k, C3), transposed(q, C3), to_p, wanted)
                    multiply_band(by, n, run, hs, plain(v, C3), transposed(dy, C), to_ds, wanted)
                    query += run
                score_gradients(p, ds, n, width, level[key:], delta[key:], scale)
                query = key
                while query < T:
                    run = run_length(query, T, sample0, sample1, TS)
                    base, column = row_of(b, query, sample0, sample1, T, TS), 4 * (query - key)
                    q, dy = address_of(qkv, base * C3 + at_q), address_of(dout, base * C + at_q)
                    later, earlier = Band(WORDS_FROM, key - query), Band(WORDS_TO, query - key)
                    p_of, ds_of = plain(at_p + column, width), plain(at_ds + column, width)
                    dq = into(address_of(dqkv, base * C3 + at_q), C3, key)
                    dk = into(address_of(dqkv, row + at_k), C3, column)
                    dv = into(address_of(dqkv, row + at_v), C3, column)
                    multiply_band(by, n, hs, run, ds_of, plain(q, C3), dk, later)
                    multiply_band(by, n, hs, run, p_of, plain(dy, C), dv, later)
                    multiply_band(by, run, hs, n, transposed(at_ds + column, width), plain(k, C3), dq, earlier)
                    query += run
                key += n


def forward(
    step: Builder, grid: Grid, slices: Sequence[Slice], layer: int, *,
    out: Tensor, lse: Tensor, qkv: Tensor, strips: Own, T: int, TS: int,
) -> None:  # fmt: skip
    """Add attention over the slices, each a tile of the grid, of at most TS tokens of the T of a sequence.

    A tile needs keys and values of its group's slices up to its own: the rows from `group0`. Reverse: over a group's
    rows and some of its heads, see `heads_of_groups`; it needs the output's value, which may then be bfloat16.
    """
    C, NH = step.shape(out)[-1], step.shape(lse)[-1]
    pairs = [pairs_before(pos0, pos1) for pos0, pos1 in grid.ranges("pos0:pos1")]
    step.op(
        "attention", "forward", attention_forward, grid, _cost(grid, [4 * C * n for n in pairs], F32 * (4 * C + NH)),
        layer,
        out=Write(out, ROWS), lse=Write(lse, ROWS), qkv=Read(qkv, "group0:row1"), by=scores(C // NH, T, TS),
        strips=strips, T=T, TS=TS,
    )  # fmt: skip
    reverse = partial(_backward, step, slices, layer, out=out, lse=lse, qkv=qkv, strips=strips, T=T, TS=TS)
    step.tape.leave(reverse, out=out, inp=qkv)


def _backward(
    step: Builder, slices: Sequence[Slice], layer: int, *,
    out: Tensor, lse: Tensor, qkv: Tensor, strips: Own, T: int, TS: int,
) -> None:  # fmt: skip
    C, NH = step.shape(out)[-1], step.shape(lse)[-1]
    dqkv, dout, out = step.tape.gradient(qkv), step.tape.gradient(out), step.tape.value(out)
    grid, group, hs = heads_of_groups(slices, NH), "group0:group1", C // NH
    spans = zip(grid.ranges("sample0:sample1"), grid.ranges(HEADS), grid.ranges(group), strict=True)
    cost = [
        (
            (sample1 - sample0) * (head1 - head0) * 10 * hs * pairs_before(0, T),
            (row1 - row0) * (head1 - head0) * (F32 * (7 * hs + 1) + step.itemsize(out) * hs),
        )
        for (sample0, sample1), (head0, head1), (row0, row1) in spans
    ]
    ends = {
        f"{name}{end}": [at * C + hs * heads[end] for heads in grid.ranges(HEADS)]
        for at, name in enumerate("qkv") for end in (0, 1)
    }  # fmt: skip
    step.op(
        "attention", "backward", attention_backward, grid.with_columns(**ends), cost,
        layer,
        dqkv=Write(dqkv, group, QKV), dout=Read(dout, group), qkv=Read(qkv, group),
        out=Read(out, group), lse=Read(lse, group), by=scores(hs, T, TS), strips=strips, T=T, TS=TS,
    )  # fmt: skip


def heads_of_groups(slices: Sequence[Slice], heads: int) -> Grid:
    """A tile for each range of heads of each group of sequences, the last group first: as many as the group has slices,
    or as there are heads. Tiles of one group access different columns of the same rows.
    """
    labels, tiles = [], []
    for first in [s for s in slices if s.index == s.peers[0]][::-1]:
        last, parts = slices[first.peers[-1]], min(heads, len(first.peers))
        for part in range(parts):
            head0, head1 = part * heads // parts, (part + 1) * heads // parts
            group = f"s{first.index}" if first is last else f"s{first.index}-s{last.index}"
            labels.append(group if parts == 1 else f"{group} h{head0}-h{head1 - 1}")
            tiles.append((first.sample0, first.sample1, head0, head1, first.row0, last.row1))
    names = ("sample0", "sample1", "head0", "head1", "group0", "group1")
    return Grid(tuple(labels), dict(zip(names, zip(*tiles, strict=True), strict=True)))


def scores(hs: int, T: int, TS: int) -> Product:
    """Represents all products of attention: a block of queries by all keys of a head."""
    return Product(0, 1, min(BLOCK, TS), T, hs)


def pairs_before(pos0: int, pos1: int) -> int:
    """(query, key) pairs of one sequence with pos0 <= query < pos1 and key <= query."""
    return (pos1 * (pos1 + 1) - pos0 * (pos0 + 1)) // 2


def _cost(grid: Grid, sequence_flop: list[int], row_bytes: int) -> list[Cost]:
    """Cost of each tile, from the FLOP of one of its sequences."""
    spans = zip(sequence_flop, grid.ranges("sample0:sample1"), grid.ranges(ROWS), strict=True)
    return [((sample1 - sample0) * flop, (row1 - row0) * row_bytes) for flop, (sample0, sample1), (row0, row1) in spans]
