"""Convolutions of images, by implicit matrix products: no copy of an input's windows is made (im2col).

An image is (side + 2, side + 2, channels) with a halo of zeros, so the inputs of a row of a window are consecutive, and
those of the next pixel lie `stride` pixels behind. So a register tile (gemm/strided_tile.py) reads them as they lie.
Weights are (out, rows, columns, in), and are packed once a step: a panel of outputs side by side. ReLU and a shortcut
are done in registers. What has been rectified tells where its gradient is 0, so the gradients here are those before
the ReLU.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from gpt2core.compile.jit import address_of, kernel
from gpt2core.compile.later import np
from gpt2core.gemm.operands import Lines, Rows, Target, Vectors
from gpt2core.gemm.products import TILE_COLUMNS, TILE_ROWS, ragged_tile, whole_tile
from gpt2core.gemm.sizes import LANES
from gpt2core.layers import windows
from gpt2core.layers.halo import clear_halo
from gpt2core.layers.sweep import Pixels, Windows, pack, sweep, taps, vectors_of
from gpt2core.layers.windows import Convolution
from gpt2core.step import parameters
from gpt2core.step.builder import Builder
from gpt2core.step.grid import F32, ROWS, Grid
from gpt2core.step.ops import Given, Read, Tensor, Update, Write, add_or_set
from gpt2core.step.parameters import BLOCK, WEIGHTS, Destination, Parameter
from gpt2core.step.signature import Kernel, Matrix, OwnMatrix, OwnVector, Scalar, TileInt, Vector
from gpt2core.step.tape import Share

PACKED = Tensor("packed")
PART = "part0:part1"  # the rows of a slice's share of a weight's gradient


class Sizes(NamedTuple):
    """A convolution of images of `side` rows, from C to OC channels: see windows.Convolution."""

    side: Scalar
    C: Scalar
    OC: Scalar
    size: Scalar
    stride: Scalar


@kernel
def convolve(
    out: Matrix, inp: Matrix, shortcut: Matrix, bias: Vector, packed: Vector, at: Scalar, sizes: Sizes,
    rectify: Scalar, row0: TileInt, row1: TileInt,
):  # fmt: skip
    """Convolve images [row0, row1) of `side` rows.

    Writes:   out (N, (S+2)*(S+2)*OC) =, S = (side + stride - 1) // stride, with a halo of zeros
    Reads:    inp (N, (side+2)*(side+2)*C) with a halo of zeros; shortcut as out, or (0, 0) for none, may be out; bias
              (OC,), or (0,) for none, and with a shortcut none; packed, from `at` on: see `pack`
    Maths:    out = shortcut + bias + window @ weight.T, and with `rectify` max(out, 0); windows are centred, size 1 or
              3
    Tiles:    disjoint ranges of images are independent
    Cost:     2*size*size*C*OC flop per pixel of the output
    Source:   torch.nn.functional.conv2d with padding size // 2
    """
    side, C, OC, size, stride = sizes
    S = (side + stride - 1) // stride
    line, out_line = (side + 2) * C, (S + 2) * OC
    first, inner = 0 if size == 3 else line + C, out_line + OC
    for n in range(row0, row1):
        start = address_of(bias, 0) if bias.shape[0] else 0
        if shortcut.shape[0]:
            start = address_of(shortcut, n * out.shape[1] + inner)
        sweep(
            Windows(address_of(inp, n * inp.shape[1] + first), 4 * stride * C, 4 * stride * line, 4 * line),
            address_of(packed, at), size * C, size,
            Pixels(address_of(out, n * out.shape[1] + inner), 4 * OC, 4 * out_line, S, S, OC),
            start, bias.shape[0], 0, rectify,
        )  # fmt: skip
        clear_halo(out[n], S, OC)


@kernel
def convolve_backward_input(
    dinp: Matrix, dout: Matrix, past: Matrix, inp: Matrix, packed: Vector, at: Scalar, sizes: Sizes, row0: TileInt,
    row1: TileInt,
):  # fmt: skip
    """The gradient of a convolution's input, of images [row0, row1) of `side` rows.

    Writes:   dinp (N, (side+2)*(side+2)*C) =, with a halo of zeros
    Reads:    dout (N, (S+2)*(S+2)*OC) with a halo of zeros; past as dinp, or (0, 0) for none, may be dinp; inp as dinp,
              or (0, 0) if it has not been rectified; packed, from `at` on: turned, see `pack`
    Maths:    dinp = past + the convolution of dout with the turned weight, for each phase of the stride; 0 where inp
              is not above 0
    Tiles:    disjoint ranges of images are independent
    Cost:     2*size*size*C*OC flop per pixel of the output
    """
    side, C, OC, size, stride = sizes
    S = (side + stride - 1) // stride
    line, out_line = (side + 2) * C, (S + 2) * OC
    first = 0 if size == 3 and stride == 1 else out_line + OC
    for n in range(row0, row1):
        panels = address_of(packed, at)
        for py in range(stride):
            for px in range(stride):
                ty, tx = taps(size, stride, py), taps(size, stride, px)
                to = n * dinp.shape[1] + (1 + py) * line + (1 + px) * C
                height, width = (side - py + stride - 1) // stride, (side - px + stride - 1) // stride
                sweep(
                    Windows(address_of(dout, n * dout.shape[1] + first), 4 * OC, 4 * out_line, 4 * out_line),
                    panels, tx * OC, ty,
                    Pixels(address_of(dinp, to), 4 * stride * C, 4 * stride * line, height, width, C),
                    address_of(past, to) if past.shape[0] else 0, 0, address_of(inp, to) if inp.shape[0] else 0, 0,
                )  # fmt: skip
                panels += 4 * ty * tx * OC * LANES * vectors_of(C)
        clear_halo(dinp[n], side, C)


@kernel
def add_pixels(sums, images):
    """The sum of all pixels of some images, with their halo of zeros, image after image."""
    C = sums.shape[0]
    sums[:] = 0
    for n in range(images.shape[0]):
        for at in range(0, images.shape[1], C):
            pixel = images[n, at : at + C]
            for c in range(C):
                sums[c] += pixel[c]


@kernel
def convolve_backward_weight(
    shares: Matrix, bias_shares: Vector, dout: Matrix, inp: Matrix, sizes: Sizes, row0: TileInt, row1: TileInt,
    part0: TileInt,
):  # fmt: skip
    """A share of the gradient of a convolution's weight and bias, from images [row0, row1) of `side` rows.

    Writes:   shares (any, size*size*C) =, OC rows from part0 on; bias_shares (any,) =, OC elements from part0 on, or
              (0,) for none
    Reads:    dout (N, (S+2)*(S+2)*OC), inp (N, (side+2)*(side+2)*C) with a halo of zeros
    Maths:    sum over the pixels, image after image, of dout.T @ window, and of dout
    Tiles:    slices of images have shares of their own
    Cost:     2*size*size*C*OC flop per pixel of the output
    """
    side, C, OC, size, stride = sizes
    S = (side + stride - 1) // stride
    line, out_line, K = (side + 2) * C, (S + 2) * OC, size * size * C
    first = 0 if size == 3 else line + C
    if bias_shares.shape[0]:
        add_pixels(bias_shares[part0 : part0 + OC], dout[row0:row1])
    for n in range(row0, row1):
        for ky in range(size):
            for k in range(0, size * C, TILE_COLUMNS):
                some = min(TILE_COLUMNS, size * C - k)
                b, o = address_of(inp, n * inp.shape[1] + first + ky * line + k), 0
                while o < OC:
                    rows = TILE_ROWS if o + TILE_ROWS <= OC else 1
                    at = address_of(dout, n * dout.shape[1] + out_line + OC + o)
                    to = address_of(shares, (part0 + o) * K + ky * size * C + k)
                    pixels = Lines(at, 4, 4 * OC, 4 * out_line)
                    window = Vectors(b, 4 * stride * C, 4 * stride * line, 4 * LANES)
                    c, before, vectors = Target(to, 4 * K, some), Rows(to if n > row0 else 0, 4 * K), vectors_of(some)
                    if some % LANES == 0:
                        whole_tile(rows, vectors, pixels, window, S, S, c, before, Rows(0, 0), 0)
                    else:
                        ragged_tile(rows, vectors, pixels, window, S, S, c, before, Rows(0, 0), 0)
                    o += rows


@kernel
def fold(
    dweight: OwnMatrix, dbias: OwnVector, shares: Matrix, bias_shares: Vector, OC: Scalar, out0: TileInt, out1: TileInt,
    to: TileInt, adds: Scalar,
):  # fmt: skip
    """Sum the slices' shares of the gradient of a weight's outputs [out0, out1), slice after slice.

    Writes:   dweight (any, K) =, rows from `to` on; dbias (any,) =, elements from `to` on, or (0,) for none; both += if
              `adds` is set
    Reads:    shares (slices*OC, K), bias_shares (slices*OC,) or (0,)
    Tiles:    disjoint ranges of outputs are independent
    Cost:     K flop and 4*K bytes per output and slice
    """
    K = shares.shape[1]
    for o in range(out0, out1):
        row = dweight[to + o - out0]
        for first in range(o, shares.shape[0], OC):
            share = shares[first]
            if first == o and not adds:
                for k in range(K):
                    row[k] = share[k]
            else:
                for k in range(K):
                    row[k] += share[k]
        if dbias.shape[0]:
            total = dbias[to + o - out0] if adds else np.float32(0)
            for at in range(o, bias_shares.shape[0], OC):
                total += bias_shares[at]
            dbias[to + o - out0] = total


class Convolutions:
    """The convolutions of a step over a grid of images, with the tensors `packed` and `shares.*` (layers/windows.py).

    Creating it adds the packing of all weights, once for all steps if they are constant. Micro-batches after the first
    one use what it has packed.
    """

    def __init__(self, step: Builder, grid: Grid, every: Sequence[Convolution]) -> None:
        self.step, self.grid = step, grid
        self._places = windows.packed_places(every, not step.is_constant(PACKED))
        self._number = {each.weight: number for number, each in enumerate(every)}
        if step.micro == 0:
            self._pack(every)

    def _pack(self, every: Sequence[Convolution]) -> None:
        places = [self._places[each.weight] for each in every]
        weight0, weight1 = zip(*(self.step.elements(Tensor(each.weight)) for each in every), strict=True)
        grid = Grid(tuple(each.weight for each in every)).with_columns(
            weight0=weight0, weight1=weight1, at=[p.at for p in places], turned_at=[p.turned_at for p in places],
            end=[p.end for p in places], OC=[each.OC for each in every], C=[each.C for each in every],
            size=[each.size for each in every], stride=[each.stride for each in every],
        )  # fmt: skip
        cost = [(0, F32 * (w1 - w0 + p.end - p.at)) for w0, w1, p in zip(weight0, weight1, places, strict=True)]
        with self.step.once_if_constant(PACKED):
            self.step.op(
                "pack", "forward", pack, grid, cost,
                packed=Write(PACKED, "at:end"), weights=Read(WEIGHTS, "weight0:weight1"),
            )  # fmt: skip

    def forward(self, each: Convolution, *, out: Tensor, inp: Tensor, rectified: bool = False) -> None:
        """Add a convolution and its ReLU. `rectified`: the input is a ReLU's output.

        Reverse: the input's gradient, if it needs one, and the weight's.
        """
        self.apply(each, out=out, inp=inp)
        reverse = partial(self._backward, each, out=out, inp=inp, rectified=rectified)
        self.step.tape.leave(reverse, out=out, inp=inp, kind="conv", weights=self.parameters(each))

    def _backward(self, each: Convolution, *, out: Tensor, inp: Tensor, rectified: bool) -> None:
        tape = self.step.tape
        dout = tape.gradient(out)
        with self.step.fused():
            self.share_weight_gradient(each, dout=dout, inp=inp)
            if tape.needs_gradient(inp):
                self.apply_backward(each, dinp=tape.gradient(inp), dout=dout, inp=inp if rectified else None)

    def parameters(self, *every: Convolution) -> dict[Tensor, list[Parameter]]:
        """The blocks of their weights."""
        return {Tensor(each.weight): parameters.matrix(self.step, Tensor(each.weight), _bias(each)) for each in every}

    def apply(
        self, each: Convolution, *, out: Tensor, inp: Tensor, shortcut: Tensor | None = None, rectify: bool = True
    ) -> None:
        """Add a convolution. A shortcut is added to it, which may be `out`; then a ReLU follows."""
        place, bias = self._places[each.weight], _bias(each)
        values = each.side**2 * each.C + each.out_side**2 * each.OC * (2 if shortcut else 1)
        written = Update if shortcut == out else Write
        self._op(
            each, "", "forward", convolve, values,
            out=written(out, ROWS), inp=Read(inp, ROWS), shortcut=shortcut and Read(shortcut, ROWS),
            bias=bias and Read(bias), packed=Read(PACKED, "at:turned_at"), at=place.at, rectify=int(rectify),
        )  # fmt: skip

    def apply_backward(
        self, each: Convolution, *, dinp: Tensor, dout: Tensor, past: Tensor | None = None, inp: Tensor | None = None
    ) -> None:
        """Add the gradient of the input, to which `past` is added, which may be `dinp`. With `inp` it is the gradient
        before the input's ReLU."""
        place = self._places[each.weight]
        values = each.side**2 * each.C * (1 + (past is not None) + (inp is not None)) + each.out_side**2 * each.OC
        written = Update if past == dinp else Write
        self._op(
            each, "_dinp", "backward", convolve_backward_input, values,
            dinp=written(dinp, ROWS), dout=Read(dout, ROWS), past=past and Read(past, ROWS),
            inp=inp and Read(inp, ROWS), packed=Read(PACKED, "turned_at:end"),
            at=place.turned_at,
        )  # fmt: skip

    def share_weight_gradient(self, each: Convolution, *, dout: Tensor, inp: Tensor) -> None:
        """Add each slice's share of the weight's gradient, and leave their sum."""
        values = each.side**2 * each.C + each.out_side**2 * each.OC
        self._op(
            each, "_dweight", "backward", convolve_backward_weight, values, filler=True,
            shares=Write(_shares(each), PART), bias_shares=Write(_bias_shares(each), PART) if each.bias else None,
            dout=Read(dout, ROWS), inp=Read(inp, ROWS),
        )  # fmt: skip
        number = self._number[each.weight]
        self.step.tape.shares.append(Share(Tensor(each.weight), partial(self._fold, each), number))

    def _fold(self, each: Convolution, to: Destination) -> None:
        """Add the sum of the slices' shares."""
        weight, count = Tensor(each.weight), len(self.grid)
        dweight, dbias = to.of(self.step, weight, _bias(each))
        blocks = parameters.block_grid(self.step, weight, to.own)
        ranges = tuple([(each.OC * s + o0, each.OC * s + o1) for s in range(count)] for o0, o1 in blocks.ranges(BLOCK))
        self.step.op(
            f"{_name(each)}_fold", "backward", fold, Grid(blocks.labels, blocks.columns, {PART: ranges}),
            blocks.cost(BLOCK, count * each.K, F32 * (count + 1) * each.K), self._number[each.weight], filler=True,
            dweight=add_or_set(to.adds, dweight, BLOCK), dbias=dbias and add_or_set(to.adds, dbias, BLOCK),
            shares=Read(_shares(each), PART), bias_shares=Read(_bias_shares(each), PART) if each.bias else None,
            OC=each.OC, adds=int(to.adds),
        )  # fmt: skip

    def _op(
        self, each: Convolution, suffix: str, phase: str, kernel: Kernel, values: int, /, filler: bool = False,
        **given: Given,
    ) -> None:  # fmt: skip
        """Add an op of a convolution. `values` that it reads and writes for each image."""
        slices, place = range(len(self.grid)), self._places[each.weight]
        columns = {name: [at] * len(slices) for name, at in place._asdict().items()}
        grid = self.grid.with_columns(
            **columns, part0=[each.OC * s for s in slices], part1=[each.OC * (s + 1) for s in slices]
        )
        self.step.op(
            _name(each) + suffix, phase, kernel, grid, grid.cost(ROWS, each.flop, F32 * values, F32 * each.K * each.OC),
            self._number[each.weight], filler,
            side=each.side, C=each.C, OC=each.OC, size=each.size, stride=each.stride, **given,
        )  # fmt: skip


def _name(each: Convolution) -> str:
    """Name of its ops: by its window."""
    return f"conv{each.size}x{each.size}"


def _bias(each: Convolution) -> Tensor | None:
    return Tensor(each.bias) if each.bias else None


def _shares(each: Convolution) -> Tensor:
    return Tensor(f"shares.{each.weight}")


def _bias_shares(each: Convolution) -> Tensor:
    return Tensor(f"shares.{each.bias}")
