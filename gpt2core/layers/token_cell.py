"""A layer of long short-term memory that reads one token: its weights are read once, in their order, as they lie."""

from gpt2core.compile.jit import kernel
from gpt2core.layers import columns
from gpt2core.layers.cell import cell_forward
from gpt2core.layers.columns import dot
from gpt2core.layers.recurrence import lstm_carry
from gpt2core.layers.units import GATES, UNITS, Units
from gpt2core.step.builder import Builder
from gpt2core.step.grid import F32, ONE_TILE
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


def forward(
    step: Builder, layer: int, units: Units, *, out: Tensor, inp: Tensor, gates: Tensor, cell: Tensor,
    first_h: Tensor, first_cell: Tensor, weights: tuple[Tensor, Tensor], biases: tuple[Tensor, Tensor],
) -> None:  # fmt: skip
    """Add a layer without a reverse: the copy of its state, the product of its input, block by block, and the cells
    with a tile for each block of units. weights, biases: of the input, and of the recurrence.
    """
    H = units.count
    step.op(
        "carry", "forward", lstm_carry, ONE_TILE.with_columns(sample0=[0], sample1=[1], group1=[1]), [(0, 4 * F32 * H)],
        layer, first_h=Write(first_h), first_cell=Write(first_cell), h=Read(out), cell=Read(cell),
    )  # fmt: skip
    columns.apply(step, "gates_in", layer, out=gates, inp=inp, weight=weights[0], bias=biases[0])
    grid, of_unit = units.of_token(), GATES * H * step.itemsize(weights[1])
    step.op(
        "recurrence", "forward", lstm_of_token, grid,
        grid.cost(UNITS, 2 * GATES * H + CELL_FLOP, of_unit + 11 * F32, F32 * H), layer,
        h=Write(out, (), UNITS), cell=Write(cell, (), UNITS), gates=Update(gates, (), "gates"),
        first_h=Read(first_h), first_cell=Read(first_cell, (), UNITS), weight=Read(weights[1], "gates"),
        bias=Read(biases[1], "gates"),
    )  # fmt: skip
