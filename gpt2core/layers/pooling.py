"""Pooling of images: the average of all pixels, and the maximum of each 2x2."""

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


@kernel
def max_pool(out: Matrix, inp: Matrix, side: Scalar, C: Scalar, row0: TileInt, row1: TileInt):
    """The maximum of each 2x2 pixels of images [row0, row1) of `side` rows. A last odd row or column is left out.

    Writes:   out (N, (side//2+2)*(side//2+2)*C) =, with a halo of zeros
    Reads:    inp (N, (side+2)*(side+2)*C)
    Maths:    NaN is the maximum
    Tiles:    disjoint ranges of images are independent
    Source:   torch.nn.MaxPool2d(2)
    """
    S, line = side // 2, (side + 2) * C
    for n in range(row0, row1):
        for y in range(S):
            for x in range(S):
                at, to = (2 * y + 1) * line + (2 * x + 1) * C, ((y + 1) * (S + 2) + x + 1) * C
                pixel = out[n, to : to + C]
                for c in range(C):
                    pixel[c] = inp[n, at + c]
                for behind in (C, line, line + C):
                    other = inp[n, at + behind : at + behind + C]
                    for c in range(C):
                        if other[c] > pixel[c] or other[c] != other[c]:
                            pixel[c] = other[c]
        clear_halo(out[n], S, C)


@kernel
def max_pool_backward(
    dinp: Matrix, dout: Matrix, inp: Matrix, side: Scalar, C: Scalar, row0: TileInt, row1: TileInt
):
    """The gradient of max_pool's input before its ReLU, of images [row0, row1).

    Writes:   dinp (N, (side+2)*(side+2)*C) =, with a halo of zeros
    Reads:    dout (N, (side//2+2)*(side//2+2)*C); inp as dinp
    Maths:    of each 2x2 the first maximum, row by row, has the gradient, if it is above 0; all others have 0
    Tiles:    disjoint ranges of images are independent
    """
    S, line, zero = side // 2, (side + 2) * C, np.float32(0)
    for n in range(row0, row1):
        gradient, values = dinp[n], inp[n]
        gradient[:] = 0
        for y in range(S):
            for x in range(S):
                at, of = (2 * y + 1) * line + (2 * x + 1) * C, dout[n, ((y + 1) * (S + 2) + x + 1) * C :]
                for c in range(C):
                    best, top = at + c, values[at + c]
                    for behind in (C, line, line + C):
                        other = values[at + behind + c]
                        if other > top:
                            best, top = at + behind + c, other
                    gradient[best] = of[c] if top > zero else zero


def max_forward(step: Builder, grid: Grid, layer: int, *, out: Tensor, inp: Tensor, side: int) -> None:
    """Add the maximum of each 2x2 pixels, over a grid of images. The input is a ReLU's output, and so is the output.

    Reverse: the input's gradient, before the ReLU.
    """
    C = step.shape(out)[-1]
    step.op(
        "pool2x2", "forward", max_pool, grid, grid.cost(ROWS, C * side**2, 5 * F32 * C * side**2 // 4), layer,
        out=Write(out, ROWS), inp=Read(inp, ROWS), side=side, C=C,
    )  # fmt: skip
    step.tape.leave(partial(_max_backward, step, grid, layer, out=out, inp=inp, side=side), out=out, inp=inp)


def _max_backward(step: Builder, grid: Grid, layer: int, *, out: Tensor, inp: Tensor, side: int) -> None:
    C = step.shape(out)[-1]
    step.op(
        "pool2x2_dinp", "backward", max_pool_backward, grid, grid.cost(ROWS, C * side**2, 9 * F32 * C * side**2 // 4),
        layer, dinp=Write(step.tape.gradient(inp), ROWS), dout=Read(step.tape.gradient(out), ROWS),
        inp=Read(inp, ROWS), side=side, C=C,
    )  # fmt: skip
