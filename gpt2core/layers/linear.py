"""Linear layers: y = x W^T + b, W (OC, C) as llm.c stores it.

Inputs, outputs and their gradients are float32, or bfloat16 (`halves`) where products round their operands. So are
weights that no step updates.
"""

from functools import partial
from typing import Literal

from gpt2core.compile.jit import address_of, kernel
from gpt2core.compile.later import half, is_half, whole
from gpt2core.gemm.operands import Operand, Out, into, plain
from gpt2core.gemm.products import is_own, multiply
from gpt2core.gemm.sizes import PANEL
from gpt2core.layers import panels, sums
from gpt2core.layers.sizes import PART, PART_ROWS
from gpt2core.step import parameters
from gpt2core.step.builder import Builder
from gpt2core.step.grid import BF16, F32, ROWS, Grid
from gpt2core.step.ops import Own, Product, Read, Tensor, Write, add_or_set
from gpt2core.step.parameters import BLOCK, Destination
from gpt2core.step.signature import (
    Halves,
    Matrix,
    MatrixOrHalves,
    Multiply,
    OwnHalves,
    OwnMatrix,
    OwnVector,
    Scalar,
    TileInt,
    Vector,
)
from gpt2core.step.tape import Share

Divided = Literal["inputs", "outputs"] | None


@kernel
def matmul_forward(
    out: Matrix, inp: MatrixOrHalves, weight: MatrixOrHalves, bias: Vector, by: Multiply, packed: Scalar, row0: TileInt,
    row1: TileInt,
):  # fmt: skip
    """Apply a linear layer to rows [row0, row1).

    Writes:   out (N, OC) =
    Reads:    inp (N, C), weight (OC, C), bias (OC,) or (0,) for none; by: as multiply takes it; packed: first rows of
              the weight that panels.pack_in_place has packed, if our own product multiplies them
    Maths:    out = inp @ weight.T + bias
    Tiles:    disjoint row ranges are independent
    Cost:     2*C*OC flop per row; 4*C*OC bytes per tile and 4*(C + OC) per row
    Source:   torch.nn.Linear
    """
    C, OC, first = inp.shape[1], out.shape[1], packed if is_own(by) else 0
    rows = Operand(address_of(inp, row0 * C), C, 0, is_half(inp))
    if first:
        to = into(address_of(out, row0 * OC), OC, 0)
        multiply(by, row1 - row0, first, C, rows, plain(address_of(weight, 0), 0), to)
    if first < OC:
        rest, to = address_of(weight, first * C), Out(address_of(out, row0 * OC + first), OC, 0, 1)
        multiply(by, row1 - row0, OC - first, C, rows, Operand(rest, C, 1, is_half(weight)), to)
    if bias.shape[0]:
        for n in range(row0, row1):
            for o in range(OC):
                out[n, o] += bias[o]


@kernel
def matmul_backward_input(
    dinp: Matrix, dout: MatrixOrHalves, weight: Matrix, by: Multiply, row0: TileInt, row1: TileInt
):
    """The gradient of a linear layer's input.

    Writes:   dinp (N, C) =, rows [row0, row1)
    Reads:    dout (N, OC), weight (OC, C)
    Maths:    dinp = dout @ weight
    Tiles:    disjoint row ranges are independent
    Cost:     2*C*OC flop per row; 4*C*OC bytes per tile and 4*(C + OC) per row
    """
    C, OC = dinp.shape[1], dout.shape[1]
    rows, to = Operand(address_of(dout, row0 * OC), OC, 0, is_half(dout)), Out(address_of(dinp, row0 * C), C, 0, 1)
    multiply(by, row1 - row0, C, OC, rows, plain(address_of(weight, 0), C), to)


@kernel
def add_columns(dbias, dout, out0, out1, to, adds):
    """The gradient of the biases of outputs [out0, out1): their sums over the rows of dout, from element `to` on."""
    sums = dbias[to : to + out1 - out0]
    if not adds:
        sums[:] = 0
    for n in range(dout.shape[0]):
        row = dout[n, out0:out1]
        for o in range(out1 - out0):
            sums[o] += whole(row[o])


@kernel
def matmul_backward_weight(
    dweight: OwnMatrix, dbias: OwnVector, dout: MatrixOrHalves, inp: MatrixOrHalves, by: Multiply, out0: TileInt,
    out1: TileInt, to: TileInt, adds: Scalar, fetches: Scalar,
):  # fmt: skip
    """The gradient of a linear layer's outputs [out0, out1): their weights and biases, over all rows.

    Writes:   dweight (any, C) =, rows from `to` on; dbias (any,) =, elements from `to` on, or (0,) for none;
              both += if `adds` is set; `fetches`: dweight is not expected in a cache
    Reads:    dout (N, OC), inp (N, C)
    Maths:    dweight = dout.T @ inp; dbias = sum of dout over the rows, in their order
    Tiles:    disjoint ranges of outputs are independent: no races, no atomics
    Cost:     2*N*C flop per output; 4*N*C bytes per tile and 4*(N + C) per output
    """
    N, C, OC = inp.shape[0], inp.shape[1], dout.shape[1]
    outputs, inputs = address_of(dout, out0), address_of(inp, 0)
    multiply(
        by, out1 - out0, C, N, Operand(outputs, OC, 1, is_half(dout)), Operand(inputs, C, 0, is_half(inp)),
        Out(address_of(dweight, to * C), C, adds, fetches),
    )  # fmt: skip
    if dbias.shape[0]:
        add_columns(dbias, dout, out0, out1, to, adds)


@kernel
def matmul_forward_to_halves(
    out: Halves, inp: Matrix, weight: MatrixOrHalves, rounded: OwnHalves, part: OwnVector, by: Multiply, rows: Scalar,
    columns: Scalar, row0: TileInt, row1: TileInt,
):  # fmt: skip
    """Apply a linear layer without bias to rows [row0, row1). Its output is rounded to bfloat16.

    As many `rows` and `columns` are computed at a time as a core's cache holds. The rows are rounded once for all
    columns.

    Writes:   out (N, OC) bfloat16 =; rounded (>= rows, C), part (>= rows * columns,): scratch
    Reads:    inp (N, C), weight (OC, C)
    Maths:    out = inp @ weight.T
    Tiles:    disjoint row ranges are independent
    Cost:     2*C*OC flop per row; 4*C*OC bytes per tile and 4*C + 2*OC per row
    Source:   torch.nn.Linear under torch.autocast
    """
    C, OC = inp.shape[1], out.shape[1]
    for n0 in range(row0, row1, rows):
        some = min(rows, row1 - n0)
        for n in range(some):
            row, to = inp[n0 + n], rounded[n]
            for c in range(C):
                to[c] = half(row[c])
        for o0 in range(0, OC, columns):
            width = min(columns, OC - o0)
            multiply(
                by, some, width, C, Operand(address_of(rounded, 0), rounded.shape[1], 0, 1),
                Operand(address_of(weight, o0 * C), C, 1, is_half(weight)), into(address_of(part, 0), width, 0),
            )  # fmt: skip
            for n in range(some):
                row, to = part[n * width : (n + 1) * width], out[n0 + n, o0 : o0 + width]
                for o in range(width):
                    to[o] = half(row[o])


@kernel
def own_matmul_forward(
    out: OwnMatrix, inp: MatrixOrHalves, weight: MatrixOrHalves, bias: Vector, by: Multiply, packed: Scalar,
    row0: TileInt, row1: TileInt,
):  # fmt: skip
    """`matmul_forward` of rows [row0, row1) into the first rows of the thread's own `out`."""
    matmul_forward(out, inp[row0:row1], weight, bias, by, packed, 0, row1 - row0)


@kernel
def own_matmul_forward_to_halves(
    out: OwnHalves, inp: Matrix, weight: MatrixOrHalves, rounded: OwnHalves, part: OwnVector, by: Multiply,
    rows: Scalar, columns: Scalar, row0: TileInt, row1: TileInt,
):  # fmt: skip
    """`matmul_forward_to_halves` of rows [row0, row1) into the first rows of the thread's own `out`."""
    matmul_forward_to_halves(out, inp[row0:row1], weight, rounded, part, by, rows, columns, 0, row1 - row0)


def forward(
    step: Builder, name: str, grid: Grid, layer: int | None, *,
    out: Tensor, inp: Tensor, weight: Tensor, bias: Tensor | None = None, packs: bool = False, divided: Divided = None,
) -> None:  # fmt: skip
    """Add a linear layer over a grid of rows. Its input may be bfloat16, and without bias its output: then the threads'
    own `rounded` has the rows of a part of the input, at most PART_ROWS, and `part` that of the output, at most PART.
    packs: nothing else reads the weight, so that a constant one is packed in its place.
    divided: how ranks share the weight. `inputs`: each multiplies some columns of the input, and all add their outputs,
    with a bias once; `outputs`: each computes some outputs, and all add their gradients of the input.

    Reverse: the input's gradient, and the weight's and the bias's, block by block of the weight.
    """
    if divided == "inputs":
        apply(step, name, grid, layer, out=sums.OWN, inp=inp, weight=weight, packs=packs)
        sums.add(step, name, "forward", grid, layer, out=out, bias=bias)
    else:
        apply(step, name, grid, layer, out=out, inp=inp, weight=weight, bias=bias, packs=packs)
    reverse = partial(_backward, step, name, grid, layer, out=out, inp=inp, weight=weight, bias=bias, divided=divided)
    step.tape.leave(
        reverse, out=out, inp=inp, kind="linear", weights={weight: parameters.matrix(step, weight, bias)}
    )  # fmt: skip


def apply(
    step: Builder, name: str, grid: Grid, layer: int | None, *,
    out: Tensor | Own, inp: Tensor, weight: Tensor, bias: Tensor | None = None, longest: int = 0, packs: bool = False,
) -> None:  # fmt: skip
    """Add the product alone, without a reverse, for layers that contain it. Its input may be bfloat16, and without bias
    its output (see `forward`, also for `packs`). An output that is the threads' own has the rows of one tile.

    longest: rows of the largest tile of the layer's other products, so that all are computed by the same library.
    """
    OC, C = step.shape(weight)
    own, rows, half_inp = isinstance(out, Own), max(longest, grid.longest(ROWS)), step.is_half(inp)
    weight_bytes, half_weight = step.itemsize(weight) * OC * C, int(step.is_half(weight))
    to: Own | Write = out if isinstance(out, Own) else Write(out, ROWS)
    if step.is_half(Tensor(out.name) if isinstance(out, Own) else out):
        part = min(rows, PART_ROWS)
        step.op(
            name, "forward", own_matmul_forward_to_halves if own else matmul_forward_to_halves, grid,
            grid.cost(ROWS, 2 * OC * C, F32 * C + BF16 * OC, weight_bytes), layer,
            out=to, inp=Read(inp, ROWS), weight=Read(weight), rounded=Own("rounded"), part=Own("part"),
            by=Product(0, 1, part, OC, C, half_a=1, half_b=half_weight), rows=part,
            columns=min(OC, PART // part // PANEL * PANEL),
        )  # fmt: skip
    else:
        by = Product(0, 1, rows, OC, C, half_a=int(half_inp), half_b=half_weight)
        packed = panels.pack_in_place(step, layer, weight=weight, by=by) if packs else 0
        step.op(
            name, "forward", own_matmul_forward if own else matmul_forward, grid,
            grid.cost(ROWS, 2 * OC * C, F32 * OC + step.itemsize(inp) * C, weight_bytes), layer,
            out=to, inp=Read(inp, ROWS), weight=Read(weight), bias=bias and Read(bias), by=by, packed=packed,
        )  # fmt: skip


def apply_backward(
    step: Builder, name: str, grid: Grid, layer: int | None, *, dinp: Tensor, dout: Tensor, weight: Tensor
) -> None:
    """Add the gradient of the input. The output's may be bfloat16."""
    OC, C = step.shape(weight)
    half_dout = step.is_half(dout)
    step.op(
        f"{name}_dinp", "backward", matmul_backward_input, grid,
        grid.cost(ROWS, 2 * OC * C, step.itemsize(dout) * OC + F32 * C, F32 * OC * C), layer,
        dinp=Write(dinp, ROWS), dout=Read(dout, ROWS), weight=Read(weight),
        by=Product(0, 0, grid.longest(ROWS), C, OC, half_a=int(half_dout)),
    )  # fmt: skip


def _backward(
    step: Builder, name: str, grid: Grid, layer: int | None, *,
    out: Tensor, inp: Tensor, weight: Tensor, bias: Tensor | None, divided: Divided,
) -> None:  # fmt: skip
    """Add the gradient of the input, if it needs one, and leave those of the weights."""
    dout, dinp = step.tape.gradient(out), step.tape.gradient(inp)
    if step.tape.needs_gradient(inp):
        part = sums.OWN if divided == "outputs" else dinp
        apply_backward(step, name, grid, layer, dinp=part, dout=dout, weight=weight)
        if part != dinp:
            sums.add(step, f"{name}_dinp", "backward", grid, layer, out=dinp)
    leave_weight_gradient(step, name, layer, dout=dout, inp=inp, weight=weight, bias=bias)


def leave_weight_gradient(
    step: Builder, name: str, layer: int | None, *,
    dout: Tensor, inp: Tensor, weight: Tensor, bias: Tensor | None = None,
) -> None:  # fmt: skip
    """Leave the gradient of a weight and a bias, from those of all rows of an output."""
    share = partial(_backward_weight, step, name, layer, dout=dout, inp=inp, weight=weight, bias=bias)
    step.tape.shares.append(Share(weight, share, layer, needs=inp))


def _backward_weight(
    step: Builder, name: str, layer: int | None, to: Destination, *,
    dout: Tensor, inp: Tensor, weight: Tensor, bias: Tensor | None,
) -> None:  # fmt: skip
    """Add the gradient of the weight and the bias. Either the output's gradient or the input may be bfloat16."""
    inp = step.tape.value(inp)
    N, C = step.shape(inp)
    grid, (dweight, dbias) = parameters.block_grid(step, weight, to.own), to.of(step, weight, bias)
    half_dout, half_inp = step.is_half(dout), step.is_half(inp)
    step.op(
        f"{name}_dweight", "backward", matmul_backward_weight, grid,
        grid.cost(BLOCK, 2 * C * N, F32 * C + step.itemsize(dout) * N, step.itemsize(inp) * C * N), layer, filler=True,
        dweight=add_or_set(to.adds, dweight, BLOCK), dbias=dbias and add_or_set(to.adds, dbias, BLOCK),
        dout=Read(dout), inp=Read(inp),
        by=Product(1, 0, grid.longest(BLOCK), C, N, half_a=int(half_dout), half_b=int(half_inp)), adds=int(to.adds),
        fetches=int(not to.own),
    )  # fmt: skip
