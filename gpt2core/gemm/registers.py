"""The rate that no product can exceed: independent multiply-adds on vector registers, without memory accesses.

There are more chains than an instruction's latency requires, on the widest vectors of the processor, and on the tile
registers of AMX.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any

from llvmlite import ir

from gpt2core.compile import llvm
from gpt2core.compile.bfloat16 import native
from gpt2core.compile.jit import cgutils, intrinsic, types
from gpt2core.compile.lanes import FLOATS, WORDS
from gpt2core.compile.llvm import FLOAT, I8, I32, I64, VOID
from gpt2core.compile.target import features
from gpt2core.gemm import tiles

TILE_CHAINS = 6  # with the two operands all tile registers
FLOATS_KIND, PAIRS_KIND, TILES_KIND = range(3)


def vector_bits() -> int:
    """Of the widest vector register."""
    return next((bits for feature, bits in (("avx512f", 512), ("avx", 256)) if feature in features()), 128)


def chains() -> int:
    """Of 32, or of 16 vector registers."""
    return 24 if vector_bits() == 512 or platform.machine() == "aarch64" else 12


def flop(kind: int) -> int:
    """Of a turn of all chains."""
    multiply_adds = {FLOATS_KIND: vector_bits() // 32 * chains(), PAIRS_KIND: vector_bits() // 16 * chains(),
                     TILES_KIND: 2 * 16**3 * TILE_CHAINS}  # fmt: skip
    return 2 * multiply_adds[kind]


def _floats() -> Any:
    """The widest vector of float32."""
    return ir.VectorType(FLOAT, vector_bits() // 32)


def _intrinsic(exist: Callable[[], bool], emit: Callable[..., Any]) -> Any:
    """An intrinsic (turns, value): `turns` steps of every chain with registers of `value`; the sum of the chains. Where
    such instructions do not exist it is never run, but the code around it is compiled: it is that of floats."""

    @intrinsic
    def multiply_adds(typingctx, turns, value):
        def codegen(context, builder, signature, args):
            return (emit if exist() else _on_floats)(builder, *args)

        return types.float32(types.int64, types.float32), codegen

    return multiply_adds


def _on_floats(builder, turns, value):
    return _chains(builder, turns, _splat(builder, value), _multiply_add)


def _on_pairs(builder, turns, value):
    return _chains(builder, turns, _word_splat(builder, value), _add_pairs)


def _chains(builder, turns, filled, step):
    start = ir.Constant(_floats(), [0.0] * _floats().count)
    sums = [cgutils.alloca_once_value(builder, start) for _ in range(chains())]  # registers, after LLVM's mem2reg
    with cgutils.for_range(builder, turns):
        for total in sums:
            builder.store(step(builder, builder.load(total), filled), total)
    result = builder.load(sums[0])
    for total in sums[1:]:
        result = builder.fadd(result, builder.load(total))
    return builder.extract_element(result, ir.Constant(I32, 0))


def _splat(builder, value):
    kind = _floats()
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(I32, 0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(I32, kind.count), [0] * kind.count))


def _multiply_add(builder, total, value):
    """total * value + value: it stays at value / (1 - value), so no denormals and no infinity slow it down."""
    return llvm.call(builder, f"llvm.fma.v{total.type.count}f32", total.type, [total, value, value])


def _word_splat(builder, value):
    """Pairs of bfloat16 that both are the value, of which bfloat16 must hold every bit."""
    bits = builder.bitcast(value, I32)
    word = builder.or_(bits, builder.lshr(bits, ir.Constant(I32, 16)))
    one = builder.insert_element(ir.Constant(WORDS, ir.Undefined), word, ir.Constant(I32, 0))
    return builder.shuffle_vector(one, one, ir.Constant(WORDS, [0] * WORDS.count))


def _add_pairs(builder, total, words):
    return llvm.call(builder, "llvm.x86.avx512bf16.dpbf16ps.512", FLOATS, [total, words, words])


def _on_tiles(builder, turns, value):
    """As `_on_pairs`, on tile registers; `tiles.permitted` must have allowed them."""
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
    registers = [ir.Constant(I8, number) for number in range(TILE_CHAINS)]
    for register in registers:
        llvm.call(builder, "llvm.x86.tilezero", VOID, [register])
    with cgutils.for_range(builder, turns):
        for register in registers:
            llvm.call(builder, "llvm.x86.tdpbf16ps", VOID, [register, *operands])
    result = ir.Constant(FLOAT, 0.0)
    for register in registers:
        llvm.call(builder, "llvm.x86.tilestored64", VOID, [register, at[0], stride])
        sums = builder.bitcast(builder.load(at[0]), FLOATS)
        result = builder.fadd(result, builder.extract_element(sums, ir.Constant(I32, 0)))
    llvm.call(builder, "llvm.x86.tilerelease", VOID)
    return result


multiply_adds = _intrinsic(lambda: True, _on_floats)
pair_multiply_adds = _intrinsic(native, _on_pairs)
tile_multiply_adds = _intrinsic(tiles.exist, _on_tiles)


def kinds_of_bf16() -> list[int]:
    """The kinds of chains by which this process may multiply bfloat16. Rounded operands may be multiplied as float32,
    which some processors do faster than pairs.
    """
    return [FLOATS_KIND, *([PAIRS_KIND] if native() else []), *([TILES_KIND] if tiles.permitted() else [])]
