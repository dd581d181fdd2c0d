"""Linear layers on few rows: a tile computes some outputs of all rows, so that threads share one row's work."""

from gpt2core.compile.jit import address_of, kernel
from gpt2core.gemm.operands import into, plain, transposed
from gpt2core.gemm.products import multiply
from gpt2core.step import parameters
from gpt2core.step.builder import Builder
from gpt2core.step.grid import F32
from gpt2core.step.ops import Product, Read, Tensor, Write
from gpt2core.step.parameters import BLOCK
from gpt2core.step.signature import Matrix, Multiply, TileInt, Vector


@kernel
def matmul_forward_columns(
    out: Matrix, inp: Matrix, weight: Matrix, bias: Vector, by: Multiply, out0: TileInt, out1: TileInt
):
    """Compute a linear layer's outputs [out0, out1) of all rows.

    Writes:   out (N, OC) =, these columns
    Reads:    inp (N, C); weight (OC, C), bias (OC,) or (0,) for none: their rows [out0, out1); by: as multiply takes it
    Maths:    out = inp @ weight.T + bias
    Tiles:    disjoint ranges of outputs are independent
    Cost:     2*N*C flop per output; 4*N*C bytes per tile and 4*(C + N) per output
    Source:   torch.nn.Linear
    """
    N, C, OC = inp.shape[0], inp.shape[1], out.shape[1]
    rows, columns = plain(address_of(inp, 0), C), transposed(address_of(weight, out0 * C), C)
    multiply(by, N, out1 - out0, C, rows, columns, into(address_of(out, out0), OC, 0))
    if bias.shape[0]:
        for n in range(N):
            for o in range(out0, out1):
                out[n, o] += bias[o]


def apply(
    step: Builder, name: str, layer: int | None, *,
    out: Tensor, inp: Tensor, weight: Tensor, bias: Tensor | None = None,
) -> None:  # fmt: skip
    """Add a linear layer over the blocks of its weight, without a reverse."""
    grid, (N, C) = parameters.block_grid(step, weight, own=False), step.shape(inp)
    step.op(
        name, "forward", matmul_forward_columns, grid,
        grid.cost(BLOCK, 2 * N * C, F32 * (C + N), F32 * N * C), layer,
        out=Write(out, (), BLOCK), inp=Read(inp), weight=Read(weight, BLOCK), bias=bias and Read(bias, BLOCK),
        by=Product(0, 1, N, grid.longest(BLOCK), C),
    )  # fmt: skip
