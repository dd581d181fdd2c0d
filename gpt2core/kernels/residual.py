"""Residual connections."""

from gpt2core.compile.jit import entry, f2, kernel


@kernel
def residual_forward(out, inp, branch, row0, row1):
    """Add a branch to the residual stream, rows [row0, row1).

    Writes:   out (N, C) =
    Reads:    inp, branch (N, C)
    Maths:    out = inp + branch
    Tiles:    disjoint row ranges are independent
    Cost:     C flop, 12*C bytes per row
    """
    for n in range(row0, row1):
        for c in range(inp.shape[1]):
            out[n, c] = inp[n, c] + branch[n, c]


@entry
def residual_forward_entry(x, t, c):
    residual_forward(f2(x, 0), f2(x, 1), f2(x, 2), t[0], t[1])
