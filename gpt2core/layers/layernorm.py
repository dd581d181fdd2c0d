"""Layer normalisation over channels: kernels, then their ops."""

import functools
from collections.abc import Sequence

from gpt2core.compile.jit import kernel
from gpt2core.compile.later import float32, np
from gpt2core.step import parameters as parts
from gpt2core.step.builder import Builder
from gpt2core.step.grid import F32, ROWS, Grid
from gpt2core.step.ops import Read, Tensor, Update, Write, add_or_set
from gpt2core.step.parameters import Destination, Parameter
from gpt2core.step.signature import Matrix, OwnVector, Scalar, TileInt, Vector
from gpt2core.step.tape import Sum

EPS = float32(1e-5)
ONE = float32(1.0)


@kernel
def layernorm_forward(
    out: Matrix, mean: Vector, rstd: Vector, inp: Matrix, weight: Vector, bias: Vector, row0: TileInt, row1: TileInt
):
    """Normalise rows [row0, row1) of inp, then scale and shift.

    Writes:   out (N, C) =; mean, rstd (N,) =
    Reads:    inp (N, C), weight (C,), bias (C,)
    Maths:    y = (x - mean) * rstd * weight + bias, biased variance, eps 1e-5
    Tiles:    disjoint row ranges are independent
    Cost:     8*C flop, 8*C bytes per row
    Source:   Ba et al. 2016; torch.nn.LayerNorm
    """
    C = inp.shape[1]
    share = ONE / np.float32(C)
    for n in range(row0, row1):
        total = np.float32(0)
        for c in range(C):
            total += inp[n, c]
        m = total * share
        square = np.float32(0)
        for c in range(C):
            d = inp[n, c] - m
            square += d * d
        s = ONE / np.sqrt(square * share + EPS)
        for c in range(C):
            out[n, c] = (inp[n, c] - m) * s * weight[c] + bias[c]
        mean[n] = m
        rstd[n] = s


@kernel
def layernorm_backward(
    dinp: Matrix, out: Matrix, partial: Matrix, dresidual: Matrix, weight: Vector, bias: Vector, mean: Vector,
    rstd: Vector, row0: TileInt, row1: TileInt, slot: TileInt,
):  # fmt: skip
    """Compute the gradient of a LayerNorm's input and of its bypass, in place, and one slice's share of the parameters'
    gradients. Also recompute the output, which was not kept, in place of its gradient.

    Writes:   dinp (N, C), rows [row0, row1): on entry the input, on exit its gradient;
              out (N, C), the same rows: on entry the output's gradient, on exit the output;
              partial (slots, 2*C) =, row `slot`: dweight, then dbias, of these rows
    Reads:    dresidual (N, C): the gradient that bypasses the LayerNorm, or (0, 0) for none;
              weight, bias (C,); mean, rstd (N,)
    Maths:    n = (x - mean) * rstd, g = dy * weight; dx = dresidual + rstd * (g - mean(g) - n * mean(g * n));
              dweight = sum of dy * n, dbias = sum of dy; y = n * weight + bias
    Tiles:    disjoint row ranges with their own slots are independent
    Cost:     19*C flop, 20*C bytes per row
    Source:   Ba et al. 2016; torch.nn.LayerNorm
    """
    C = dinp.shape[1]
    share = ONE / np.float32(C)
    dweight, dbias = partial[slot, :C], partial[slot, C:]
    dweight[:] = 0
    dbias[:] = 0
    for n in range(row0, row1):
        m, s = mean[n], rstd[n]
        total, dot = np.float32(0), np.float32(0)
        for c in range(C):
            g = out[n, c] * weight[c]
            total += g
            dot += g * (dinp[n, c] - m)
        total *= share
        dot *= s * share
        slope = dot * s
        for c in range(C):
            x, d = dinp[n, c] - m, out[n, c]
            normed = x * s
            dinp[n, c] = s * (d * weight[c] - total - x * slope)
            out[n, c] = normed * weight[c] + bias[c]
            dweight[c] += d * normed
            dbias[c] += d
        if dresidual.shape[0]:
            for c in range(C):
                dinp[n, c] += dresidual[n, c]


@kernel
def layernorm_backward_weight(dweight, dbias, partial, first, last, adds):
    """Add up the slices' shares of the parameters' gradients, in the order of the slots [first, last).

    Writes:   dweight, dbias (C,) =, or += if `adds` is set
    Reads:    partial (slots, 2*C)
    Cost:     2*C flop, 8*C bytes per slot
    """
    C = dweight.shape[0]
    if not adds:
        dweight[:] = 0
        dbias[:] = 0
    for slot in range(first, last):
        for c in range(C):
            dweight[c] += partial[slot, c]
            dbias[c] += partial[slot, C + c]


@kernel
def layernorm_backward_parameters(
    gradients: OwnVector, partial: Matrix, adds: Scalar, at_a: TileInt, at_b: TileInt, first: TileInt, last: TileInt
):
    """As layernorm_backward_weight, with dweight at `at_a` and dbias at `at_b` of one vector."""
    C = partial.shape[1] // 2
    layernorm_backward_weight(gradients[at_a : at_a + C], gradients[at_b : at_b + C], partial, first, last, adds)


def forward(
    step: Builder, grid: Grid, layer: int | None, *,
    out: Tensor, mean: Tensor, rstd: Tensor, inp: Tensor, weight: Tensor, bias: Tensor, partial: Tensor,
) -> None:  # fmt: skip
    """Add the forward pass over a grid of rows.

    Reverse: the input's gradient replaces the input; the output, which need not be kept, replaces its gradient. A tile
    writes its share of the parameters' gradients to a row of `partial`.
    """
    (C,) = step.shape(weight)
    step.op(
        "layernorm", "forward", layernorm_forward, grid, grid.cost(ROWS, 8 * C, 2 * F32 * C), layer,
        out=Write(out, ROWS), mean=Write(mean, ROWS), rstd=Write(rstd, ROWS), inp=Read(inp, ROWS),
        weight=Read(weight), bias=Read(bias),
    )  # fmt: skip
    tape, kind = step.tape, "layernorm"
    add_up = functools.partial(_backward_parameters, step, partial=partial, slots=len(grid))
    total = tape.sums.setdefault(kind, Sum([], add_up))
    slot = len(total.weights) * len(grid)
    total.weights.append(weight)
    tape.gradient_in(inp, inp)
    reverse = functools.partial(
        _backward, step, grid.with_columns(slot=range(slot, slot + len(grid))), layer,
        out=out, mean=mean, rstd=rstd, inp=inp, weight=weight, bias=bias, partial=partial,
    )  # fmt: skip
    block = parts.vectors(step, str(Tensor(weight.name.removesuffix("w"), layer)), weight, bias)
    tape.leave(reverse, out=out, inp=inp, recomputed=out, kind=kind, weights={weight: [block]})


def _backward(
    step: Builder, grid: Grid, layer: int | None, *,
    out: Tensor, mean: Tensor, rstd: Tensor, inp: Tensor, weight: Tensor, bias: Tensor, partial: Tensor,
) -> None:  # fmt: skip
    """Add the backward pass to the task that computes the output's gradient."""
    (C,) = step.shape(weight)
    dout, past = step.tape.gradient(out), step.tape.bypassing(inp)
    step.op(
        "layernorm", "backward", layernorm_backward, grid, grid.cost(ROWS, 19 * C, 5 * F32 * C), layer,
        dinp=Update(inp, ROWS), out=Update(dout, ROWS), partial=Write(partial, "slot"),
        dresidual=past and Read(past, ROWS), weight=Read(weight), bias=Read(bias), mean=Read(mean, ROWS),
        rstd=Read(rstd, ROWS),
    )  # fmt: skip
    step.join()
    step.tape.value_in(out, dout)


def _backward_parameters(
    step: Builder, parameters: Sequence[Parameter], to: Destination, *, partial: Tensor, slots: int
) -> None:
    """Add the gradients of many LayerNorms' parameters, a tile each: LayerNorm i has the i-th `slots` of `partial`."""
    C = step.shape(partial)[1] // 2
    starts = range(0, slots * len(parameters), slots)
    grid = parts.grid(parameters, to.whole).with_columns(first=starts, last=[start + slots for start in starts])
    step.op(
        "layernorm_dweight", "backward", layernorm_backward_parameters, grid,
        grid.cost("first:last", 2 * C, 2 * F32 * C), filler=True,
        gradients=add_or_set(to.adds, to.whole, parts.BOTH), partial=Read(partial, "first:last"),
        adds=int(to.adds),
    )  # fmt: skip
