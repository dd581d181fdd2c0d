"""Kernels of long short-term memory: h_t, c_t from x_t, h_(t-1) and c_(t-1), with the gates i, f, g, o as
torch.nn.LSTM.

Rows are time-major within a group of samples: a time step's rows are consecutive, and those of the step before lie
`samples of the group` rows before them. So no product needs a copy, and the recurrent weight's gradient is a product of
shifted rows.
"""

from typing import NamedTuple

from gpt2core.compile.jit import address_of, kernel
from gpt2core.compile.later import float32, is_half
from gpt2core.gemm.operands import Operand, Out, into, plain, transposed
from gpt2core.gemm.products import multiply, weight_or_panels
from gpt2core.layers import linear
from gpt2core.layers.cell import cell_backward, cell_forward, state_before
from gpt2core.layers.units import GATES
from gpt2core.step.grid import BF16, F32
from gpt2core.step.signature import Matrix, MatrixOrHalves, Multiply, OwnMatrix, OwnVector, Scalar, TileInt, Vector

ZERO = float32(0.0)


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
    h: Matrix, cell: Matrix, gates: Matrix, past: Matrix, cell_past: Matrix, first: States, weight: MatrixOrHalves,
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
    G, width, size = GATES * H, unit1 - unit0, BF16 if is_half(weight) else F32
    at_b, ldb = weight_or_panels(by, weight, panels)
    parts = 1 if width == H else GATES  # products, each of whose columns are consecutive
    length = GATES // parts * width
    for t in range(pos0, pos1):
        row = row0 + (t - pos0) * n
        before = address_of(past, (row - n) * H) if t else address_of(first.first_h, sample0 * H)
        for part in range(parts if t or carried else 0):
            j = part * H + unit0
            at = at_b + size * (j * H if ldb else (panel0 + part * (panel1 - panel0) // parts) * panels.shape[1])
            to = into(address_of(gates, row * G + j), G, 1)
            multiply(by, n, length, H, plain(before, H), Operand(at, ldb, 1, is_half(weight)), to)
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
