"""Linear layers of one sequence: a tile computes some outputs of all rows, so that threads share even one row's work,
and each weight is read once.

A product of one row takes as long as its weights take to be read. So they are read in their order, as they lie: no part
of them is packed. Products of more rows are our own. Both widen weights of bfloat16, and round no input.
"""

from typing import Any

from gpt2core.compile.jit import address_of, kernel
from gpt2core.compile.later import float32, is_half, whole
from gpt2core.gemm.operands import into, plain, transposed
from gpt2core.gemm.products import multiply
from gpt2core.gemm.sizes import PANEL
from gpt2core.step import parameters
from gpt2core.step.builder import Builder
from gpt2core.step.grid import F32, ROWS, Range
from gpt2core.step.ops import Own, Product, Read, Tensor, Write
from gpt2core.step.parameters import BLOCK
from gpt2core.step.signature import Matrix, MatrixOrHalves, Multiply, OwnVector, TileInt, Vector

ZERO = float32(0.0)


@kernel
def dot(row, weights):
    """The sum of the products of a row of float32 and a row of weights, float32 or bfloat16."""
    total = ZERO
    for c in range(weights.shape[0]):
        total += row[c] * whole(weights[c])
    return total


@kernel
def matmul_forward_columns(
    out: Matrix, inp: Matrix, weight: MatrixOrHalves, bias: Vector, out0: TileInt, out1: TileInt
):
    """Compute a linear layer's outputs [out0, out1) of all rows.

    Writes:   out (N, OC) =, these columns
    Reads:    inp (N, C); weight (OC, C), bias (OC,) or (0,) for none: their rows [out0, out1)
    Maths:    out = inp @ weight.T + bias
    Tiles:    disjoint ranges of outputs are independent
    Cost:     2*N*C flop per output; 4*N*C bytes per tile and 4*(C + N) per output, 2*C of bfloat16
    Source:   torch.nn.Linear
    """
    for o in range(out0, out1):
        for n in range(inp.shape[0]):
            total = dot(inp[n], weight[o])
            out[n, o] = total + bias[o] if bias.shape[0] else total


@kernel
def matmul_forward_block(
    out: Matrix, inp: Matrix, weight: MatrixOrHalves, bias: Vector, widened: OwnVector, by: Multiply, out0: TileInt,
    out1: TileInt, row0: TileInt, row1: TileInt,
):  # fmt: skip
    """Compute a linear layer's outputs [out0, out1) of rows [row0, row1) by products of float32. Weights of bfloat16
    are widened before, those of PANEL outputs at a time.

    Writes:   out (N, OC) =, these rows and columns; widened (>= PANEL*C,) or (0,) for float32: scratch
    Reads:    inp (N, C), these rows; weight (OC, C), bias (OC,) or (0,) for none: their rows [out0, out1)
    Maths:    out = inp @ weight.T + bias
    Tiles:    disjoint ranges of rows or of outputs are independent
    Cost:     2*N*C flop per output; 4*N*C bytes per tile and 4*(C + N) per output, 2*C of bfloat16
    Source:   torch.nn.Linear
    """
    C, OC = inp.shape[1], out.shape[1]
    each = PANEL if is_half(weight) else out1 - out0
    for o0 in range(out0, out1, each):
        width, source = min(each, out1 - o0), address_of(weight, o0 * C)
        if is_half(weight):
            source = address_of(widened, 0)
            for o in range(width):
                for c in range(C):
                    widened[o * C + c] = whole(weight[o0 + o, c])
        rows, to = plain(address_of(inp, row0 * C), C), into(address_of(out, row0 * OC + o0), OC, 0)
        multiply(by, row1 - row0, width, C, rows, transposed(source, C), to)
    for n in range(row0, row1 if bias.shape[0] else row0):
        for o in range(out0, out1):
            out[n, o] += bias[o]


def apply(
    step: Builder, name: str, layer: int | None, *,
    out: Tensor, inp: Tensor, weight: Tensor, bias: Tensor | None = None, rows: Range | None = None,
) -> None:  # fmt: skip
    """Add a linear layer over the blocks of its weight, without a reverse; of these rows, by default of all. With more
    than one row and weights of bfloat16, the threads' own `widened` has PANEL outputs of them.
    """
    grid, (N, C), itemsize = parameters.block_grid(step, weight, own=False), step.shape(inp), step.itemsize(weight)
    first, last = rows or (0, N)
    grid = grid.with_columns(row0=[first] * len(grid), row1=[last] * len(grid))
    M = last - first
    cost = grid.cost(BLOCK, 2 * M * C, itemsize * C + F32 * M, F32 * M * C)
    reads: dict[str, Any] = {"inp": Read(inp, ROWS), "weight": Read(weight, BLOCK)}
    reads["bias"] = bias and Read(bias, BLOCK)
    if N == 1:
        step.op(name, "forward", matmul_forward_columns, grid, cost, layer, out=Write(out, (), BLOCK), **reads)
        return
    step.op(
        name, "forward", matmul_forward_block, grid, cost, layer,
        out=Write(out, ROWS, BLOCK), **reads, widened=Own("widened") if step.is_half(weight) else None,
        by=Product(0, 1, M, grid.longest(BLOCK), C),
    )  # fmt: skip
