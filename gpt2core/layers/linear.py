"""Linear layers: y = x W^T + b, W (OC, C) as llm.c stores it."""

from gpt2core.compile.jit import address_of, kernel
from gpt2core.gemm.multiply import multiply
from gpt2core.step.builder import Builder
from gpt2core.step.grid import F32, ROWS, Grid
from gpt2core.step.ops import Own, Product, Read, Tensor, Write, add_or_set
from gpt2core.step.parameters import BLOCK, block_grid
from gpt2core.step.signature import Matrix, Multiply, OwnMatrix, OwnVector, Scalar, TileInt, Vector


@kernel
def matmul_forward(
    out: Matrix, inp: Matrix, weight: Matrix, bias: Vector, by: Multiply, row0: TileInt, row1: TileInt
):
    """Apply a linear layer to rows [row0, row1).

    Writes:   out (N, OC) =
    Reads:    inp (N, C), weight (OC, C), bias (OC,) or (0,) for none; by: as multiply takes it
    Maths:    out = inp @ weight.T + bias
    Tiles:    disjoint row ranges are independent
    Cost:     2*C*OC flop per row; 4*C*OC bytes per tile and 4*(C + OC) per row
    Source:   torch.nn.Linear
    """
    C, OC = inp.shape[1], out.shape[1]
    multiply(
        by, 0, 1, row1 - row0, OC, C,
        address_of(inp, row0 * C), C, address_of(weight, 0), C, address_of(out, row0 * OC), OC, 0,
    )  # fmt: skip
    if bias.shape[0]:
        for n in range(row0, row1):
            for o in range(OC):
                out[n, o] += bias[o]


@kernel
def matmul_backward_input(dinp: Matrix, dout: Matrix, weight: Matrix, by: Multiply, row0: TileInt, row1: TileInt):
    """The gradient of a linear layer's input.

    Writes:   dinp (N, C) =, rows [row0, row1)
    Reads:    dout (N, OC), weight (OC, C)
    Maths:    dinp = dout @ weight
    Tiles:    disjoint row ranges are independent
    Cost:     2*C*OC flop per row; 4*C*OC bytes per tile and 4*(C + OC) per row
    """
    C, OC = dinp.shape[1], dout.shape[1]
    multiply(
        by, 0, 0, row1 - row0, C, OC,
        address_of(dout, row0 * OC), OC, address_of(weight, 0), C, address_of(dinp, row0 * C), C, 0,
    )  # fmt: skip


@kernel
def matmul_backward_weight(
    dweight: OwnMatrix, dbias: OwnVector, dout: Matrix, inp: Matrix, by: Multiply, out0: TileInt, out1: TileInt,
    to: TileInt, adds: Scalar,
):  # fmt: skip
    """The gradient of a linear layer's outputs [out0, out1): their weights and biases, over all rows.

    Writes:   dweight (any, C) =, rows from `to` on; dbias (any,) =, elements from `to` on, or (0,) for none;
              both += if `adds` is set
    Reads:    dout (N, OC), inp (N, C)
    Maths:    dweight = dout.T @ inp; dbias = sum of dout over the rows, in their order
    Tiles:    disjoint ranges of outputs are independent: no races, no atomics
    Cost:     2*N*C flop per output; 4*N*C bytes per tile and 4*(N + C) per output
    """
    N, C, OC = inp.shape[0], inp.shape[1], dout.shape[1]
    multiply(
        by, 1, 0, out1 - out0, C, N,
        address_of(dout, out0), OC, address_of(inp, 0), C, address_of(dweight, to * C), C, adds,
    )  # fmt: skip
    if dbias.shape[0]:
        sums = dbias[to : to + out1 - out0]
        if not adds:
            sums[:] = 0
        for n in range(N):
            row = dout[n, out0:out1]
            for o in range(out1 - out0):
                sums[o] += row[o]


def forward(
    step: Builder, name: str, grid: Grid, layer: int | None, *,
    out: Tensor, inp: Tensor, weight: Tensor, bias: Tensor | None,
) -> None:  # fmt: skip
    """Add a linear layer over a grid of rows."""
    OC, C = step.shape(weight)
    step.op(
        name, "forward", matmul_forward, grid, grid.cost(ROWS, 2 * OC * C, F32 * (OC + C), F32 * OC * C), layer,
        out=Write(out, ROWS), inp=Read(inp, ROWS), weight=Read(weight), bias=bias and Read(bias),
        by=Product(0, 1, grid.longest(ROWS), OC, C),
    )  # fmt: skip


def backward_input(
    step: Builder, name: str, grid: Grid, layer: int | None, *, dinp: Tensor, dout: Tensor, weight: Tensor
) -> None:
    """Add the gradient of a linear layer's input over a grid of rows."""
    OC, C = step.shape(weight)
    step.op(
        f"{name}_dinp", "backward", matmul_backward_input, grid,
        grid.cost(ROWS, 2 * OC * C, F32 * (OC + C), F32 * OC * C), layer,
        dinp=Write(dinp, ROWS), dout=Read(dout, ROWS), weight=Read(weight),
        by=Product(0, 0, grid.longest(ROWS), C, OC),
    )  # fmt: skip


def backward_weight(
    step: Builder, name: str, layer: int | None, *,
    weight: Tensor, dweight: Tensor | Own, dbias: Tensor | Own | None, dout: Tensor, inp: Tensor, adds: bool,
) -> None:  # fmt: skip
    """Add the gradient of a linear layer's weight and bias over all rows, block by block of the weight."""
    N, C = step.shape(inp)
    grid = block_grid(step, weight, own=isinstance(dweight, Own))
    step.op(
        f"{name}_dweight", "backward", matmul_backward_weight, grid,
        grid.cost(BLOCK, 2 * C * N, F32 * (C + N), F32 * C * N), layer, filler=True,
        dweight=add_or_set(adds, dweight, BLOCK), dbias=dbias and add_or_set(adds, dbias, BLOCK),
        dout=Read(dout), inp=Read(inp), by=Product(1, 0, grid.longest(BLOCK), C, N), adds=int(adds),
    )  # fmt: skip
