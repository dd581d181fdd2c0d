"""Layers of long short-term memory: h_t, c_t from x_t, h_(t-1) and c_(t-1), with the gates i, f, g, o as torch.nn.LSTM.

The input product of a chunk of time is one call, and the recurrence of a chunk is one task. Or each time is an op with
a tile for each block of hidden units, which computes all four gates of its units. Rows are time-major within a group of
samples: a time step's rows are consecutive, and those of the step before lie `samples of the group` rows before them.
So no product needs a copy, and the recurrent weight's gradient is a product of shifted rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from gpt2core.compile.jit import address_of, kernel
from gpt2core.compile.later import float32
from gpt2core.gemm.operands import Out, into, plain, transposed
from gpt2core.gemm.products import multiply, weight_or_panels
from gpt2core.layers import linear, panels
from gpt2core.layers.cell import cell_backward, cell_forward, state_before
from gpt2core.layers.units import GATES, UNITS, Units
from gpt2core.step import parameters, slicing
from gpt2core.step.builder import Builder
from gpt2core.step.grid import F32, ROWS, Cost, Grid
from gpt2core.step.ops import Product, Read, Tensor, Update, Write, add_or_set
from gpt2core.step.parameters import BLOCK, Destination, Parameter
from gpt2core.step.signature import Matrix, Multiply, OwnMatrix, OwnVector, Scalar, TileInt, Vector
from gpt2core.step.slicing import Slice
from gpt2core.step.tape import Share

ZERO = float32(0.0)
CELL_FLOP, CELL_BACKWARD_FLOP = 100, 50  # of a unit


class States(NamedTuple):
    """The samples' states before the first time, (B, H), or (0, 0)."""

    first_h: Matrix
    first_cell: Matrix


@kernel
def lstm_carry(
    first_h: Matrix, first_cell: Matrix, h: Matrix, cell: Matrix, sample0: TileInt, sample1: TileInt, group1: TileInt
):
    """Copy the states of the samples [sample0, sample1) after the last batch, whose group's rows end at group1.

    Writes:   first_h, first_cell (B, H) =
    Reads:    h, cell (N, H), the rows of the last time
    Tiles:    disjoint ranges of samples are independent
    Cost:     16*H bytes per sample
    """
    H, row = h.shape[1], group1 - (sample1 - sample0)
    for s in range(sample1 - sample0):
        for j in range(H):
            first_h[sample0 + s, j] = h[row + s, j]
            first_cell[sample0 + s, j] = cell[row + s, j]


class Chunk(NamedTuple):
    """The times [pos0, pos1) of the samples [sample0, sample1), whose rows begin at row0."""

    sample0: TileInt
    sample1: TileInt
    pos0: TileInt
    pos1: TileInt
    row0: TileInt


class PackedUnits(NamedTuple):
    """Hidden units [unit0, unit1); the panels of their gates are rows [panel0, panel1) of the weight's, if packed."""

    unit0: TileInt
    unit1: TileInt
    panel0: TileInt
    panel1: TileInt


class UnitsBack(NamedTuple):
    """Hidden units [unit0, unit1); their panels are rows of the weight's from back0 on, if it is packed."""

    unit0: TileInt
    unit1: TileInt
    back0: TileInt


class Outputs(NamedTuple):
    """Rows [out0, out1) of a weight, whose gradient's are those from `to` on."""

    out0: TileInt
    out1: TileInt
    to: TileInt


@kernel
def lstm_forward(
    h: Matrix, cell: Matrix, gates: Matrix, past: Matrix, cell_past: Matrix, first: States, weight: Matrix,
    panels: Matrix, bias: Vector, by: Multiply, chunk: Chunk, units: PackedUnits,
):  # fmt: skip
    """Run some units of the cells over a chunk of time: over one time, unless these are all units.

    Writes:   h, cell (N, H) =; gates (N, 4*H): on entry what the input gives them, on exit i, f, g, o
    Reads:    past: h, the rows of the time before; cell_past: cell, the same; weight (4*H, H), bias (4*H,);
              panels: the weight's, if it is packed, or (0, 0)
    Maths:    a = gates + past @ weight.T + bias; i, f, o = sigmoid(a), g = tanh(a);
              c = f c_(t-1) + i g; h = o tanh(c); without first_h both are 0 before the first time
    Tiles:    a chunk of time follows the one before it; groups of samples are independent, and so are units of a time
    Cost:     8*H + 100 flop and 44 bytes per row and unit; 16*H bytes per unit
    Source:   Hochreiter & Schmidhuber 1997; torch.nn.LSTM
    """
    sample0, sample1, pos0, pos1, row0 = chunk
    unit0, unit1, panel0, panel1 = units
    H, n, carried = h.shape[1], sample1 - sample0, first.first_h.shape[0]
    G, width = GATES * H, unit1 - unit0
    at_b, ldb = weight_or_panels(by, weight, panels)
    parts = 1 if width == H else GATES  # products, each of whose columns are consecutive
    length = GATES // parts * width
    for t in range(pos0, pos1):
        row = row0 + (t - pos0) * n
        before = address_of(past, (row - n) * H) if t else address_of(first.first_h, sample0 * H)
        for part in range(parts if t or carried else 0):
            j = part * H + unit0
            at = at_b + F32 * (j * H if ldb else (panel0 + part * (panel1 - panel0) // parts) * panels.shape[1])
            to = into(address_of(gates, row * G + j), G, 1)
            multiply(by, n, length, H, plain(before, H), transposed(at, ldb), to)
        for s in range(n):
            r = row + s
            past_cell = state_before(cell_past, first.first_cell, t, r - n, sample0 + s, unit0, unit1)
            cell_forward(h[r, unit0:unit1], cell[r, unit0:unit1], past_cell, gates[r], bias, unit0)


@kernel
def lstm_backward(
    dgates: Matrix, dh: Matrix, dcell: Matrix, later: Matrix, cell: Matrix, first_cell: Matrix, weight: Matrix,
    panels: Matrix, by: Multiply, T: Scalar, chunk: Chunk, units: UnitsBack,
):  # fmt: skip
    """The gradients of what some units of the cells take in a chunk of time, the last time first: at one time, unless
    these are all units.

    Writes:   dgates (N, 4*H): on entry i, f, g, o, on exit the gradients of their sums; dh (N, H): on entry the
              gradient of h from what reads it, on exit also from the time after; dcell (B, H): the gradient of the
              samples' states from the time after, on exit from pos0; what it has is not read at the last time
    Reads:    later: dgates, the rows of the time after; cell (N, H), also those of the time before; weight (4*H, H);
              panels: the weight's, if it is packed, or (0, 0);
              first_cell (B, H): the samples' states before the first time, or (0, 0)
    Maths:    dh += dgates_(t+1) @ weight; dc += dh o (1 - tanh(c)^2); do = dh tanh(c) o (1 - o); di = dc g i (1 - i);
              dg = dc i (1 - g^2); df = dc c_(t-1) f (1 - f); dc_(t-1) = dc f
    Tiles:    a chunk of time follows the one after it; groups of samples are independent, and so are units of a time
    Cost:     8*H + 50 flop and 52 bytes per row and unit; 16*H bytes per unit
    Source:   Werbos 1990, backpropagation through time
    """
    sample0, sample1, pos0, pos1, row0 = chunk
    unit0, unit1, back0 = units
    H, n = dh.shape[1], sample1 - sample0
    G = GATES * H
    at_b, ldb = weight_or_panels(by, weight, panels)
    at_b += F32 * (unit0 if ldb else back0 * panels.shape[1])
    for t in range(pos1 - 1, pos0 - 1, -1):
        row = row0 + (t - pos0) * n
        if t + 1 < T:
            after, to = plain(address_of(later, (row + n) * G), G), into(address_of(dh, row * H + unit0), H, 1)
            multiply(by, n, unit1 - unit0, G, after, plain(at_b, ldb), to)
        else:
            dcell[sample0:sample1, unit0:unit1] = ZERO
        for s in range(n):
            r = row + s
            past = state_before(cell, first_cell, t, r - n, sample0 + s, unit0, unit1)
            dc = dcell[sample0 + s, unit0:unit1]
            cell_backward(dgates[r], dh[r, unit0:unit1], dc, cell[r, unit0:unit1], past, unit0)


@kernel
def lstm_backward_weight(
    dweight: OwnMatrix, dbias: OwnVector, dgates: Matrix, h: Matrix, first_h: Matrix, by: Multiply, T: Scalar,
    BS: Scalar, rows: Outputs, adds: Scalar, fetches: Scalar,
):  # fmt: skip
    """The gradient of some rows of the recurrent weight and of their biases, over all groups of BS samples.

    Writes:   dweight (any, H) =, rows from `to` on; dbias (any,) =, elements from `to` on;
              both += if `adds` is set; `fetches`: dweight is not expected in a cache
    Reads:    dgates (N, 4*H), h (N, H), T times of each sample; first_h (B, H): h before the first time, or (0, 0)
    Maths:    dweight = sum over the times but the first of dgates_t.T @ h_(t-1), group by group; dbias = sum of dgates
              over the rows, in their order
    Tiles:    disjoint ranges of rows are independent
    Cost:     2*N*H flop per row of the weight; 4*N*H bytes per tile and 4*(N + H) per row
    """
    out0, out1, to = rows
    N, H, G, carried = h.shape[0], h.shape[1], dgates.shape[1], first_h.shape[0]
    if T == 1 and not (adds or carried):
        dweight[to : to + out1 - out0] = ZERO
    more, at = adds, address_of(dweight, to * H)
    for first in range(0, N // T if T > 1 or carried else 0, BS):
        n, row = min(BS, N // T - first), first * T
        if carried:
            left, right = transposed(address_of(dgates, row * G + out0), G), plain(address_of(first_h, first * H), H)
            multiply(by, out1 - out0, H, n, left, right, Out(at, H, more, fetches))
            more = 1
        if T > 1:
            left, right = transposed(address_of(dgates, (row + n) * G + out0), G), plain(address_of(h, row * H), H)
            multiply(by, out1 - out0, H, n * (T - 1), left, right, Out(at, H, more, fetches))
            more = 1
    linear.add_columns(dbias, dgates, out0, out1, to, adds)


Stage = Sequence[Callable[[], None]]  # functions that add ops which fusion makes one


@dataclass(frozen=True)
class Layer:
    """A layer of cells over slices of a batch: its tensors, with the weights of its input and of its recurrence, and T
    times in groups of at most BS samples. `first_h`, `first_cell`: the samples' states before the first time, if these
    are the states after the previous batch. `panels`, `panels_back`: the recurrent weight, packed once a step for the
    forward and for the backward product. U: hidden units of a tile; with fewer than all a time is an op.
    """

    step: Builder
    slices: Sequence[Slice]
    number: int
    out: Tensor
    inp: Tensor
    gates: Tensor
    cell: Tensor
    dcell: Tensor
    input_weight: Tensor
    input_bias: Tensor
    weight: Tensor
    bias: Tensor
    T: int
    BS: int
    U: int
    first_h: Tensor | None = None
    first_cell: Tensor | None = None
    panels: Tensor | None = None
    panels_back: Tensor | None = None

    def pack(self) -> None:
        """Add the packing of the recurrent weight, for all micro-batches of a step."""
        units, whole = self.units, self.units.is_whole
        for packed, by, parts in (
            (self.panels, self._by(), units.gates()),
            (self.panels_back, self._by_back(), units.blocks),
        ):
            if packed and self.step.micro == 0:
                panels.pack(
                    self.step, self.number, panels=packed, weight=self.weight, trans=by.trans_b, by=by,
                    parts=() if whole else parts,
                )  # fmt: skip

    @property
    def units(self) -> Units:
        return Units(self.step.shape(self.out)[-1], self.U)

    def _by(self) -> Product:
        """A time's product."""
        return Product(0, 1, self.BS, self.units.width, self.units.count, packed=int(self.panels is not None))

    def _by_back(self) -> Product:
        """A time's product in the reverse pass."""
        packed = int(self.panels_back is not None)
        return Product(0, 0, self.BS, self.units.each, GATES * self.units.count, packed=packed)

    def forward(self) -> None:
        """Add the products of the input and the recurrence of each chunk of time; with fusion a chunk is one op."""
        separate = self.step.fusion == "none"
        if separate:
            self._apply_input(slicing.grid(self.slices))
        for chunk in self.chunks():
            add(self.step, self.stages(chunk, with_input=not separate))

    def stages(self, chunk: Grid, with_input: bool = True) -> list[Stage]:
        """The functions that add the ops of a chunk, in their order."""
        first = [partial(self._carry, chunk), *([partial(self._apply_input, chunk)] if with_input else [])]
        recur = [partial(self._recur, tiles) for tiles in self.units.tiles(chunk)]
        if self.step.fusion == "none":
            return [[each] for each in (*first, *recur)]
        return [[*first, *recur]] if self.units.is_whole else [first, *([each] for each in recur)]

    def reverse_stages(self, chunk: Grid, with_input: bool = True) -> list[Stage]:
        """The same of the reverse pass."""
        recur = [partial(self._recur_back, tiles) for tiles in reversed(self.units.tiles(chunk))]
        last = [partial(self._input_gradient, chunk)] if with_input else []
        if self.step.fusion != "none" and self.units.is_whole:
            return [[*recur, *last]]
        return [[each] for each in (*recur, *last)]

    def _recur(self, chunk: Grid) -> None:
        self.step.op(
            "recurrence", "forward", lstm_forward, chunk,
            self._cost(chunk, "past0:row0", CELL_FLOP, 11, 1), self.number,
            h=Write(self.out, ROWS, UNITS), cell=Write(self.cell, ROWS, UNITS), gates=Update(self.gates, ROWS, "gates"),
            past=Read(self.out, "past0:row0"), cell_past=Read(self.cell, "past0:row0", UNITS),
            first_h=self._first(self.first_h, chunk), first_cell=self._first(self.first_cell, chunk, UNITS),
            weight=Read(self.weight), panels=self.panels and Read(self.panels, "panel0:panel1"), bias=Read(self.bias),
            by=self._by(),
        )  # fmt: skip

    def _recur_back(self, chunk: Grid) -> None:
        dh = self.step.tape.gradient(self.out)
        written = Write if chunk.column("pos1")[0] == self.T else Update
        self.step.op(
            "recurrence", "backward", lstm_backward, chunk,
            self._cost(chunk, "row1:next1", CELL_BACKWARD_FLOP, 13, GATES), self.number,
            dgates=Update(self.gates, ROWS, "gates"), dh=Update(dh, ROWS, UNITS),
            dcell=written(self.dcell, "sample0:sample1", UNITS), later=Read(self.gates, "row1:next1"),
            cell=Read(self.cell, "past0:row1", UNITS), first_cell=self._first(self.first_cell, chunk, UNITS),
            weight=Read(self.weight), panels=self.panels_back and Read(self.panels_back, "back0:back1"),
            by=self._by_back(), T=self.T,
        )  # fmt: skip

    def backward(self) -> None:
        """Add the reverse ops, the last chunk first, and leave the gradients of the weights."""
        separate = self.step.fusion == "none"
        for chunk in reversed(self.chunks()):
            add(self.step, self.reverse_stages(chunk, with_input=not separate))
        if separate:
            self._input_gradient(slicing.grid(self.slices))
        self.leave_shares()

    def weights(self) -> dict[Tensor, list[Parameter]]:
        """The blocks of both weights, each with its bias."""
        pairs = ((self.input_weight, self.input_bias), (self.weight, self.bias))
        return {weight: parameters.matrix(self.step, weight, bias) for weight, bias in pairs}

    def leave_shares(self) -> None:
        """Leave the gradients of both weights and of both biases."""
        linear.leave_weight_gradient(
            self.step, "gates_in", self.number,
            dout=self.gates, inp=self.inp, weight=self.input_weight, bias=self.input_bias,
        )  # fmt: skip
        self.step.tape.shares.append(Share(self.weight, partial(self._weight_gradient), self.number))

    def _first(self, states: Tensor | None, chunk: Grid, columns: str | tuple[str, ...] = ()) -> Read | None:
        """A chunk's reading of the states before the first time; only the first chunk reads them."""
        is_first = chunk.column("pos0")[0] == 0
        return Read(states, "sample0:sample1", columns) if states and is_first else None

    def _carry(self, chunk: Grid) -> None:
        """Add the copy of the states after the previous batch, which `out` and `cell` have until they are written, if
        the first chunk reads them."""
        first_h, first_cell = self._first(self.first_h, chunk), self._first(self.first_cell, chunk)
        if not first_h or not first_cell:
            return
        H = self.step.shape(self.out)[-1]
        lasts = [end - (last - first) for (_, end), (first, last) in
                 zip(chunk.ranges("group0:group1"), chunk.ranges("sample0:sample1"), strict=True)]  # fmt: skip
        self.step.op(
            "carry", "forward", lstm_carry, chunk.with_columns(last0=lasts),
            chunk.cost("sample0:sample1", 0, 4 * F32 * H), self.number,
            first_h=Write(first_h.of, first_h.rows), first_cell=Write(first_cell.of, first_cell.rows),
            h=Read(self.out, "last0:group1"), cell=Read(self.cell, "last0:group1"),
        )  # fmt: skip

    def _apply_input(self, grid: Grid) -> None:
        linear.apply(
            self.step, "gates_in", grid, self.number,
            out=self.gates, inp=self.inp, weight=self.input_weight, bias=self.input_bias,
        )  # fmt: skip

    def _input_gradient(self, grid: Grid) -> None:
        linear.apply_backward(
            self.step, "gates_in", grid, self.number, dinp=self.step.tape.gradient(self.inp), dout=self.gates,
            weight=self.input_weight,
        )  # fmt: skip

    def _weight_gradient(self, to: Destination) -> None:
        step, rows = self.step, self.step.shape(self.out)[0]
        H = step.shape(self.weight)[1]
        grid, (dweight, dbias) = parameters.block_grid(step, self.weight, to.own), to.of(step, self.weight, self.bias)
        assert dbias is not None
        step.op(
            "recurrence_dweight", "backward", lstm_backward_weight, grid,
            grid.cost(BLOCK, 2 * H * rows, F32 * (H + rows), F32 * H * rows), self.number, filler=True,
            dweight=add_or_set(to.adds, dweight, BLOCK), dbias=add_or_set(to.adds, dbias, BLOCK),
            dgates=Read(self.gates), h=Read(self.out), first_h=self.first_h and Read(self.first_h),
            by=Product(1, 0, grid.longest(BLOCK), H, self.BS * max(self.T - 1, 1)), T=self.T, BS=self.BS,
            adds=int(to.adds), fetches=int(not to.own),
        )  # fmt: skip

    def chunks(self) -> list[Grid]:
        """The chunks of time: also with the rows past0:row0 of the time before and row1:next1 of the time after."""
        found = []
        for chunk in slicing.chunks(self.slices):
            samples = [last - first for first, last in chunk.ranges("sample0:sample1")]
            starts = zip(chunk.ranges("group0:row0"), samples, strict=True)
            ends = zip(chunk.ranges("row1:group1"), samples, strict=True)
            found.append(
                chunk.with_columns(
                    past0=[row0 - n if row0 > group0 else row0 for (group0, row0), n in starts],
                    next1=[row1 + n if row1 < group1 else row1 for (row1, group1), n in ends],
                )
            )
        return found

    def _cost(self, tiles: Grid, outside: str, cell_flop: int, values: int, width: int) -> list[Cost]:
        """Cost of each tile. The first time in order has a product only if there are rows `outside` of the tile. Of
        these, all units are read, `width` values of each."""
        H = self.units.count
        samples, units = tiles.ranges("sample0:sample1"), tiles.ranges(UNITS)
        spans = zip(tiles.ranges(ROWS), samples, units, tiles.ranges(outside), strict=True)
        return [
            (
                (row1 - row0 - (0 if more1 > more0 else sample1 - sample0)) * 2 * GATES * H * (unit1 - unit0)
                + (row1 - row0) * cell_flop * (unit1 - unit0),
                F32 * GATES * H * (unit1 - unit0)
                + (row1 - row0) * F32 * (values * (unit1 - unit0) + width * (H - unit1 + unit0)),
            )
            for (row0, row1), (sample0, sample1), (unit0, unit1), (more0, more1) in spans
        ]


def add(step: Builder, stages: Sequence[Stage]) -> None:
    """Add ops in their order."""
    for stage in stages:
        with step.fused():
            for each in stage:
                each()
