"""Copies of single rows."""

from gpt2core.compile.jit import kernel
from gpt2core.step.builder import Builder
from gpt2core.step.grid import F32, ROWS, Grid
from gpt2core.step.ops import Read, Tensor, Write
from gpt2core.step.signature import Int32s, Matrix, TileInt


@kernel
def copy_rows(
    out: Matrix, found: Int32s, inp: Matrix, targets: Int32s, row0: TileInt, row1: TileInt, from0: TileInt,
    stride: TileInt,
):  # fmt: skip
    """Copy rows from0, from0 + stride, ... to the rows [row0, row1), and what follows them.

    Writes:   out (M, C) =; found (M,) int32 =, or (0,) for none
    Reads:    inp (N, C); targets (N,) int32, or (0,) for none
    Tiles:    disjoint ranges of outputs are independent
    Cost:     8*C bytes per row
    """
    for row in range(row0, row1):
        n = from0 + (row - row0) * stride
        for c in range(inp.shape[1]):
            out[row, c] = inp[n, c]
        if targets.shape[0]:
            found[row] = targets[n]


def forward(
    step: Builder, grid: Grid, *, out: Tensor, inp: Tensor, found: Tensor | None = None, targets: Tensor | None = None
) -> None:
    """Add the copies. Of the grid, row0:row1 are rows of the output, within0:within1 are the rows that contain those of
    the input, which begin at from0 in distances of stride.
    """
    C = step.shape(inp)[-1]
    step.op(
        "last_rows", "forward", copy_rows, grid, grid.cost(ROWS, 0, 2 * F32 * C),
        out=Write(out, ROWS), found=found and Write(found, ROWS), inp=Read(inp, "within0:within1"),
        targets=targets and Read(targets, "within0:within1"),
    )  # fmt: skip
