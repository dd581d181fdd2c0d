"""The rate that no product can exceed: independent multiply-adds on vector registers, without memory accesses.

There are more chains than an instruction's latency requires, on the widest vectors of the processor.
"""

from __future__ import annotations

import platform
from typing import Any

from llvmlite import ir

from gpt2core.compile import llvm
from gpt2core.compile.jit import cgutils, intrinsic, types
from gpt2core.compile.lanes import FLOATS, WORDS
from gpt2core.compile.llvm import F32, I32
from gpt2core.compile.target import FEATURES
from gpt2core.gemm.packing import DOT_BF16

VECTOR_BITS = next((bits for feature, bits in (("avx512f", 512), ("avx", 256)) if FEATURES.get(feature)), 128)
LANES = VECTOR_BITS // 32
CHAINS = 24 if VECTOR_BITS == 512 or platform.machine() == "aarch64" else 12  # of 32, or of 16 vector registers
FLOP, PAIRS_FLOP = 2 * LANES * CHAINS, 4 * LANES * CHAINS  # of a turn of all chains
TILE_REGISTERS = bool(FEATURES.get("amx-bf16", False))  # faster for bfloat16, but not used by this loop


def _chains(kind: Any, fill: Any, step: Any) -> Any:
    """An intrinsic (turns, value): `turns` steps of every chain with vectors of `value`; the sum of the chains."""

    @intrinsic
    def chains(typingctx, turns, value):
        def codegen(context, builder, signature, args):
            turns, value = args
            start = ir.Constant(kind, [0.0] * kind.count)
            sums = [cgutils.alloca_once_value(builder, start) for _ in range(CHAINS)]  # registers, after LLVM's mem2reg
            filled = fill(builder, value)
            with cgutils.for_range(builder, turns):
                for total in sums:
                    builder.store(step(builder, builder.load(total), filled), total)
            result = builder.load(sums[0])
            for total in sums[1:]:
                result = builder.fadd(result, builder.load(total))
            return builder.extract_element(result, ir.Constant(I32, 0))

        return types.float32(types.int64, types.float32), codegen

    return chains


def _splat(builder, value):
    kind = ir.VectorType(F32, LANES)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(I32, 0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(I32, LANES), [0] * LANES))


def _multiply_add(builder, total, value):
    """total * value + value: it stays at value / (1 - value), so no denormals and no infinity slow it down."""
    return llvm.call(builder, f"llvm.fma.v{LANES}f32", total.type, [total, value, value])


def _word_splat(builder, value):
    """Pairs of bfloat16 that both are the value, of which bfloat16 must hold every bit."""
    bits = builder.bitcast(value, I32)
    word = builder.or_(bits, builder.lshr(bits, ir.Constant(I32, 16)))
    one = builder.insert_element(ir.Constant(WORDS, ir.Undefined), word, ir.Constant(I32, 0))
    return builder.shuffle_vector(one, one, ir.Constant(WORDS, [0] * WORDS.count))


def _add_pairs(builder, total, words):
    return llvm.call(builder, "llvm.x86.avx512bf16.dpbf16ps.512", FLOATS, [total, words, words])


multiply_adds = _chains(ir.VectorType(F32, LANES), _splat, _multiply_add)
# If the processor has no products of pairs, a bfloat16 is multiplied as float32.
pair_multiply_adds = _chains(FLOATS, _word_splat, _add_pairs) if DOT_BF16 else multiply_adds
