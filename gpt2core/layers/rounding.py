"""Rounding of rows to bfloat16."""

from gpt2core.compile.jit import kernel
from gpt2core.compile.later import half
from gpt2core.step.builder import Builder
from gpt2core.step.grid import BF16, F32, ROWS, Grid
from gpt2core.step.ops import Read, Tensor, Write
from gpt2core.step.signature import Halves, Matrix, TileInt


@kernel
def round_rows(out: Halves, inp: Matrix, row0: TileInt, row1: TileInt):
    """Round rows [row0, row1) to the nearest bfloat16.

    Writes:   out (N, C) bfloat16 =
    Reads:    inp (N, C)
    Tiles:    disjoint row ranges are independent
    Cost:     C flop, 6*C bytes per row
    """
    for n in range(row0, row1):
        for c in range(inp.shape[1]):
            out[n, c] = half(inp[n, c])


def forward(step: Builder, name: str, grid: Grid, layer: int | None, *, out: Tensor, inp: Tensor) -> None:
    """Add the rounding of a tensor over a grid of rows. Reverse: the gradient passes unchanged, in float32."""
    C = step.shape(inp)[-1]
    step.op(
        name, "forward", round_rows, grid, grid.cost(ROWS, C, (F32 + BF16) * C), layer,
        out=Write(out, ROWS), inp=Read(inp, ROWS),
    )  # fmt: skip
    step.tape.value_in(inp, out)
    step.tape.passes(out, inp)
