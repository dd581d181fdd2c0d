"""Pooling of images: the average of all pixels."""

from functools import partial

from gpt2core.compile.jit import kernel
from gpt2core.compile.later import np
from gpt2core.layers.halo import clear_halo
from gpt2core.step.builder import Builder
from gpt2core.step.grid import F32, ROWS, Grid
from gpt2core.step.ops import Read, Tensor, Write
from gpt2core.step.signature import Matrix, Scalar, TileInt


@kernel
def average_pool(out: Matrix, inp: Matrix, side: Scalar, row0: TileInt, row1: TileInt):
    """Average the pixels of images [row0, row1) of `side` rows.

    Writes:   out (N, C) =
    Reads:    inp (N, (side+2)*(side+2)*C)
    Tiles:    disjoint ranges of images are independent
    Source:   torch.nn.AdaptiveAvgPool2d(1)
    """
    C, share = out.shape[1], np.float32(1) / np.float32(side * side)
    for n in range(row0, row1):
        sums = out[n]
        sums[:] = 0
        for y in range(1, side + 1):
            for x in range(1, side + 1):
                at = (y * (side + 2) + x) * C
                pixel = inp[n, at : at + C]
                for c in range(C):
                    sums[c] += pixel[c]
        for c in range(C):
            sums[c] *= share


@kernel
def average_pool_backward(dinp: Matrix, dout: Matrix, inp: Matrix, side: Scalar, row0: TileInt, row1: TileInt):
    """The gradient of average_pool's input before its ReLU, of images [row0, row1).

    Writes:   dinp (N, (side+2)*(side+2)*C) =, with a halo of zeros
    Reads:    dout (N, C); inp as dinp
    Maths:    dinp = dout / side^2 where inp is above 0, otherwise 0
    Tiles:    disjoint ranges of images are independent
    """
    C, share, zero = dout.shape[1], np.float32(1) / np.float32(side * side), np.float32(0)
    for n in range(row0, row1):
        for y in range(1, side + 1):
            for x in range(1, side + 1):
                at = (y * (side + 2) + x) * C
                kept, to, of = inp[n, at : at + C], dinp[n, at : at + C], dout[n]
                for c in range(C):
                    to[c] = share * of[c] if kept[c] > 0 else zero
        clear_halo(dinp[n], side, C)


def forward(step: Builder, grid: Grid, *, out: Tensor, inp: Tensor, side: int) -> None:
    """Add the average over all pixels, over a grid of images. The input is a ReLU's output.

    Reverse: the input's gradient, before the ReLU.
    """
    C = step.shape(out)[-1]
    step.op(
        "pool", "forward", average_pool, grid, grid.cost(ROWS, C * side**2, F32 * C * side**2),
        out=Write(out, ROWS), inp=Read(inp, ROWS), side=side,
    )  # fmt: skip
    step.tape.leave(partial(_backward, step, grid, out=out, inp=inp, side=side), out=out, inp=inp)


def _backward(step: Builder, grid: Grid, *, out: Tensor, inp: Tensor, side: int) -> None:
    C = step.shape(out)[-1]
    step.op(
        "pool_dinp", "backward", average_pool_backward, grid, grid.cost(ROWS, C * side**2, 2 * F32 * C * side**2),
        dinp=Write(step.tape.gradient(inp), ROWS), dout=Read(step.tape.gradient(out), ROWS), inp=Read(inp, ROWS),
        side=side,
    )  # fmt: skip
