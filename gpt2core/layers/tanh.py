"""The hyperbolic tangent, in place. The gradient here is that before it."""

from functools import partial

from gpt2core.compile.jit import kernel
from gpt2core.compile.later import np
from gpt2core.layers import cell
from gpt2core.step.builder import Builder
from gpt2core.step.grid import F32, ROWS, Grid
from gpt2core.step.ops import Read, Tensor, Update
from gpt2core.step.signature import Matrix, TileInt

of = cell.tanh


@kernel
def tanh(out: Matrix, row0: TileInt, row1: TileInt):
    """Apply tanh to rows [row0, row1).

    Writes:   out (N, M): tanh(out)
    Tiles:    disjoint row ranges are independent
    """
    for n in range(row0, row1):
        row = out[n]
        for i in range(row.shape[0]):
            row[i] = of(row[i])


@kernel
def tanh_backward(dinp: Matrix, out: Matrix, row0: TileInt, row1: TileInt):
    """The gradient of rows [row0, row1) before their tanh.

    Writes:   dinp (N, M) *= 1 - out^2
    Reads:    out (N, M)
    Tiles:    disjoint row ranges are independent
    """
    one = np.float32(1)
    for n in range(row0, row1):
        row, kept = dinp[n], out[n]
        for i in range(row.shape[0]):
            row[i] *= one - kept[i] * kept[i]


def forward(step: Builder, grid: Grid, *, out: Tensor) -> None:
    """Add tanh over a grid of rows. Reverse: the gradient before it, in place."""
    M = step.shape(out)[-1]
    step.op("tanh", "forward", tanh, grid, grid.cost(ROWS, 20 * M, 2 * F32 * M), out=Update(out, ROWS))
    step.tape.leave(partial(_backward, step, grid, out=out), out=out, inp=out)


def _backward(step: Builder, grid: Grid, *, out: Tensor) -> None:
    M = step.shape(out)[-1]
    step.op(
        "tanh", "backward", tanh_backward, grid, grid.cost(ROWS, 3 * M, 3 * F32 * M),
        dinp=Update(step.tape.gradient(out), ROWS), out=Read(out, ROWS),
    )  # fmt: skip
