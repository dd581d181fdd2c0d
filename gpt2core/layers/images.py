"""A batch's images and their classes, converted from bytes that lie outside the arenas."""

from typing import Any

from gpt2core.compile.jit import kernel
from gpt2core.compile.later import Later, np
from gpt2core.layers.halo import clear_halo
from gpt2core.step.builder import Builder
from gpt2core.step.grid import F32, ROWS, Grid
from gpt2core.step.ops import Outside, Tensor, Write
from gpt2core.step.signature import Bytes, Int32s, Int64s, Matrix, Scalar, Step, TileInt

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)  # of CIFAR-10's channels
CHANNELS = len(MEAN)
SCALE: Any = Later(lambda: tuple(np.float32(1 / 255 / std) for std in STD))
SHIFT: Any = Later(lambda: tuple(np.float32(-mean / std) for mean, std in zip(MEAN, STD, strict=True)))


@kernel
def images_load(
    out: Matrix, targets: Int32s, samples: Bytes, order: Int64s, side: Scalar, micros: Scalar, micro: Scalar,
    step: Step, row0: TileInt, row1: TileInt,
):  # fmt: skip
    """Convert the images [row0, row1) of a step's batch `micro`, one of `micros`, and copy their classes.

    Writes:   out (N, (side + 2) * (side + 2) * 3) =, pixel by pixel within a halo of zeros; targets (N,) =, int32, or
              (0,) for none
    Reads:    samples (any,) uint8; order (any,) int64: where each image's record begins, its class and then its pixels
              channel by channel
    Maths:    (byte / 255 - mean) / std of the channel; batch i holds the images [i*N, (i+1)*N) of `order`, after whose
              last entry the first one follows
    Tiles:    disjoint ranges of images are independent
    """
    N, area, line = out.shape[0], side * side, (side + 2) * CHANNELS
    first = (step * micros + micro) * N
    for n in range(row0, row1):
        at = order[(first + n) % order.shape[0]]
        if targets.shape[0]:
            targets[n] = samples[at]
        clear_halo(out[n], side, CHANNELS)
        for c in range(CHANNELS):
            scale, shift = SCALE[c], SHIFT[c]
            for y in range(side):
                pixels = samples[at + 1 + c * area + y * side : at + 1 + c * area + (y + 1) * side]
                row = out[n, (y + 1) * line + CHANNELS : (y + 2) * line]
                for x in range(side):
                    row[x * CHANNELS + c] = np.float32(pixels[x]) * scale + shift


@kernel
def classes_load(
    targets: Int32s, samples: Bytes, order: Int64s, micros: Scalar, micro: Scalar, step: Step, row0: TileInt,
    row1: TileInt,
):  # fmt: skip
    """Copy the classes that `images_load` copies, of images [row0, row1).

    Writes:   targets (N,) =, int32
    Reads:    samples (any,) uint8; order (any,) int64
    Tiles:    disjoint ranges of images are independent
    """
    N = targets.shape[0]
    first = (step * micros + micro) * N
    for n in range(row0, row1):
        targets[n] = samples[order[(first + n) % order.shape[0]]]


def forward(step: Builder, grid: Grid, *, out: Tensor, targets: Tensor | None, side: int, micros: int) -> None:
    """Add the loading of a batch from the arrays `samples` and `order` of the network's data, over a grid of images.
    Ranks that divide matrices each load a part of the batch, whose classes `classes` loads for all of them."""
    flop, bytes_ = 2 * CHANNELS * side * side, (1 + F32) * CHANNELS * side * side
    rank, ranks = step.matrix_rank
    step.op(
        "images", "data", images_load, grid, grid.cost(ROWS, flop, bytes_),
        out=Write(out, ROWS), targets=targets and Write(targets, ROWS), samples=Outside("samples"),
        order=Outside("order"), side=side, micros=micros, micro=step.batch * ranks + rank,
    )  # fmt: skip


def classes(step: Builder, grid: Grid, *, targets: Tensor, micros: int) -> None:
    """Add the loading of a batch's classes alone, over a grid of images."""
    step.op(
        "classes", "data", classes_load, grid, grid.cost(ROWS, 0, 1 + F32),
        targets=Write(targets, ROWS), samples=Outside("samples"), order=Outside("order"), micros=micros,
        micro=step.batch,
    )  # fmt: skip
