"""Embeddings of tokens, and of tokens and positions."""

from collections.abc import Mapping
from functools import partial

from gpt2core.compile.jit import kernel
from gpt2core.compile.later import whole
from gpt2core.layers import sums
from gpt2core.step import parameters
from gpt2core.step.builder import Builder
from gpt2core.step.grid import F32, ROWS, Grid
from gpt2core.step.ops import Read, Tensor, Use, Write, add_or_set
from gpt2core.step.parameters import BLOCK, Destination
from gpt2core.step.signature import Int32s, Matrix, MatrixOrHalves, OwnMatrix, Scalar, TileInt
from gpt2core.step.tape import Share


@kernel
def encoder_forward(
    out: Matrix, tokens: Int32s, positions: Int32s, wte: MatrixOrHalves, wpe: MatrixOrHalves, row0: TileInt,
    row1: TileInt,
):  # fmt: skip
    """Add the embeddings of token and position.

    Writes:   out (N, C) =
    Reads:    tokens, positions (N,) int32; wte (Vp, C), wpe (maxT, C)
    Maths:    out[n] = wte[tokens[n]] + wpe[positions[n]]
    Tiles:    disjoint row ranges are independent
    Cost:     C flop, 12*C bytes per row
    Source:   Radford et al. 2019
    """
    C = out.shape[1]
    for n in range(row0, row1):
        token, position = tokens[n], positions[n]
        for c in range(C):
            out[n, c] = whole(wte[token, c]) + whole(wpe[position, c])


@kernel
def encoder_forward_of_part(
    out: Matrix, tokens: Int32s, positions: Int32s, wte: MatrixOrHalves, wpe: MatrixOrHalves, first: Scalar,
    row0: TileInt, row1: TileInt,
):  # fmt: skip
    """`encoder_forward` of a rank that has the embeddings of some tokens, from `first` on. Those of others are 0.

    Writes:   out (N, C) =
    Reads:    tokens, positions (N,) int32; wte (any, C); wpe (maxT, C), or (0, 0) for none
    Tiles:    disjoint row ranges are independent
    Cost:     C flop, 12*C bytes per row
    """
    for n in range(row0, row1):
        token, row = tokens[n] - first, out[n]
        row[:] = 0
        if 0 <= token < wte.shape[0]:
            for c in range(wte.shape[1]):
                row[c] = whole(wte[token, c])
        for c in range(wpe.shape[1]):
            row[c] += whole(wpe[positions[n], c])


@kernel
def embedding_forward(out: Matrix, tokens: Int32s, weight: MatrixOrHalves, row0: TileInt, row1: TileInt):
    """Take the embeddings of tokens.

    Writes:   out (N, C) =
    Reads:    tokens (N,) int32; weight (V, C)
    Maths:    out[n] = weight[tokens[n]]
    Tiles:    disjoint row ranges are independent
    Cost:     8*C bytes per row
    Source:   torch.nn.Embedding
    """
    for n in range(row0, row1):
        token = tokens[n]
        for c in range(out.shape[1]):
            out[n, c] = whole(weight[token, c])


@kernel
def encoder_backward(
    dweight: OwnMatrix, dout: Matrix, indices: Int32s, out0: TileInt, out1: TileInt, to: TileInt, adds: Scalar,
    first: Scalar,
):  # fmt: skip
    """The gradient of an embedding's rows [out0, out1), whose row 0 is that of the index `first`.

    Writes:   dweight (any, C) =, or += if `adds` is set, rows from `to` on
    Reads:    dout (N, C), indices (N,) int32
    Maths:    gradient of v = sum over the rows n with indices[n] = first + v of dout[n], in the order of n
    Tiles:    disjoint ranges of the embedding are independent
    Cost:     C flop, 12*C bytes per row whose index is in range
    """
    C = dout.shape[1]
    if not adds:
        dweight[to : to + out1 - out0] = 0
    for n in range(indices.shape[0]):
        index = indices[n] - first
        if out0 <= index < out1:
            for c in range(C):
                dweight[to + index - out0, c] += dout[n, c]


def forward(
    step: Builder, grid: Grid, *, out: Tensor, tokens: Tensor, positions: Tensor, wte: Tensor, wpe: Tensor,
    divided: bool = False,
) -> None:  # fmt: skip
    """Add the embeddings of tokens and of their positions, which are written before the first step. divided: each rank
    has the embeddings of some tokens, as many as wte has rows; rank 0 adds those of the positions.

    Reverse: the gradients of both, block by block.
    """
    (V, C), rank = step.shape(wte), step.matrix_rank.number
    cost = grid.cost(ROWS, C, (F32 + step.itemsize(wte) + step.itemsize(wpe)) * C)
    if divided:
        step.op(
            "encoder", "forward", encoder_forward_of_part, grid, cost,
            out=Write(sums.OWN, ROWS), tokens=Read(tokens, ROWS), positions=Read(positions, ROWS),
            wte=Read(wte), wpe=None if rank else Read(wpe), first=rank * V,
        )  # fmt: skip
        sums.add(step, "encoder", "forward", grid, None, out=out)
    else:
        step.op(
            "encoder", "forward", encoder_forward, grid, cost,
            out=Write(out, ROWS), tokens=Read(tokens, ROWS), positions=Read(positions, ROWS),
            wte=Read(wte), wpe=Read(wpe),
        )  # fmt: skip
    reverse = partial(_backward, step, out=out, of={wte: (Read(tokens), rank * V), wpe: (Read(positions), 0)})
    weights = {weight: parameters.matrix(step, weight) for weight in (wpe, wte)}
    step.tape.leave(reverse, out=out, kind="embedding", weights=weights)


def forward_of_tokens(
    step: Builder, grid: Grid, *, out: Tensor, tokens: Tensor, weight: Tensor, bias: Tensor | None = None
) -> None:
    """Add the embeddings of tokens alone. `bias`: that of a later layer with the same weight, updated with it.

    Reverse: the gradient of the weight, block by block.
    """
    C = step.shape(out)[-1]
    step.op(
        "embedding", "forward", embedding_forward, grid, grid.cost(ROWS, 0, (F32 + step.itemsize(weight)) * C),
        out=Write(out, ROWS), tokens=Read(tokens, ROWS), weight=Read(weight),
    )  # fmt: skip
    reverse = partial(_backward, step, out=out, of={weight: (Read(tokens), 0)})
    step.tape.leave(reverse, out=out, kind="embedding", weights={weight: parameters.matrix(step, weight, bias)})


def _backward(step: Builder, *, out: Tensor, of: Mapping[Tensor, tuple[Use, int]]) -> None:
    for weight, (indices, first) in of.items():
        leave_gradient(step, weight=weight, dout=step.tape.gradient(out), indices=indices, first=first)


def leave_gradient(step: Builder, *, weight: Tensor, dout: Tensor, indices: Use, first: int = 0) -> None:
    """Leave the gradient of an embedding from those of all rows, each of which has taken the row `indices`, counted
    from `first` on."""
    share = partial(_backward_weight, step, weight=weight, dout=dout, indices=indices, first=first)
    step.tape.shares.append(Share(weight, share))


def _backward_weight(
    step: Builder, to: Destination, *, weight: Tensor, dout: Tensor, indices: Use, first: int
) -> None:
    grid, (dweight, _) = parameters.block_grid(step, weight, to.own), to.of(step, weight)
    rows, C = step.shape(dout)
    share = C * rows // step.shape(weight)[0]  # values that are added to one row, if all rows occur equally often
    step.op(
        "encoder", "backward", encoder_backward, grid, grid.cost(BLOCK, share, 3 * F32 * share), filler=True,
        dweight=add_or_set(to.adds, dweight, BLOCK), dout=Read(dout), indices=indices, first=first, adds=int(to.adds),
    )  # fmt: skip
