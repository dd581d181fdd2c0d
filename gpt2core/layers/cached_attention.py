"""Causal multi-head attention of one new token, with the keys and values of all earlier ones kept."""

import math

from gpt2core.compile.jit import kernel
from gpt2core.compile.later import float32, np
from gpt2core.layers.attention import softmax
from gpt2core.step.builder import Builder
from gpt2core.step.grid import F32, Grid
from gpt2core.step.ops import Own, Read, Tensor, Update, Write
from gpt2core.step.signature import Matrix, OwnVector, Scalar, Step, TileInt

HEAD = "head0:head1"
ZERO = float32(0.0)


@kernel
def attention_of_token(
    out: Matrix, keys: Matrix, values: Matrix, qkv: Matrix, scores: OwnVector, hs: Scalar, first: Scalar, step: Step,
    head0: TileInt, head1: TileInt,
):  # fmt: skip
    """Keep key and value of the token at position `first` + `step`, and attend from it to itself and to all earlier
    ones.

    Writes:   out (1, C) =; keys, values (NH, T*hs): of these heads, the `hs` elements of the position =;
              scores (>= T,): scratch
    Reads:    qkv (1, 3*C): query, key and value of every head; keys, values: those of earlier positions
    Maths:    out = softmax(q k^T / sqrt(hs)) v over the positions 0 to `first` + `step`
    Tiles:    disjoint ranges of heads are independent
    Cost:     4*hs*(position + 1) flop and 8*hs*(position + 2) bytes per head
    Source:   Vaswani et al. 2017; kept keys and values: Shazeer 2019, section 2.4
    """
    C, seen, at = out.shape[1], first + step + 1, (first + step) * hs
    scale = np.float32(1.0 / math.sqrt(hs))
    line = scores[:seen]
    for h in range(head0, head1):
        q, ours = qkv[0, h * hs : (h + 1) * hs], out[0, h * hs : (h + 1) * hs]
        key, value = keys[h, at : at + hs], values[h, at : at + hs]
        new_key, new_value = qkv[0, C + h * hs : C + (h + 1) * hs], qkv[0, 2 * C + h * hs : 2 * C + (h + 1) * hs]
        for c in range(hs):
            key[c] = new_key[c]
            value[c] = new_value[c]
        for t in range(seen):
            theirs = keys[h, t * hs : (t + 1) * hs]
            total = ZERO
            for c in range(hs):
                total += q[c] * theirs[c]
            line[t] = total
        softmax(line, seen, scale)
        for c in range(hs):
            ours[c] = ZERO
        for t in range(seen):
            weight, theirs = line[t], values[h, t * hs : (t + 1) * hs]
            for c in range(hs):
                ours[c] += weight * theirs[c]


@kernel
def keys_and_values(keys: Matrix, values: Matrix, qkv: Matrix, hs: Scalar, head0: TileInt, head1: TileInt):
    """Keep keys and values of the first N tokens.

    Writes:   keys, values (NH, T*hs): of these heads, the first N*hs elements =
    Reads:    qkv (N, 3*C): key and value of these heads
    Tiles:    disjoint ranges of heads are independent
    Cost:     16*hs bytes per token and head
    """
    C = qkv.shape[1] // 3
    for t in range(qkv.shape[0]):
        for h in range(head0, head1):
            for c in range(hs):
                keys[h, t * hs + c] = qkv[t, C + h * hs + c]
                values[h, t * hs + c] = qkv[t, 2 * C + h * hs + c]


def forward(
    step: Builder, layer: int, *,
    out: Tensor, keys: Tensor, values: Tensor, qkv: Tensor, scores: Own, first: int, mean_seen: float,
) -> None:  # fmt: skip
    """Add the attention of a step's token, a tile for each head, without a reverse. `first`: the token's position in
    the first step; `mean_seen`: mean number of positions that a token attends to, for the cost.
    """
    grid, hs = _heads(step, keys, qkv)
    cost = (round(4 * hs * mean_seen), round(2 * F32 * hs * (mean_seen + 1)))
    step.op(
        "attention", "forward", attention_of_token, grid, [cost] * len(grid), layer,
        out=Write(out, (), "q0:q1"), keys=Update(keys, HEAD), values=Update(values, HEAD),
        qkv=Read(qkv, (), ("q0:q1", "k0:k1", "v0:v1")), scores=scores, hs=hs, first=first,
    )  # fmt: skip


def keep(step: Builder, layer: int, *, keys: Tensor, values: Tensor, qkv: Tensor) -> None:
    """Add the copies of the first tokens' keys and values, for `forward` in later steps; a tile for each head."""
    grid, hs = _heads(step, keys, qkv)
    N = step.shape(qkv)[0]
    grid = grid.with_columns(kept0=[0] * len(grid), kept1=[N * hs] * len(grid))
    step.op(
        "keep", "forward", keys_and_values, grid, grid.cost(HEAD, 0, 4 * F32 * N * hs), layer,
        keys=Write(keys, HEAD, "kept0:kept1"), values=Write(values, HEAD, "kept0:kept1"),
        qkv=Read(qkv, (), ("k0:k1", "v0:v1")), hs=hs,
    )  # fmt: skip


def _heads(step: Builder, keys: Tensor, qkv: Tensor) -> tuple[Grid, int]:
    """A tile for each head, with the columns of its query, key and value; and the size of a head."""
    NH, C = step.shape(keys)[0], step.shape(qkv)[-1] // 3
    hs, heads = C // NH, range(NH)
    columns = {
        f"{name}{end}": [at * C + hs * (h + end) for h in heads] for at, name in enumerate("qkv") for end in (0, 1)
    }
    return Grid(tuple(f"h{h}" for h in heads)).with_columns(head0=heads, head1=[h + 1 for h in heads], **columns), hs
