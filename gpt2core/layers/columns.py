"""Linear layers on few rows: a tile computes some outputs of all rows, so that threads share one row's work.

Such a product takes as long as its weights take to be read. So they are read once, in their order, as they lie: no part
of them is packed, and bfloat16 is widened in registers. Inputs are not rounded.
"""

from gpt2core.compile.jit import kernel
from gpt2core.compile.later import float32, whole
from gpt2core.step import parameters
from gpt2core.step.builder import Builder
from gpt2core.step.grid import F32
from gpt2core.step.ops import Read, Tensor, Write
from gpt2core.step.parameters import BLOCK
from gpt2core.step.signature import Matrix, MatrixOrHalves, TileInt, Vector

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


def apply(
    step: Builder, name: str, layer: int | None, *,
    out: Tensor, inp: Tensor, weight: Tensor, bias: Tensor | None = None,
) -> None:  # fmt: skip
    """Add a linear layer over the blocks of its weight, without a reverse."""
    grid, (N, C) = parameters.block_grid(step, weight, own=False), step.shape(inp)
    step.op(
        name, "forward", matmul_forward_columns, grid,
        grid.cost(BLOCK, 2 * N * C, step.itemsize(weight) * C + F32 * N, F32 * N * C), layer,
        out=Write(out, (), BLOCK), inp=Read(inp), weight=Read(weight, BLOCK), bias=bias and Read(bias, BLOCK),
    )  # fmt: skip
