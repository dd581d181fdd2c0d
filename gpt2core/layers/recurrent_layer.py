"""A layer of long short-term memory as ops over slices of a batch.

The input product of a chunk of time is one call, and the recurrence of a chunk is one task. Or each time is an op with
a tile for each block of hidden units, which computes all four gates of its units.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from gpt2core.layers import linear, panels
from gpt2core.layers.recurrence import lstm_backward, lstm_backward_weight, lstm_carry, lstm_forward
from gpt2core.layers.units import GATES, UNITS, Units
from gpt2core.step import parameters, slicing
from gpt2core.step.builder import Builder
from gpt2core.step.grid import F32, ROWS, Cost, Grid
from gpt2core.step.ops import Product, Read, Tensor, Update, Write, add_or_set
from gpt2core.step.parameters import BLOCK, Destination, Parameter
from gpt2core.step.slicing import Slice
from gpt2core.step.tape import Share

CELL_FLOP, CELL_BACKWARD_FLOP = 100, 50  # of a unit
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
        packed, half_weight = int(self.panels is not None), int(self.step.is_half(self.weight))
        return Product(0, 1, self.BS, self.units.width, self.units.count, half_b=half_weight, packed=packed)

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
                self.step.itemsize(self.weight) * GATES * H * (unit1 - unit0)
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
