"""Residual connections."""

from gpt2core.compile.jit import kernel
from gpt2core.step.builder import Builder
from gpt2core.step.grid import F32, ROWS, Grid
from gpt2core.step.ops import Read, Tensor, Write
from gpt2core.step.signature import Matrix, TileInt


@kernel
def residual_forward(out: Matrix, inp: Matrix, branch: Matrix, row0: TileInt, row1: TileInt):
    """Add a branch to the residual stream, rows [row0, row1).

    Writes:   out (N, C) =
    Reads:    inp, branch (N, C)
    Maths:    out = inp + branch
    Tiles:    disjoint row ranges are independent
    Cost:     C flop, 12*C bytes per row
    """
    for n in range(row0, row1):
        for c in range(inp.shape[1]):
            out[n, c] = inp[n, c] + branch[n, c]


def forward(step: Builder, grid: Grid, layer: int | None, *, out: Tensor, inp: Tensor, branch: Tensor) -> None:
    """Add the sum of a residual stream and a branch over a grid of rows."""
    C = step.shape(out)[-1]
    step.op(
        "residual", "forward", residual_forward, grid, grid.cost(ROWS, C, 3 * F32 * C), layer,
        out=Write(out, ROWS), inp=Read(inp, ROWS), branch=Read(branch, ROWS),
    )  # fmt: skip
