"""The rate that no product can exceed: independent multiply-adds on vector registers, without memory accesses.

There are more chains than an instruction's latency requires, on the widest vectors of the processor, and on the tile
registers of AMX.
"""

from __future__ import annotations

import platform
from typing import Any

from llvmlite import ir

from gpt2core.compile import llvm
from gpt2core.compile.jit import cgutils, intrinsic, types
from gpt2core.compile.lanes import FLOATS, WORDS
from gpt2core.compile.llvm import F32, I8, I32, I64, VOID
from gpt2core.compile.target import FEATURES
from gpt2core.gemm import tiles
from gpt2core.gemm.words import DOT_BF16

VECTOR_BITS = next((bits for feature, bits in (("avx512f", 512), ("avx", 256)) if feature in FEATURES), 128)
LANES = VECTOR_BITS // 32
CHAINS = 24 if VECTOR_BITS == 512 or platform.machine() == "aarch64" else 12  # of 32, or of 16 vector registers
TILE_CHAINS = 6  # with the two operands all tile registers
FLOATS_KIND, PAIRS_KIND, TILES_KIND = range(3)
FLOP = (2 * LANES * CHAINS, 4 * LANES * CHAINS, 2 * 2 * 16**3 * TILE_CHAINS)  # of a turn of all chains, by kind


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


@intrinsic
def tile_multiply_adds(typingctx, turns, value):
    """As `_chains` for pairs, on tile registers; `tiles.permitted` must have allowed them."""

    def codegen(context, builder, signature, args):
        turns, value = args
        operands = (ir.Constant(I8, TILE_CHAINS), ir.Constant(I8, TILE_CHAINS + 1))
        memory = cgutils.alloca_once(builder, ir.ArrayType(WORDS, WORDS.count))
        at = [builder.gep(memory, [ir.Constant(I32, 0), ir.Constant(I32, row)]) for row in range(WORDS.count)]
        stride = ir.Constant(I64, 4 * WORDS.count)
        words = _word_splat(builder, value)
        for row in at:
            builder.store(words, row)
        tiles.configure(builder)
        for operand in operands:
            llvm.call(builder, "llvm.x86.tileloadd64", VOID, [operand, at[0], stride])
        chains = [ir.Constant(I8, chain) for chain in range(TILE_CHAINS)]
        for chain in chains:
            llvm.call(builder, "llvm.x86.tilezero", VOID, [chain])
        with cgutils.for_range(builder, turns):
            for chain in chains:
                llvm.call(builder, "llvm.x86.tdpbf16ps", VOID, [chain, *operands])
        result = ir.Constant(F32, 0.0)
        for chain in chains:
            llvm.call(builder, "llvm.x86.tilestored64", VOID, [chain, at[0], stride])
            sums = builder.bitcast(builder.load(at[0]), FLOATS)
            result = builder.fadd(result, builder.extract_element(sums, ir.Constant(I32, 0)))
        llvm.call(builder, "llvm.x86.tilerelease", VOID)
        return result

    return types.float32(types.int64, types.float32), codegen


multiply_adds = _chains(ir.VectorType(F32, LANES), _splat, _multiply_add)
# A processor without such instructions never runs these, but the code around them is compiled.
pair_multiply_adds = _chains(FLOATS, _word_splat, _add_pairs) if DOT_BF16 else multiply_adds
if not tiles.TILES:
    tile_multiply_adds = multiply_adds


def kinds_of_bf16() -> list[int]:
    """The kinds of chains by which this process may multiply bfloat16. Rounded operands may be multiplied as float32,
    which some processors do faster than pairs.
    """
    return [FLOATS_KIND, *([PAIRS_KIND] if DOT_BF16 else []), *([TILES_KIND] if tiles.permitted() else [])]
