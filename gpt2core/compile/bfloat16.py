"""Conversions between float32 and bfloat16, the upper half of its bits. A bfloat16 in memory is a uint16."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from gpt2core.compile import lanes
from gpt2core.compile.jit import intrinsic, types
from gpt2core.compile.lanes import LANES
from gpt2core.compile.llvm import FLOAT, I16, I32, I64
from gpt2core.compile.target import features


def native() -> bool:
    """Whether instructions round and multiply bfloat16. Without them LLVM would call a function for each rounding."""
    return "avx512_bf16" in features()



class Bfloat(ir.Type):  # type: ignore[misc] # llvmlite has no types
    """LLVM's bfloat, which llvmlite lacks."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bfloat)

    def __hash__(self) -> int:
        return hash(Bfloat)


def rounded(builder, bits):
    """Emit the nearest bfloat16, ties to even, as the bits of float32, scalar or vector. NaN stays NaN."""
    kind = bits.type
    odd = builder.and_(builder.lshr(bits, lanes.constant(kind, 16)), lanes.constant(kind, 1))
    near = builder.add(builder.add(bits, lanes.constant(kind, 0x7FFF)), odd)
    value = builder.bitcast(bits, ir.VectorType(FLOAT, kind.count) if isinstance(kind, ir.VectorType) else FLOAT)
    nan = builder.sext(builder.fcmp_unordered("uno", value, value), kind)
    return builder.and_(builder.or_(near, nan), lanes.constant(kind, 0xFFFF0000))


def rounded_words(builder, words):
    """Emit the same for a vector, where there is AVX2 by three instructions instead of seven. Then an infinite number
    becomes NaN, and zero has no sign.

    x - x (1 - 2^-16), whose product is rounded at the last bit of x, is what of x 2^-16 is not below this bit: the
    upper 8 bits of x, to nearest, and to even since at a tie the last bit of x is 0 (Veltkamp 1968; Dekker 1971, with a
    factor by which nothing overflows). As instructions: LLVM may reorder sums, and would find that all of it is x.
    """
    if "avx2" not in features():
        return rounded(builder, words)
    whole, widest = words.type.count, LANES if "avx512f" in features() else LANES // 2
    if whole > widest:
        halves = [list(range(first, first + whole // 2)) for first in (0, whole // 2)]
        low, high = (rounded_words(builder, lanes.shuffle(builder, words, words, half)) for half in halves)
        return lanes.shuffle(builder, low, high, list(range(whole)))
    kind = ir.VectorType(FLOAT, whole)
    factors = [lanes.constant(kind, factor) for factor in (1 - 2.0**-16, 2.0**16)]
    steps = "vmulps $2, $1, $0\n vsubps $0, $1, $0\n vmulps $3, $0, $0"
    arguments = [builder.bitcast(words, kind), *factors]
    near = builder.asm(ir.FunctionType(kind, [kind] * 3), steps, "=&v,v,m,m", arguments, side_effect=False)
    return builder.bitcast(near, words.type)


@intrinsic
def nearest(typingctx, value):
    """The nearest bfloat16 of a float32, as float32."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(rounded(builder, builder.bitcast(args[0], I32)), FLOAT)

    return types.float32(types.float32), codegen


def to_half(builder, value, by_instruction):
    """Emit the nearest bfloat16 of a float32."""
    if by_instruction:
        return builder.bitcast(builder.fptrunc(value, Bfloat()), I16)
    bits = rounded(builder, builder.bitcast(value, I32))
    return builder.trunc(builder.lshr(bits, lanes.constant(I32, 16)), I16)


def rounding(is_native: Callable[[], bool]) -> Any:
    """An intrinsic that gives the nearest bfloat16 of a float32: by the processor's instruction, or as `rounded`. They
    differ for subnormal numbers only, which the instruction takes as zero."""

    @intrinsic
    def half(typingctx, value):
        def codegen(context, builder, signature, args):
            return to_half(builder, args[0], is_native())

        return types.uint16(types.float32), codegen

    return half


half = rounding(native)


@intrinsic
def whole(typingctx, value):
    """The float32 of a bfloat16; a float32 itself."""
    if value not in (types.uint16, types.float32):
        return None  # no other type is accepted
    is_half = value == types.uint16

    def codegen(context, builder, signature, args):
        if not is_half:
            return args[0]
        return builder.bitcast(builder.shl(builder.zext(args[0], I32), lanes.constant(I32, 16)), FLOAT)

    return types.float32(types.uint16 if is_half else types.float32), codegen


@intrinsic
def like(typingctx, value, element):
    """A float32 as what an array with this element keeps: itself, or the nearest bfloat16 as `half` gives it."""
    if value != types.float32 or element not in (types.uint16, types.float32):
        return None  # no other type is accepted

    def codegen(context, builder, signature, args):
        return to_half(builder, args[0], native()) if element == types.uint16 else args[0]

    return element(value, element), codegen


@intrinsic
def is_half(typingctx, array):
    """1 for an array of bfloat16, else 0: a constant, so no loop branches on it."""

    def codegen(context, builder, signature, args):
        return ir.Constant(I64, int(array.dtype == types.uint16))

    return types.int64(array), codegen
