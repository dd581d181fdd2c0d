"""Linear layers: y = x W^T + b, W (OC, C) as llm.c stores it."""

from gpt2core.compile.jit import address_of, entry, f1, f2, kernel, own1, own2, product, scalar
from gpt2core.gemm.libraries import multiply


@kernel
def matmul_forward(out, inp, weight, bias, by, row0, row1):
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
def matmul_backward_input(dinp, dout, weight, by, row0, row1):
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
def matmul_backward_weight(dweight, dbias, dout, inp, by, out0, out1, to, adds):
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


@entry
def matmul_forward_entry(x, t, c):
    by = product(x, 4, c)
    matmul_forward(f2(x, 0), f2(x, 1), f2(x, 2), f1(x, 3), by, t[0], t[1])


@entry
def matmul_backward_input_entry(x, t, c):
    by = product(x, 3, c)
    matmul_backward_input(f2(x, 0), f2(x, 1), f2(x, 2), by, t[0], t[1])


@entry
def matmul_backward_weight_entry(x, t, c):
    by = product(x, 4, c)
    matmul_backward_weight(own2(x, 0, c), own1(x, 1, c), f2(x, 2), f2(x, 3), by, t[0], t[1], t[2], scalar(x, 5))
