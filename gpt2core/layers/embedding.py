"""Token and position embeddings."""

from gpt2core.compile.jit import kernel
from gpt2core.step.builder import Builder
from gpt2core.step.grid import F32, ROWS, Grid
from gpt2core.step.ops import Constant, Own, Read, Tensor, Write, add_or_set
from gpt2core.step.parameters import BLOCK, block_grid
from gpt2core.step.signature import Int32s, Matrix, OwnMatrix, Scalar, TileInt


@kernel
def encoder_forward(
    out: Matrix, tokens: Int32s, positions: Int32s, wte: Matrix, wpe: Matrix, row0: TileInt, row1: TileInt
):
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
            out[n, c] = wte[token, c] + wpe[position, c]


@kernel
def encoder_backward_wte(
    dwte: OwnMatrix, dout: Matrix, tokens: Int32s, out0: TileInt, out1: TileInt, to: TileInt
):
    """Add the gradient of the token embedding's rows [out0, out1).

    Writes:   dwte (any, C) +=, rows from `to` on
    Reads:    dout (N, C), tokens (N,) int32
    Maths:    gradient of v += sum over the rows n with tokens[n] = v of dout[n], in the order of n
    Tiles:    disjoint ranges of vocabulary are independent
    Cost:     C flop, 12*C bytes per row whose token is in range
    """
    C = dout.shape[1]
    for n in range(tokens.shape[0]):
        token = tokens[n]
        if out0 <= token < out1:
            for c in range(C):
                dwte[to + token - out0, c] += dout[n, c]


@kernel
def encoder_backward_wpe(
    dwpe: OwnMatrix, dout: Matrix, positions: Int32s, out0: TileInt, out1: TileInt, to: TileInt, adds: Scalar
):
    """Set or add to the gradient of the position embedding's rows [out0, out1).

    Writes:   dwpe (any, C) =, or += if `adds` is set, rows from `to` on
    Reads:    dout (N, C), positions (N,) int32
    Maths:    gradient of t = sum over the rows n with positions[n] = t of dout[n], in the order of n
    Tiles:    disjoint ranges of positions are independent
    Cost:     C flop, 12*C bytes per row whose position is in range
    """
    C = dout.shape[1]
    if not adds:
        dwpe[to : to + out1 - out0] = 0
    for n in range(positions.shape[0]):
        position = positions[n]
        if out0 <= position < out1:
            for c in range(C):
                dwpe[to + position - out0, c] += dout[n, c]


def forward(
    step: Builder, grid: Grid, *, out: Tensor, tokens: Tensor, positions: Tensor, wte: Tensor, wpe: Tensor
) -> None:
    """Add the embeddings of tokens and of their positions, which are written before the first step."""
    C = step.shape(out)[-1]
    step.op(
        "encoder", "forward", encoder_forward, grid, grid.cost(ROWS, C, 3 * F32 * C),
        out=Write(out, ROWS), tokens=Read(tokens, ROWS), positions=Constant(positions, ROWS),
        wte=Read(wte), wpe=Read(wpe),
    )  # fmt: skip


def backward_tokens(step: Builder, *, weight: Tensor, dwte: Tensor | Own, dout: Tensor, tokens: Tensor) -> None:
    """Add the token embedding's gradient, block by block, onto the one that is there."""
    grid, share = block_grid(step, weight, own=isinstance(dwte, Own)), _share(step, weight, dout)
    step.op(
        "encoder", "backward", encoder_backward_wte, grid, grid.cost(BLOCK, share, 3 * F32 * share), filler=True,
        dwte=add_or_set(True, dwte, BLOCK), dout=Read(dout), tokens=Read(tokens),
    )  # fmt: skip


def backward_positions(
    step: Builder, *, weight: Tensor, dwpe: Tensor | Own, dout: Tensor, positions: Tensor, adds: bool
) -> None:
    """Add the position embedding's gradient, block by block."""
    grid, share = block_grid(step, weight, own=isinstance(dwpe, Own)), _share(step, weight, dout)
    step.op(
        "encoder", "backward", encoder_backward_wpe, grid, grid.cost(BLOCK, share, 3 * F32 * share), filler=True,
        dwpe=add_or_set(adds, dwpe, BLOCK), dout=Read(dout), positions=Constant(positions), adds=int(adds),
    )  # fmt: skip


def _share(step: Builder, weight: Tensor, dout: Tensor) -> int:
    """Values that are added to one row of an embedding, if all rows occur equally often."""
    rows, C = step.shape(dout)
    return C * rows // step.shape(weight)[0]
