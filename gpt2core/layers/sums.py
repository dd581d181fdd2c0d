"""Sums over the ranks that divide a matrix: each computes a part of every row, and all add the parts in rank order."""

from gpt2core.compile.jit import kernel, runtime
from gpt2core.step.builder import Builder
from gpt2core.step.grid import F32, ROWS, Grid
from gpt2core.step.ops import Read, Tensor, Write
from gpt2core.step.signature import Matrix, Scalar, TileInt, Vector

OWN, OTHERS = Tensor("own_sums"), Tensor("other_sums")
OF_OTHERS = "others"  # the rows of a tile in a tensor of the other ranks' rows


@kernel
def fold_rows(
    out: Matrix, own: Matrix, others: Matrix, bias: Vector, rank: Scalar, row0: TileInt, row1: TileInt
):  # fmt: skip
    """Add the ranks' parts of rows [row0, row1), and a bias.

    Writes:   out (N, C) =
    Reads:    own (N, C): this rank's part; others ((R - 1) * N, C): those of the others, rank after rank; bias (C,), or
              (0,) for none
    Maths:    out = (((p0 + p1) + p2) + ...) + bias
    Tiles:    disjoint row ranges are independent
    Cost:     R*C flop, 4*(R + 1)*C bytes per row
    """
    for n in range(row0, row1):
        add_in_order(out, own, others, rank, n)
        for c in range(bias.shape[0]):
            out[n, c] += bias[c]


@runtime
def add_in_order(out, own, others, rank, n):
    """The sum of the ranks' parts of row n. Not a kernel, which may reorder it."""
    N, C = own.shape
    for peer in range(others.shape[0] // N + 1):
        part = own[n]
        if peer != rank:
            part = others[place_of(peer, rank) * N + n]
        for c in range(C):
            out[n, c] = out[n, c] + part[c] if peer else part[c]


@runtime
def place_of(peer, rank):
    """Where another rank's rows are among those of all others."""
    return peer - 1 if peer > rank else peer


def of_others(step: Builder, grid: Grid, rows: int) -> Grid:
    """The grid with the rows of each tile in a tensor of the other ranks' `rows` rows each."""
    shifts = [peer * rows for peer in range(step.matrix_rank.total - 1)]
    ranges = tuple([(shift + first, shift + last) for shift in shifts] for first, last in grid.ranges(ROWS))
    return Grid(grid.labels, grid.columns, {**grid.sets, OF_OTHERS: ranges})


def add(
    step: Builder, name: str, phase: str, grid: Grid, layer: int | None, *, out: Tensor, bias: Tensor | None = None
) -> None:
    """Add the exchange of the parts that an op has written to OWN, and their sum, over the grid of slices."""
    N, C = step.shape(OWN)
    ranks = step.matrix_rank.total
    step.rows(step, name, phase, layer, OWN, OTHERS)
    step.op(
        f"{name}_fold", phase, fold_rows, of_others(step, grid, N), grid.cost(ROWS, ranks * C, (ranks + 1) * F32 * C),
        layer,
        out=Write(out, ROWS), own=Read(OWN, ROWS), others=Read(OTHERS, OF_OTHERS), bias=bias and Read(bias),
        rank=step.matrix_rank.number,
    )  # fmt: skip
