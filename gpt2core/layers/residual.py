"""Residual connections."""

from gpt2core.compile.jit import kernel
from gpt2core.step.builder import Builder
from gpt2core.step.grid import F32, ROWS, Grid
from gpt2core.step.ops import Read, Tensor, Update
from gpt2core.step.signature import Matrix, TileInt


@kernel
def residual_forward(out: Matrix, inp: Matrix, row0: TileInt, row1: TileInt):
    """Add the residual stream to a branch, rows [row0, row1).

    Writes:   out (N, C): on entry what the branch adds, on exit the sum
    Reads:    inp (N, C)
    Maths:    out += inp
    Tiles:    disjoint row ranges are independent
    Cost:     C flop, 12*C bytes per row
    """
    for n in range(row0, row1):
        for c in range(inp.shape[1]):
            out[n, c] += inp[n, c]


def forward(step: Builder, grid: Grid, layer: int | None, *, out: Tensor, inp: Tensor) -> None:
    """Add the sum of a residual stream and a branch, in the branch's place, over a grid of rows.

    Reverse: the sum's gradient is that of the branch, and reaches the stream past the branch.
    """
    C = step.shape(out)[-1]
    step.op(
        "residual", "forward", residual_forward, grid, grid.cost(ROWS, C, 3 * F32 * C), layer,
        out=Update(out, ROWS), inp=Read(inp, ROWS),
    )  # fmt: skip
    step.tape.bypass(out, inp)
