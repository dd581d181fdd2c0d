"""Vectors of 16 lanes of 32 bits, for code that is written in LLVM's own language."""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types

FEATURES = llvm.get_host_cpu_features()
LANES = 16
LANE = range(LANES)
WORD, LINE = 4, 64  # bytes

I1, I32, I64, F32 = ir.IntType(1), ir.IntType(32), ir.IntType(64), ir.FloatType()
WORDS, FLOATS, MASK = ir.VectorType(I32, LANES), ir.VectorType(F32, LANES), ir.VectorType(I1, LANES)
ADDRESS = types.int64


def constant(kind: ir.Type, value: int) -> Any:
    """An integer, or a vector of it."""
    return ir.Constant(kind, [value] * LANES if isinstance(kind, ir.VectorType) else value)


def shuffle(builder, first, second, lanes):
    return builder.shuffle_vector(first, second, ir.Constant(ir.VectorType(I32, len(lanes)), lanes))


def splat(builder, word):
    nothing = ir.Constant(WORDS, ir.Undefined)
    return shuffle(builder, builder.insert_element(nothing, word, ir.Constant(I32, 0)), nothing, [0] * LANES)


def load(builder, address, kind, offset, align=LINE):
    loaded = builder.load(_pointer(builder, address, kind, offset))
    loaded.align = align
    return loaded


def store(builder, value, address, offset, align=LINE):
    builder.store(value, _pointer(builder, address, value.type, offset)).align = align


def opaque(builder, value):
    """The same integer, of which the compiler knows nothing: addresses made from it stay as written, where LLVM would
    compute each from the one before.
    """
    return builder.asm(ir.FunctionType(value.type, [value.type]), "", "=r,0", [value], side_effect=False)


def mask(builder, count, vector=0):
    """Which lanes of a row's vector number `vector` belong to its first `count` elements."""
    lanes = ir.Constant(WORDS, [vector * LANES + lane for lane in LANE])
    return builder.icmp_signed("<", lanes, splat(builder, builder.trunc(count, I32)))


def masked_load(builder, address, vector, mask):
    """Floats of a row's vector; 0 in the other lanes, whose memory is not touched."""
    pointer = _pointer(builder, address, FLOATS, vector * LANES * WORD)
    function = declared(builder, "llvm.masked.load.v16f32.p0", FLOATS, [pointer.type, I32, MASK, FLOATS])
    return builder.call(function, [pointer, ir.Constant(I32, 4), mask, ir.Constant(FLOATS, [0.0] * LANES)])


def masked_store(builder, value, address, vector, mask):
    pointer = _pointer(builder, address, FLOATS, vector * LANES * WORD)
    function = declared(builder, "llvm.masked.store.v16f32.p0", ir.VoidType(), [FLOATS, pointer.type, I32, MASK])
    builder.call(function, [value, pointer, ir.Constant(I32, 4), mask])


def prefetch(builder, address):
    """Into the second cache, for reading."""
    pointer = _pointer(builder, address, ir.IntType(8), 0)
    function = declared(builder, "llvm.prefetch.p0", ir.VoidType(), [pointer.type, I32, I32, I32])
    builder.call(function, [pointer, *(ir.Constant(I32, value) for value in (0, 2, 1))])


def declared(builder, name, result, arguments):
    return builder.module.globals.get(name) or ir.Function(builder.module, ir.FunctionType(result, arguments), name)


def _pointer(builder, address, kind, offset):
    return builder.inttoptr(builder.add(address, ir.Constant(I64, offset)), ir.PointerType(kind))
