"""Attention of a decoder's states to an encoder's, by their products, over padded sequences."""

from typing import Any, NamedTuple

from gpt2core.compile.jit import kernel
from gpt2core.compile.later import exp32, float32, maximum32
from gpt2core.step.builder import Builder
from gpt2core.step.grid import F32, ROWS, Grid
from gpt2core.step.ops import Read, Tensor, Write
from gpt2core.step.signature import Int32s, Matrix, TileInt

SAMPLES, GROUP = "sample0:sample1", "group0:group1"
ZERO, ONE = float32(0.0), float32(1.0)


class Lengths(NamedTuple):
    """Positions of each sample's sequences, (B,) int32."""

    source_lengths: Int32s
    target_lengths: Int32s


@kernel
def cross_attention(
    mixed: Matrix, shares: Matrix, decoded: Matrix, encoded: Matrix, lengths: Lengths,
    sample0: TileInt, sample1: TileInt, pos0: TileInt, pos1: TileInt, row0: TileInt, group0: TileInt,
):  # fmt: skip
    """Mix the encoder's states for the decoder's positions [pos0, pos1).

    Writes:   mixed (N, 2*D) =: the mean of the encoder's states, then the decoder's state; shares (N, T) =
    Reads:    decoded, encoded (N, D), time-major within a group; lengths
    Maths:    shares = softmax over the source's positions of decoded . encoded; mixed = (shares @ encoded, decoded);
              0 after the end of the target
    Tiles:    slices are independent
    Source:   Luong et al. 2015, global attention with `dot`
    """
    D, n = decoded.shape[1], sample1 - sample0
    for t in range(pos0, pos1):
        for i in range(n):
            row, S = row0 + (t - pos0) * n + i, lengths.source_lengths[sample0 + i]
            to, share, state = mixed[row], shares[row], decoded[row]
            to[:] = 0
            share[:] = 0
            if t >= lengths.target_lengths[sample0 + i]:
                continue
            for s in range(S):
                other, total = encoded[group0 + s * n + i], ZERO
                for c in range(D):
                    total += state[c] * other[c]
                share[s] = total
            top = share[0]
            for s in range(1, S):
                top = maximum32(top, share[s])
            total = ZERO
            for s in range(S):
                e = exp32(share[s] - top)
                share[s] = e
                total += e
            scale = ONE / total
            for s in range(S):
                share[s] *= scale
                other, part = encoded[group0 + s * n + i], share[s]
                for c in range(D):
                    to[c] += part * other[c]
            for c in range(D):
                to[D + c] = state[c]


@kernel
def cross_attention_backward(
    ddecoded: Matrix, dencoded: Matrix, dshares: Matrix, dmixed: Matrix, shares: Matrix, decoded: Matrix,
    encoded: Matrix, lengths: Lengths, sample0: TileInt, sample1: TileInt, group0: TileInt, group1: TileInt,
):  # fmt: skip
    """The gradients of both states of a group of samples.

    Writes:   ddecoded, dencoded (N, D) =; dshares (N, T) =, the gradient of the products
    Reads:    dmixed, shares, decoded, encoded, lengths as `cross_attention`
    Tiles:    groups of samples are independent
    """
    D, n = decoded.shape[1], sample1 - sample0
    for row in range(group0, group1):
        for c in range(D):
            dencoded[row, c] = 0
    for row in range(group0, group1):
        i, t = (row - group0) % n, (row - group0) // n
        S, grad, share, dshare = lengths.source_lengths[sample0 + i], dmixed[row], shares[row], dshares[row]
        to, state = ddecoded[row], decoded[row]
        to[:] = 0
        dshare[:] = 0
        if t >= lengths.target_lengths[sample0 + i]:
            continue
        mean = ZERO
        for s in range(S):
            other, total = encoded[group0 + s * n + i], ZERO
            for c in range(D):
                total += grad[c] * other[c]
            dshare[s] = total
            mean += share[s] * total
        for s in range(S):
            at = group0 + s * n + i
            other, dother, part = encoded[at], dencoded[at], share[s]
            product = part * (dshare[s] - mean)
            dshare[s] = product
            for c in range(D):
                to[c] += product * other[c]
            for c in range(D):
                dother[c] += part * grad[c] + product * state[c]
        for c in range(D):
            to[c] += grad[D + c]


def forward(
    step: Builder, grid: Grid, groups: Grid, *,
    mixed: Tensor, shares: Tensor, decoded: Tensor, encoded: Tensor, source_lengths: Tensor, target_lengths: Tensor,
) -> None:  # fmt: skip
    """Add the attention over slices. Reverse, over groups: the gradients of `decoded`, and of `encoded` as far as it
    comes from here; what else reads `encoded` adds its own."""
    D, T = step.shape(decoded)[1], step.shape(shares)[1]
    lengths: dict[str, Any] = {
        "source_lengths": Read(source_lengths, SAMPLES), "target_lengths": Read(target_lengths, SAMPLES),
    }  # fmt: skip
    step.op(
        "cross_attention", "forward", cross_attention, grid, grid.cost(ROWS, 4 * T * D + 12 * T, F32 * (4 * D + T)),
        mixed=Write(mixed, ROWS), shares=Write(shares, ROWS), decoded=Read(decoded, ROWS), encoded=Read(encoded, GROUP),
        **lengths,
    )  # fmt: skip

    def reverse() -> None:
        step.op(
            "cross_attention", "backward", cross_attention_backward, groups,
            groups.cost(GROUP, 8 * T * D, F32 * (6 * D + 2 * T)),
            ddecoded=Write(step.tape.gradient(decoded), GROUP), dencoded=Write(step.tape.gradient(encoded), GROUP),
            dshares=Write(Tensor(f"d{shares.name}"), GROUP), dmixed=Read(step.tape.gradient(mixed), GROUP),
            shares=Read(shares, GROUP), decoded=Read(decoded, GROUP), encoded=Read(encoded, GROUP), **lengths,
        )  # fmt: skip

    step.tape.leave(reverse, out=mixed, inp=decoded)
