"""Elementary functions that LLVM can vectorise: no call in the loop, no table, float32 throughout."""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from gpt2core.compile import llvm
from gpt2core.compile.jit import intrinsic, kernel, types
from gpt2core.compile.llvm import FLOAT, I32

F = np.float32
LOG2_E, LN2_HIGH, LN2_LOW = F(1.4426950408889634), F(0.693359375), F(-2.12194440e-4)
# e^r = 1 + r + r^2 P(r) on |r| <= ln(2)/2; P is the minimax polynomial of Cephes' expf (Moshier 1989).
P5, P4, P3 = F(1.9875691500e-4), F(1.3981999507e-3), F(8.3334519073e-3)
P2, P1, P0 = F(4.1665795894e-2), F(1.6666665459e-1), F(5.0000001201e-1)
ONE = F(1.0)
LOWEST, HIGHEST = F(-88.0), F(88.5)  # where n is -127 and 128
SHIFT = F(1.5 * 2**23 + 127)  # a sum with it has a whole number in its last bits


@intrinsic
def power_of_two(typingctx, shifted):
    """2**n of a whole n from -127, which gives 0, to 128, which gives inf, given as n + SHIFT; 0 for NaN.

    Method: n + 127 are the last bits of the sum, and become the exponent.
    """

    def codegen(context, builder, signature, args):
        return builder.bitcast(builder.shl(builder.bitcast(args[0], I32), ir.Constant(I32, 23)), FLOAT)

    return types.float32(types.float32), codegen


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
    """e**x for float32, relative error below 1.3e-7 where it is normal; subnormal below -87.34, 0 below -87.69, inf
    above 88.376, NaN for NaN.

    Method: x = n ln 2 + r with ln 2 in two parts (Cody & Waite), a polynomial for e**r times 2**n. Few instructions: of
    256 bits a processor does two or three in a cycle, and an exponential has 16.
    """
    clipped = HIGHEST if x > HIGHEST else x  # so and in this order each is one instruction, by which NaN stays
    clipped = LOWEST if clipped < LOWEST else clipped
    shifted = multiply_add(clipped, LOG2_E, SHIFT)
    n = shifted - SHIFT  # the nearest whole number
    # Operators would be reassociated: both parts of ln 2 would become one, and the error three times as large.
    r = multiply_add(-n, LN2_LOW, multiply_add(-n, LN2_HIGH, clipped))
    p = P5 * r + P4
    p = p * r + P3
    p = p * r + P2
    p = p * r + P1
    p = p * r + P0
    p = p * r * r + r + ONE
    return p * power_of_two(shifted)
