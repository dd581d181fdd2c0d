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
    out: Matrix, keys: Matrix, values: Matrix, qkv: Matrix, scores: OwnVector, hs: Scalar, step: Step,
    head0: TileInt, head1: TileInt,
):  # fmt: skip
    """Keep key and value of the token at position `step`, and attend from it to itself and to all earlier ones.

    Writes:   out (1, C) =; keys, values (NH, T*hs): of these heads, `hs` elements of position `step` =;
              scores (>= T,): scratch
    Reads:    qkv (1, 3*C): query, key and value of every head; keys, values: those of earlier positions
    Maths:    out = softmax(q k^T / sqrt(hs)) v over the positions 0 to `step`
    Tiles:    disjoint ranges of heads are independent
    Cost:     4*hs*(step + 1) flop and 8*hs*(step + 2) bytes per head
    Source:   Vaswani et al. 2017; kept keys and values: Shazeer 2019, section 2.4
    """
    C, seen, at = out.shape[1], step + 1, step * hs
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


def forward(
    step: Builder, layer: int, *,
    out: Tensor, keys: Tensor, values: Tensor, qkv: Tensor, scores: Own, mean_seen: float,
) -> None:  # fmt: skip
    """Add the attention of a step's token, a tile for each head, without a reverse. `mean_seen`: mean number of
    positions that a token attends to, for the cost.
    """
    NH, C = step.shape(keys)[0], step.shape(out)[-1]
    hs, heads = C // NH, range(NH)
    columns = {
        f"{name}{end}": [at * C + hs * (h + end) for h in heads] for at, name in enumerate("qkv") for end in (0, 1)
    }
    grid = Grid(tuple(f"h{h}" for h in heads)).with_columns(head0=heads, head1=[h + 1 for h in heads], **columns)
    cost = (round(4 * hs * mean_seen), round(2 * F32 * hs * (mean_seen + 1)))
    step.op(
        "attention", "forward", attention_of_token, grid, [cost] * NH, layer,
        out=Write(out, (), "q0:q1"), keys=Update(keys, HEAD), values=Update(values, HEAD),
        qkv=Read(qkv, (), ("q0:q1", "k0:k1", "v0:v1")), scores=scores, hs=hs,
    )  # fmt: skip
