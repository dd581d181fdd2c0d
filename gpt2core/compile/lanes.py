"""Vectors of 16 lanes of 32 bits, for code that is written in LLVM IR."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from gpt2core.compile import llvm
from gpt2core.compile.line import LINE_BYTES
from gpt2core.compile.llvm import FLOAT, I8, I16, I32, I64, VOID

LANES = 16
LANE = range(LANES)
WORD, HALF_BYTES = 4, 2  # bytes; a half is a bfloat16

WORDS, FLOATS = ir.VectorType(I32, LANES), ir.VectorType(FLOAT, LANES)


def constant(kind: ir.Type, value: int) -> Any:
    """An integer, or a vector of it."""
    return ir.Constant(kind, [value] * kind.count if isinstance(kind, ir.VectorType) else value)


def shuffle(builder, first, second, lanes):
    return builder.shuffle_vector(first, second, ir.Constant(ir.VectorType(I32, len(lanes)), lanes))


def splat(builder, word):
    nothing = ir.Constant(WORDS, ir.Undefined)
    return shuffle(builder, builder.insert_element(nothing, word, ir.Constant(I32, 0)), nothing, [0] * LANES)


def load(builder, address, kind, offset, align=LINE_BYTES):
    loaded = builder.load(_pointer(builder, address, kind, offset))
    loaded.align = align
    return loaded


def store(builder, value, address, offset, align=LINE_BYTES):
    builder.store(value, _pointer(builder, address, value.type, offset)).align = align


def opaque(builder, value):
    """The same integer, opaque to the compiler: addresses computed from it stay as written. Otherwise LLVM would
    compute each from the previous one.
    """
    return builder.asm(ir.FunctionType(value.type, [value.type]), "", "=r,0", [value], side_effect=False)


def fixed(builder, floats):
    """The same vector, at this place of the code: no load or store is moved across it. For AVX-512 only."""
    return builder.asm(ir.FunctionType(FLOATS, [FLOATS]), "", "=v,0", [floats], side_effect=True)


def mask(builder, count, vector=0):
    """The lanes of a row's vector number `vector` that belong to its first `count` elements."""
    lanes = ir.Constant(WORDS, [vector * LANES + lane for lane in LANE])
    return builder.icmp_signed("<", lanes, splat(builder, builder.trunc(count, I32)))


def load_bits(builder, address, vector, halves=False):
    """The bits of float32 from a row's vector of float32, or of bfloat16 (`halves`)."""
    if not halves:
        return load(builder, address, WORDS, vector * LANES * WORD, align=WORD)
    offset = vector * LANES * HALF_BYTES
    return _widened(builder, load(builder, address, ir.VectorType(I16, LANES), offset, align=HALF_BYTES))


def masked_load(builder, address, vector, mask):
    """Floats of a row's vector; 0 in the other lanes, whose memory is not touched."""
    pointer = _pointer(builder, address, FLOATS, vector * LANES * WORD)
    arguments = [pointer, ir.Constant(I32, 4), mask, ir.Constant(FLOATS, [0.0] * LANES)]
    return llvm.call(builder, "llvm.masked.load.v16f32.p0", FLOATS, arguments)


def masked_load_bits(builder, address, vector, mask, halves=False):
    """load_bits in the mask's lanes; 0 in the others, whose memory is not touched."""
    if not halves:
        return builder.bitcast(masked_load(builder, address, vector, mask), WORDS)
    kind = ir.VectorType(I16, LANES)
    pointer = _pointer(builder, address, kind, vector * LANES * HALF_BYTES)
    arguments = [pointer, ir.Constant(I32, HALF_BYTES), mask, ir.Constant(kind, [0] * LANES)]
    return _widened(builder, llvm.call(builder, "llvm.masked.load.v16i16.p0", kind, arguments))


def _widened(builder, halves):
    return builder.shl(builder.zext(halves, WORDS), constant(WORDS, 16))


def masked_store(builder, value, address, vector, mask):
    pointer = _pointer(builder, address, FLOATS, vector * LANES * WORD)
    llvm.call(builder, "llvm.masked.store.v16f32.p0", VOID, [value, pointer, ir.Constant(I32, 4), mask])


def prefetch(builder, address, to_write=False):
    """Prefetch the line at an address, for reading into the second cache, for writing into the first."""
    writes, locality, data = (1, 3, 1) if to_write else (0, 2, 1)
    arguments = [_pointer(builder, address, I8, 0), *(ir.Constant(I32, value) for value in (writes, locality, data))]
    llvm.call(builder, "llvm.prefetch.p0", VOID, arguments)


def _pointer(builder, address, kind, offset):
    return builder.inttoptr(builder.add(address, ir.Constant(I64, offset)), ir.PointerType(kind))
