"""The rectified linear unit, in place. The gradients here are those before it, as in layers/convolution.py."""

from functools import partial

from gpt2core.compile.jit import kernel
from gpt2core.compile.later import np
from gpt2core.step.builder import Builder
from gpt2core.step.grid import F32, ROWS, Grid
from gpt2core.step.ops import Read, Tensor, Update
from gpt2core.step.signature import Matrix, TileInt


@kernel
def relu(out: Matrix, row0: TileInt, row1: TileInt):
    """Apply ReLU to rows [row0, row1).

    Writes:   out (N, M): max(out, 0)
    Tiles:    disjoint row ranges are independent
    """
    zero = np.float32(0)
    for n in range(row0, row1):
        row = out[n]
        for i in range(row.shape[0]):
            row[i] = zero if row[i] < zero else row[i]  # NaN stays


@kernel
def relu_backward(dinp: Matrix, out: Matrix, row0: TileInt, row1: TileInt):
    """The gradient of rows [row0, row1) before their ReLU.

    Writes:   dinp (N, M): 0 where out is not above 0
    Reads:    out (N, M)
    Tiles:    disjoint row ranges are independent
    """
    zero = np.float32(0)
    for n in range(row0, row1):
        row, kept = dinp[n], out[n]
        for i in range(row.shape[0]):
            row[i] = row[i] if kept[i] > zero else zero


def forward(step: Builder, grid: Grid, *, out: Tensor) -> None:
    """Add a ReLU over a grid of rows. Reverse: the gradient before it, in place."""
    M = step.shape(out)[-1]
    step.op("relu", "forward", relu, grid, grid.cost(ROWS, M, 2 * F32 * M), out=Update(out, ROWS))
    step.tape.leave(partial(_backward, step, grid, out=out), out=out, inp=out)


def _backward(step: Builder, grid: Grid, *, out: Tensor) -> None:
    M = step.shape(out)[-1]
    step.op(
        "relu", "backward", relu_backward, grid, grid.cost(ROWS, M, 3 * F32 * M),
        dinp=Update(step.tape.gradient(out), ROWS), out=Read(out, ROWS),
    )  # fmt: skip
