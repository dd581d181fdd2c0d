"""A layer of long short-term memory of one sequence: its weights are read in their order, as they lie. A step reads one
token, with a tile for each block of units, or the tokens that come first, with one for each chunk of time.
"""

from gpt2core.compile.jit import kernel
from gpt2core.layers import columns
from gpt2core.layers.cell import cell_forward
from gpt2core.layers.columns import dot
from gpt2core.layers.recurrence import lstm_carry
from gpt2core.layers.units import GATES, UNITS, Units
from gpt2core.step.builder import Builder
from gpt2core.step.grid import F32, ONE_TILE, ROWS, Range
from gpt2core.step.ops import Read, Tensor, Update, Write
from gpt2core.step.signature import Matrix, MatrixOrHalves, TileInt, Vector

CELL_FLOP = 100  # of a unit


@kernel
def lstm_of_token(
    h: Matrix, cell: Matrix, gates: Matrix, first_h: Matrix, first_cell: Matrix, weight: MatrixOrHalves, bias: Vector,
    unit0: TileInt, unit1: TileInt,
):  # fmt: skip
    """Run the units [unit0, unit1) of the cells for one token.

    Writes:   h, cell (1, H) =; gates (1, 4*H): on entry what the input gives them, on exit i, f, g, o; of these units
    Reads:    first_h, first_cell (1, H): the state before; weight (4*H, H), bias (4*H,): the rows of these units
    Maths:    as recurrence.lstm_forward
    Tiles:    disjoint ranges of units are independent
    Cost:     8*H + 100 flop and 16*H + 44 bytes per unit, 8*H of bfloat16
    Source:   Hochreiter & Schmidhuber 1997; torch.nn.LSTM
    """
    H = h.shape[1]
    for gate in range(GATES):
        for j in range(gate * H + unit0, gate * H + unit1):
            gates[0, j] += dot(first_h[0], weight[j])
    cell_forward(h[0, unit0:unit1], cell[0, unit0:unit1], first_cell[0, unit0:unit1], gates[0], bias, unit0)


@kernel
def lstm_of_tokens(
    h: Matrix, cell: Matrix, gates: Matrix, past: Matrix, cell_past: Matrix, weight: MatrixOrHalves, bias: Vector,
    row0: TileInt, row1: TileInt,
):  # fmt: skip
    """Run the cells for the tokens [row0, row1), from the state 0 before the first one.

    Writes:   h, cell (N, H) =; gates (N, 4*H): on entry what the input gives them, on exit i, f, g, o
    Reads:    past: h, the row before row0, or (0, 0) if there is none; cell_past: cell, the same;
              weight (4*H, H), bias (4*H,)
    Maths:    as recurrence.lstm_forward
    Tiles:    a range of tokens follows the one before it
    Cost:     8*H + 100 flop and 44 bytes per token and unit; 16*H bytes per unit, 8*H of bfloat16
    Source:   Hochreiter & Schmidhuber 1997; torch.nn.LSTM
    """
    H = h.shape[1]
    for n in range(row0, row1):
        h_before, cell_before = (h, cell) if n > row0 else (past, cell_past)
        for j in range(weight.shape[0] if n else 0):
            gates[n, j] += dot(h_before[n - 1], weight[j])
        cell_forward(h[n], cell[n], cell_before[n - 1, : H if n else 0], gates[n], bias, 0)


def forward(
    step: Builder, layer: int, units: Units, *, out: Tensor, inp: Tensor, gates: Tensor, cell: Tensor,
    first_h: Tensor, first_cell: Tensor, weights: tuple[Tensor, Tensor], biases: tuple[Tensor, Tensor],
) -> None:  # fmt: skip
    """Add a layer without a reverse: the copy of its state, the product of its input, block by block, and the cells
    with a tile for each block of units. weights, biases: of the input, and of the recurrence.
    """
    carry(step, layer, to_h=first_h, to_cell=first_cell, h=out, cell=cell)
    columns.apply(step, "gates_in", layer, out=gates, inp=inp, weight=weights[0], bias=biases[0])
    grid, H = units.of_token(), units.count
    step.op(
        "recurrence", "forward", lstm_of_token, grid,
        grid.cost(UNITS, 2 * GATES * H + CELL_FLOP, GATES * H * step.itemsize(weights[1]) + 11 * F32, F32 * H), layer,
        h=Write(out, (), UNITS), cell=Write(cell, (), UNITS), gates=Update(gates, (), "gates"),
        first_h=Read(first_h), first_cell=Read(first_cell, (), UNITS), weight=Read(weights[1], "gates"),
        bias=Read(biases[1], "gates"),
    )  # fmt: skip


def forward_of_chunk(
    step: Builder, layer: int, rows: Range, *, out: Tensor, inp: Tensor, gates: Tensor, cell: Tensor,
    weights: tuple[Tensor, Tensor], biases: tuple[Tensor, Tensor],
) -> None:  # fmt: skip
    """Add a layer for the tokens of a range, which follows those before, as `forward` without a state before them."""
    columns.apply(step, "gates_in", layer, out=gates, inp=inp, weight=weights[0], bias=biases[0], rows=rows)
    first, last = rows
    H, past = step.shape(out)[-1], "past0:row0"
    grid = ONE_TILE.with_columns(row0=[first], row1=[last], past0=[first - 1])
    step.op(
        "recurrence", "forward", lstm_of_tokens, grid,
        grid.cost(ROWS, H * (2 * GATES * H + CELL_FLOP), 11 * F32 * H, GATES * H * H * step.itemsize(weights[1])),
        layer, h=Write(out, ROWS), cell=Write(cell, ROWS), gates=Update(gates, ROWS),
        past=Read(out, past) if first else None, cell_past=Read(cell, past) if first else None,
        weight=Read(weights[1]), bias=Read(biases[1]),
    )  # fmt: skip


def carry(step: Builder, layer: int, *, to_h: Tensor, to_cell: Tensor, h: Tensor, cell: Tensor) -> None:
    """Add the copy of the state after the last token, the last rows of h and cell, to one row each."""
    N, H = step.shape(h)
    grid = ONE_TILE.with_columns(sample0=[0], sample1=[1], last0=[N - 1], group1=[N])
    last = "last0:group1"
    step.op(
        "carry", "forward", lstm_carry, grid, [(0, 4 * F32 * H)], layer,
        first_h=Write(to_h), first_cell=Write(to_cell), h=Read(h, last), cell=Read(cell, last),
    )  # fmt: skip
