"""A register tile of a product whose operands lie in lines: convolutions need no copy of their inputs.

Along a line the words of both operands have constant strides, and so have the lines. Unlike gemm/register_tile.py it
packs and prefetches nothing, and what follows the product is done in registers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir

from gpt2core.compile import lanes
from gpt2core.compile.jit import cgutils, intrinsic, types
from gpt2core.compile.lanes import FLOATS, LANES, WORD
from gpt2core.compile.later import attributes
from gpt2core.compile.llvm import I32, I64
from gpt2core.compile.target import features
from gpt2core.gemm.operands import Lines, Rows, Target, Vectors


class Size(NamedTuple):
    """Of a whole tile."""

    rows: int
    vectors: int

    @property
    def columns(self) -> int:
        return self.vectors * LANES


def size() -> Size:
    """For 32 registers of 512 bits, or for 16 of 256 bits."""
    return Size(8, 2) if "avx512f" in features() else Size(4, 1)


TILE_ROWS, TILE_VECTORS, TILE_COLUMNS = attributes(size, "rows", "vectors", "columns")
AT_ONCE = 4  # words per turn of the inner loop
NONE = ir.Constant(I64, 0)


def strided_tile(ragged: bool) -> Any:
    """An intrinsic (rows, vectors, a: Lines, b: Vectors, length, lines, c: Target, start: Rows, gate: Rows, rectify).

    Maths:    c = start + sum over lines and words of a[row, word] * b[word, column]; then, with `rectify`, max(c, 0);
              or with a gate, 0 where the gate is not above 0
    Tiles:    rows is TILE_ROWS or 1; columns are those of the first `vectors` vectors, at most `c.columns` of them
    Memory:   see gemm.operands. start may be c. With `ragged`, only the first `c.columns` floats of a word of b are
              read; otherwise whole vectors
    """

    @intrinsic
    def tile(typingctx, rows, vectors, a, b, length, lines, c, start, gate, rectify):
        def codegen(context, builder, signature, args):
            rows, vectors, a, b, length, lines, c, start, gate, rectify = args
            a, b, c, start, gate = (
                kind(*cgutils.unpack_tuple(builder, each))
                for kind, each in ((Lines, a), (Vectors, b), (Target, c), (Rows, start), (Rows, gate))
            )
            done = builder.append_basic_block("done")
            many = builder.zext(builder.icmp_signed("!=", rows, ir.Constant(I64, 1)), I64)
            kinds = [(r, v) for r in (1, TILE_ROWS) for v in range(1, TILE_VECTORS + 1)]
            choice = builder.switch(
                builder.add(builder.mul(many, ir.Constant(I64, TILE_VECTORS)), vectors), done
            )
            for value, (count, width) in enumerate(kinds, start=1):
                block = builder.append_basic_block(f"strided_{count}x{width}")
                choice.add_case(ir.Constant(I64, value), block)
                builder.position_at_end(block)
                _tile(builder, count, width, ragged, a, b, length, lines, c, start, gate, rectify)
                builder.branch(done)
            builder.position_at_end(done)
            return context.get_dummy_value()

        i64 = types.int64
        return types.void(i64, i64, a, b, i64, i64, c, start, gate, i64), codegen

    return tile


def _tile(builder, rows, vectors, ragged, a, b, length, lines, c, start, gate, rectify):
    """Emit the code of a tile of `rows` rows and `vectors` vectors."""
    cells = [(i, v) for i in range(rows) for v in range(vectors)]
    masks = [lanes.mask(builder, c.columns, v) for v in range(vectors)]
    zero = ir.Constant(FLOATS, [0.0] * LANES)
    sums = {cell: cgutils.alloca_once_value(builder, zero) for cell in cells}  # registers, after LLVM's mem2reg
    for cell in cells:
        builder.store(zero, sums[cell])

    def at(base, stride, i):
        return builder.add(base, builder.mul(stride, ir.Constant(I64, i)))

    def load(address, v):
        address = at(address, b.vector, v)
        if ragged:
            return lanes.masked_load(builder, address, 0, masks[v])
        return lanes.load(builder, address, FLOATS, 0, align=WORD)

    with builder.if_then(builder.icmp_signed("!=", start.at, NONE)):
        for i, v in cells:
            builder.store(lanes.masked_load(builder, at(start.at, start.row, i), v, masks[v]), sums[i, v])

    def add_word(at_a, at_b):
        words = [load(at_b, v) for v in range(vectors)]
        for i in range(rows):
            word = lanes.load(builder, at(at_a, a.row, i), I32, 0, align=WORD)
            splat = builder.bitcast(lanes.splat(builder, word), FLOATS)
            for v in range(vectors):
                product = builder.fmul(splat, words[v], flags=("contract",))
                total = builder.fadd(builder.load(sums[i, v]), product, flags=("contract",))
                builder.store(total, sums[i, v])

    turns = builder.ashr(length, ir.Constant(I64, 2))
    left = builder.and_(length, ir.Constant(I64, AT_ONCE - 1))
    with cgutils.for_range(builder, lines) as line:
        from_a = builder.add(a.at, builder.mul(a.line, line.index))
        from_b = builder.add(b.at, builder.mul(b.line, line.index))
        with cgutils.for_range(builder, turns) as turn:
            word = builder.mul(turn.index, ir.Constant(I64, AT_ONCE))
            at_a = builder.add(from_a, builder.mul(a.word, word))
            at_b = builder.add(from_b, builder.mul(b.word, word))
            for k in range(AT_ONCE):
                add_word(at(at_a, a.word, k), at(at_b, b.word, k))
        done = builder.mul(turns, ir.Constant(I64, AT_ONCE))
        with cgutils.for_range(builder, left) as rest:
            word = builder.add(done, rest.index)
            add_word(
                builder.add(from_a, builder.mul(a.word, word)), builder.add(from_b, builder.mul(b.word, word))
            )

    with builder.if_then(builder.icmp_signed("!=", rectify, NONE)):
        for cell in cells:
            value = builder.load(sums[cell])  # NaN stays
            builder.store(builder.select(builder.fcmp_ordered("<", value, zero), zero, value), sums[cell])
    with builder.if_then(builder.icmp_signed("!=", gate.at, NONE)):
        for i, v in cells:
            kept = lanes.masked_load(builder, at(gate.at, gate.row, i), v, masks[v])
            builder.store(
                builder.select(builder.fcmp_ordered(">", kept, zero), builder.load(sums[i, v]), zero), sums[i, v]
            )
    for i, v in cells:
        lanes.masked_store(builder, builder.load(sums[i, v]), at(c.at, c.row, i), v, masks[v])


whole_tile, ragged_tile = strided_tile(ragged=False), strided_tile(ragged=True)
