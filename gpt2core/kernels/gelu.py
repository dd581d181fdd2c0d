"""The Gaussian error linear unit in its tanh form."""

import numpy as np

from gpt2core.compile.jit import entry, f2, kernel
from gpt2core.compile.vector import exp32

ONE = np.float32(1.0)
# 0.5 * (1 + tanh(u)) = 1 / (1 + exp(-2u)): no cancellation for negative u, and one exponential.
TWO_SCALE = np.float32(2.0 * 0.7978845608028654)
CUBIC = np.float32(0.044715)
CUBIC3 = np.float32(3 * 0.044715)


@kernel
def gelu_forward(out, inp, row0, row1):
    """Apply tanh-GELU to rows [row0, row1).

    Writes:   out (N, M) =
    Reads:    inp (N, M)
    Maths:    y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
    Tiles:    disjoint row ranges are independent
    Cost:     18 flop, 8 bytes per element
    Source:   Hendrycks & Gimpel 2016; torch.nn.GELU(approximate="tanh")
    """
    for n in range(row0, row1):
        for i in range(inp.shape[1]):
            x = inp[n, i]
            out[n, i] = x / (ONE + exp32(-TWO_SCALE * (x + CUBIC * x * x * x)))


@kernel
def gelu_backward(dinp, out, inp, row0, row1):
    """Take the gradient of a GELU's output to that of its input, in place; compute the output again: it was not kept.

    Writes:   dinp (N, M): on entry the output's gradient, on exit the input's; out (N, M) =
    Reads:    inp (N, M)
    Maths:    y' = s + x s (1 - s) 2u', s = 1 / (1 + exp(-2u)), u' = sqrt(2/pi) (1 + 3 * 0.044715 x^2)
    Tiles:    disjoint row ranges are independent
    Cost:     27 flop, 16 bytes per element
    """
    for n in range(row0, row1):
        for i in range(inp.shape[1]):
            x = inp[n, i]
            s = ONE / (ONE + exp32(-TWO_SCALE * (x + CUBIC * x * x * x)))
            out[n, i] = x * s
            dinp[n, i] *= s + x * s * (ONE - s) * TWO_SCALE * (ONE + CUBIC3 * x * x)


@entry
def gelu_forward_entry(x, t, c):
    gelu_forward(f2(x, 0), f2(x, 1), t[0], t[1])


@entry
def gelu_backward_entry(x, t, c):
    gelu_backward(f2(x, 0), f2(x, 1), f2(x, 2), t[0], t[1])
