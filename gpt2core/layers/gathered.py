"""Rows of ranks that divide the batch, for layers behind that compute those of all ranks."""

from functools import partial

from gpt2core.compile.jit import kernel
from gpt2core.layers.sums import OF_OTHERS, add_in_order, of_others
from gpt2core.step.builder import Builder
from gpt2core.step.grid import F32, ROWS, Grid
from gpt2core.step.ops import Read, Tensor, Write
from gpt2core.step.signature import Matrix, Scalar, TileInt

OTHERS = Tensor("other_rows")
AMONG_ALL = "among_all"  # the rows of a tile of this rank in a tensor of all ranks' rows


@kernel
def place_rows(out: Matrix, inp: Matrix, rank: Scalar, row0: TileInt, row1: TileInt):
    """Copy a rank's rows [row0, row1) to where they lie among those of all ranks.

    Writes:   out (R * N, C) =, rows [rank * N + row0, rank * N + row1)
    Reads:    inp (N, C)
    Tiles:    disjoint row ranges are independent
    """
    N, C = inp.shape
    for n in range(row0, row1):
        for c in range(C):
            out[rank * N + n, c] = inp[n, c]


@kernel
def fold_own_rows(out: Matrix, parts: Matrix, others: Matrix, rank: Scalar, row0: TileInt, row1: TileInt):
    """Add the ranks' parts of a rank's own rows [row0, row1).

    Writes:   out (N, C) =
    Reads:    parts (R * N, C): this rank's part of the rows of all ranks; others ((R - 1) * N, C): the others' parts of
              this rank's rows, rank after rank
    Maths:    out = ((p0 + p1) + p2) + ...
    Tiles:    disjoint row ranges are independent
    Cost:     R*C flop, 4*(R + 1)*C bytes per row
    """
    N = out.shape[0]
    own = parts[rank * N : (rank + 1) * N]
    for n in range(row0, row1):
        add_in_order(out, own, others, rank, n)


def gather(step: Builder, grid: Grid, *, out: Tensor, inp: Tensor) -> None:
    """Add the exchange of rows after the last layer that divides the batch, over the grid of this rank's slices.

    Reverse: the sum of the ranks' parts of the gradient of this rank's rows.
    """
    step.tape.gathered()
    C = step.shape(inp)[1]
    step.rows(step, "gather", "forward", None, inp, out, "gather")
    step.op(
        "gather", "forward", place_rows, _among_all(step, grid, inp), grid.cost(ROWS, 0, 2 * F32 * C),
        out=Write(out, AMONG_ALL), inp=Read(inp, ROWS), rank=step.matrix_rank.number,
    )  # fmt: skip
    step.tape.leave(partial(_scatter, step, grid, out=out, inp=inp), out=out, inp=inp)


def _scatter(step: Builder, grid: Grid, *, out: Tensor, inp: Tensor) -> None:
    parts, ranks = step.tape.gradient(out), step.matrix_rank.total
    N, C = step.shape(inp)
    step.rows(step, "gather_dinp", "backward", None, parts, OTHERS, "scatter")
    tiles = of_others(step, _among_all(step, grid, inp), N)
    step.op(
        "gather_dinp_fold", "backward", fold_own_rows, tiles, grid.cost(ROWS, ranks * C, (ranks + 1) * F32 * C),
        out=Write(step.tape.gradient(inp), ROWS), parts=Read(parts, AMONG_ALL), others=Read(OTHERS, OF_OTHERS),
        rank=step.matrix_rank.number,
    )  # fmt: skip


def _among_all(step: Builder, grid: Grid, own: Tensor) -> Grid:
    """The grid with the rows of each tile of this rank's rows among those of all ranks."""
    shift = step.matrix_rank.number * step.shape(own)[0]
    ranges = tuple([(shift + first, shift + last)] for first, last in grid.ranges(ROWS))
    return Grid(grid.labels, grid.columns, {**grid.sets, AMONG_ALL: ranges})
