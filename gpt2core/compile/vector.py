"""Elementary functions that LLVM can vectorise: no call in the loop, no table, float32 throughout."""

from __future__ import annotations

import numpy as np

from gpt2core.compile import llvm
from gpt2core.compile.jit import intrinsic, kernel, types
from gpt2core.compile.llvm import FLOAT

F = np.float32
LOG2_E, LN2_HIGH, LN2_LOW = F(1.4426950408889634), F(0.693359375), F(-2.12194440e-4)
# e^r = 1 + r + r^2 P(r) on |r| <= ln(2)/2; P is the minimax polynomial of Cephes' expf (Moshier 1989).
P5, P4, P3 = F(1.9875691500e-4), F(1.3981999507e-3), F(8.3334519073e-3)
P2, P1, P0 = F(4.1665795894e-2), F(1.6666665459e-1), F(5.0000001201e-1)
HALF, ONE, ZERO, INFINITY = F(0.5), F(1.0), F(0.0), F(np.inf)
LOWEST, HIGHEST = F(-87.33654), F(88.37626)  # where 2**n leaves the normal exponents


@intrinsic
def bits_to_float(typingctx, bits):
    """The int32 bit pattern as a float32."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], FLOAT)

    return types.float32(types.int32), codegen


@intrinsic
def maximum32(typingctx, a, b):
    """The larger of two float32, NaN if one is NaN. Unlike with `max`, its loops are vectorised."""

    def codegen(context, builder, signature, args):
        return llvm.call(builder, "llvm.maximum.f32", FLOAT, args)

    return types.float32(types.float32, types.float32), codegen


@intrinsic
def multiply_add(typingctx, a, b, c):
    """a * b + c of float32, rounded once where the processor can. Unlike the operators, it is never reassociated."""

    def codegen(context, builder, signature, args):
        return llvm.call(builder, "llvm.fmuladd.f32", FLOAT, args)

    return types.float32(types.float32, types.float32, types.float32), codegen


@kernel
def exp32(x):
    """e**x for float32, relative error below 1.3e-7 where it is normal; 0 below -87.34, inf above 88.376, NaN for NaN.

    Method: x = n ln 2 + r with ln 2 in two parts (Cody & Waite), a polynomial for e**r, n added to the exponent's bits.
    """
    clipped = min(max(x, LOWEST), HIGHEST)
    n = np.floor(clipped * LOG2_E + HALF)
    # Operators would be reassociated: both parts of ln 2 would become one, and the error three times as large.
    r = multiply_add(-n, LN2_LOW, multiply_add(-n, LN2_HIGH, clipped))
    p = P5 * r + P4
    p = p * r + P3
    p = p * r + P2
    p = p * r + P1
    p = p * r + P0
    p = p * r * r + r + ONE
    y = p * bits_to_float((np.int32(n) + np.int32(127)) << np.int32(23))
    y = ZERO if x < LOWEST else y
    y = INFINITY if x > HIGHEST else y
    return y if x == x else x
