"""Packed weights of convolutions, and the products of a sweep of windows over images with them."""

from typing import NamedTuple

from gpt2core.compile.jit import address_of, kernel
from gpt2core.gemm.operands import Lines, Rows, Target, Vectors
from gpt2core.gemm.products import TILE_COLUMNS, TILE_ROWS, pack_depth, pack_lanes, whole_tile
from gpt2core.gemm.sizes import LANES
from gpt2core.step.grid import F32
from gpt2core.step.signature import TileInt, Vector


@kernel
def vectors_of(columns):
    """Vectors of LANES floats that have these columns."""
    return (columns + LANES - 1) // LANES


@kernel
def taps(size, stride, phase):
    """Number of outputs along one dimension that a window of `size` makes of an input at a position of this `phase`,
    that is, modulo the stride."""
    if size == 1:
        return 1 if phase == 0 else 0
    return 3 if stride == 1 else 1 + phase


@kernel
def tap(size, stride, phase, i):
    """Row of the window through which the i-th of these outputs reads the input."""
    if size == 1:
        return 0
    if stride == 1:
        return 2 - i
    return 1 if phase == 0 else 2 - 2 * i


@kernel
def pack(
    packed: Vector, weights: Vector, weight0: TileInt, at: TileInt, turned_at: TileInt, end: TileInt, OC: TileInt,
    C: TileInt, size: TileInt, stride: TileInt,
):  # fmt: skip
    """Pack a weight for products with windows, and turned for the gradient of the input.

    Writes:   packed (any,) =, from `at` on (panels, size*size*C, LANES) with zeros behind the last output; from
              turned_at on, unless that is the end, phase after phase (panels, taps*taps*OC, LANES)
    Reads:    weights (any,), from weight0 on (OC, size*size*C)
    Maths:    along the input's phases, an output's rows and columns of the window are in the opposite order
    Tiles:    different weights are independent
    """
    K = size * size * C
    for o0 in range(0, OC, LANES):
        panel, source = address_of(packed, at + o0 * K), address_of(weights, weight0 + o0 * K)
        pack_lanes(panel, source, K, K, min(LANES, OC - o0))
    to = turned_at
    for py in range(stride if end > turned_at else 0):
        for px in range(stride):
            for c0 in range(0, C, LANES):
                for ty in range(taps(size, stride, py)):
                    for tx in range(taps(size, stride, px)):
                        k = (tap(size, stride, py, ty) * size + tap(size, stride, px, tx)) * C
                        panel, source = address_of(packed, to), address_of(weights, weight0 + k + c0)
                        pack_depth(panel, F32 * LANES, source, K, OC, min(LANES, C - c0), LANES, False, False, False)
                        to += LANES * OC


class Windows(NamedTuple):
    """What a sweep reads: the address of the first pixel's window, and the strides in bytes of pixels, of rows of
    pixels, and of a window's lines."""

    at: int
    pixel: int
    row: int
    line: int


class Pixels(NamedTuple):
    """What a sweep writes: the address of the first pixel, the strides in bytes of pixels and of rows of pixels, and
    how many rows, pixels of a row, and channels."""

    at: int
    pixel: int
    row: int
    height: int
    width: int
    channels: int


@kernel
def sweep(a, panels, length, lines, c, start, one, gate, rectify):
    """Compute all channels of the Pixels c from those of a, panel by panel of the packed weights.

    `length` words in each of `lines` lines of a window. start and gate are addresses of the first pixel, or 0; they lie
    as c does, but with `one` start is one pixel for all.
    """
    for c0 in range(0, c.channels, TILE_COLUMNS):
        some = min(TILE_COLUMNS, c.channels - c0)
        panel, vectors = panels + 4 * c0 * length * lines, vectors_of(some)
        for y in range(c.height):
            x, at_a, at = 0, a.at + y * a.row, 4 * c0 + y * c.row
            while x < c.width:
                rows = TILE_ROWS if x + TILE_ROWS <= c.width else 1
                begin = Rows(start + (4 * c0 if one else at) if start else 0, 0 if one else c.pixel)
                whole_tile(
                    rows, vectors, Lines(at_a, a.pixel, 4, a.line),
                    Vectors(panel, 4 * LANES, 4 * LANES * length, 4 * LANES * length * lines), length, lines,
                    Target(c.at + at, c.pixel, some), begin, Rows(gate + at if gate else 0, c.pixel), rectify,
                )  # fmt: skip
                x, at_a, at = x + rows, at_a + rows * a.pixel, at + rows * c.pixel
