"""The Gaussian error linear unit in its tanh form."""

from functools import partial

from gpt2core.compile.jit import kernel
from gpt2core.compile.later import exp32, float32, half, is_half, like, whole
from gpt2core.step.builder import Builder
from gpt2core.step.grid import BF16, F32, ROWS, Grid
from gpt2core.step.ops import Read, Tensor, Update, Write
from gpt2core.step.signature import Matrix, MatrixOrHalves, TileInt

ONE = float32(1.0)
# 0.5 * (1 + tanh(u)) = 1 / (1 + exp(-2u)): no cancellation for negative u, and one exponential.
TWO_SCALE = float32(2.0 * 0.7978845608028654)
CUBIC = float32(0.044715)
CUBIC3 = float32(3 * 0.044715)


@kernel(vectors=4)
def gelu_forward(out: MatrixOrHalves, kept: MatrixOrHalves, inp: Matrix, row0: TileInt, row1: TileInt):
    """Apply tanh-GELU to rows [row0, row1); to the rounded input if `kept` is bfloat16.

    Writes:   out (N, M) =, float32 or bfloat16; kept (N, M) bfloat16 =, the rounded input, or (0, 0) for none
    Reads:    inp (N, M)
    Maths:    y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
    Tiles:    disjoint row ranges are independent
    Cost:     18 flop, 8 bytes per element
    Source:   Hendrycks & Gimpel 2016; torch.nn.GELU(approximate="tanh")
    """
    for n in range(row0, row1):
        for i in range(inp.shape[1]):
            x = inp[n, i]
            if is_half(kept):
                x = whole(half(x))
                kept[n, i] = like(x, kept[n, i])
            out[n, i] = like(x / (ONE + exp32(-TWO_SCALE * (x + CUBIC * x * x * x))), out[n, i])


@kernel(vectors=4)
def gelu_backward(dinp: MatrixOrHalves, out: MatrixOrHalves, dout: Matrix, row0: TileInt, row1: TileInt):
    """Compute the gradient of a GELU's input from that of its output. Also recompute the output, which was not kept, in
    place of the input.

    Writes:   dinp (N, M): on entry the output's gradient, on exit the input's; or bfloat16 =;
              out (N, M), of the same dtype: on entry the input, on exit the output
    Reads:    dout (N, M) if dinp is bfloat16, else (0, 0)
    Maths:    y' = s + x s (1 - s) 2u', s = 1 / (1 + exp(-2u)), u' = sqrt(2/pi) (1 + 3 * 0.044715 x^2)
    Tiles:    disjoint row ranges are independent
    Cost:     27 flop, 16 bytes per element, 10 in bfloat16
    """
    for n in range(row0, row1):
        for i in range(out.shape[1]):
            x = whole(out[n, i])
            s = ONE / (ONE + exp32(-TWO_SCALE * (x + CUBIC * x * x * x)))
            out[n, i] = like(x * s, out[n, i])
            gradient = dout[n, i] if is_half(dinp) else whole(dinp[n, i])
            slope = s + x * s * (ONE - s) * TWO_SCALE * (ONE + CUBIC3 * x * x)
            dinp[n, i] = like(gradient * slope, dinp[n, i])


def forward(step: Builder, grid: Grid, layer: int | None, *, out: Tensor, kept: Tensor, inp: Tensor) -> None:
    """Add the forward pass over a grid of rows. Where `kept` is bfloat16, the input is rounded to it, and the output is
    bfloat16 too; else `kept` lies where the input does.

    Reverse: the output, which need not be kept, replaces the input in `kept`. In float32 the input's gradient replaces
    the output's.
    """
    M, rounds = step.shape(inp)[-1], step.is_half(kept)
    step.op(
        "gelu", "forward", gelu_forward, grid,
        grid.cost(ROWS, 18 * M, (F32 + 2 * BF16 if rounds else 2 * F32) * M), layer,
        out=Write(out, ROWS), kept=Write(kept, ROWS) if rounds else None, inp=Read(inp, ROWS),
    )  # fmt: skip
    if not rounds:
        step.rename(inp, kept)
    step.tape.passes(kept, inp)
    step.tape.leave(partial(_backward, step, grid, layer, out=out, kept=kept), out=out, inp=inp, recomputed=out)


def _backward(step: Builder, grid: Grid, layer: int | None, *, out: Tensor, kept: Tensor) -> None:
    """Add the backward pass to the task that computes the output's gradient."""
    M, dinp, dout, rounds = step.shape(out)[-1], step.tape.gradient(kept), step.tape.gradient(out), step.is_half(kept)
    if not rounds:
        step.rename(dout, dinp)
    step.op(
        "gelu", "backward", gelu_backward, grid,
        grid.cost(ROWS, 27 * M, (F32 + 3 * BF16 if rounds else 4 * F32) * M), layer,
        dinp=Write(dinp, ROWS) if rounds else Update(dinp, ROWS), out=Update(kept, ROWS),
        dout=Read(dout, ROWS) if rounds else None,
    )  # fmt: skip
    step.join()
    step.tape.value_in(out, kept)
