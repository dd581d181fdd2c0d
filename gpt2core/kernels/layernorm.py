"""Layer normalisation over channels."""

import numpy as np

from gpt2core.compile.jit import entry, f1, f2, kernel, own1, scalar

EPS = np.float32(1e-5)
ONE = np.float32(1.0)


@kernel
def layernorm_forward(out, mean, rstd, inp, weight, bias, row0, row1):
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
def layernorm_backward(dinp, partial, dresidual, dout, inp, weight, mean, rstd, row0, row1, slot):
    """The gradient through a LayerNorm and past it, and one slice's share of the parameters' gradients.

    Writes:   dinp (N, C) =, rows [row0, row1);
              partial (slots, 2*C) =, row `slot`: dweight, then dbias, of these rows
    Reads:    dresidual (N, C): the gradient that goes past the LayerNorm, or (0, 0) for none;
              dout, inp (N, C); weight (C,); mean, rstd (N,)
    Maths:    n = (x - mean) * rstd, g = dout * weight; dx = dresidual + rstd * (g - mean(g) - n * mean(g * n));
              dweight = sum of dout * n, dbias = sum of dout
    Tiles:    disjoint row ranges with their own slots are independent
    Cost:     17*C flop, 16*C bytes per row
    Source:   Ba et al. 2016; torch.nn.LayerNorm
    """
    C = inp.shape[1]
    share = ONE / np.float32(C)
    dweight, dbias = partial[slot, :C], partial[slot, C:]
    dweight[:] = 0
    dbias[:] = 0
    for n in range(row0, row1):
        m, s = mean[n], rstd[n]
        total, dot = np.float32(0), np.float32(0)
        for c in range(C):
            g = dout[n, c] * weight[c]
            total += g
            dot += g * (inp[n, c] - m)
        total *= share
        dot *= s * share
        for c in range(C):
            normed = (inp[n, c] - m) * s
            d = dout[n, c]
            dinp[n, c] = s * (d * weight[c] - total - normed * dot)
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


@entry
def layernorm_forward_entry(x, t, c):
    layernorm_forward(f2(x, 0), f1(x, 1), f1(x, 2), f2(x, 3), f1(x, 4), f1(x, 5), t[0], t[1])


@entry
def layernorm_backward_entry(x, t, c):
    layernorm_backward(f2(x, 0), f2(x, 1), f2(x, 2), f2(x, 3), f2(x, 4), f1(x, 5), f1(x, 6), f1(x, 7), t[0], t[1], t[2])


@entry
def layernorm_backward_weight_entry(x, t, c):
    gradients, C = own1(x, 0, c), t[2]
    dweight, dbias = gradients[t[0] : t[0] + C], gradients[t[1] : t[1] + C]
    layernorm_backward_weight(dweight, dbias, f2(x, 1), t[3], t[4], scalar(x, 2))
