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
    """An intrinsic (rows, vectors, a, a_row, a_word, a_line, b, b_word, b_line, b_vector, length, lines, c, c_row,
    columns, start, start_row, gate, gate_row, rectify).

    Maths:    c = start + sum over lines and words of a[row, word] * b[word, column]; then, with `rectify`, max(c, 0);
              or with a gate, 0 where the gate is not above 0
    Tiles:    rows is TILE_ROWS or 1; columns are those of the first `vectors` vectors, at most `columns` of them
    Memory:   all are addresses and strides in bytes of float32; b_vector leads from a vector of b to the next one.
              start and gate may be 0, for none; start may be c. With `ragged`, only the first `columns` floats of a
              word of b are read; otherwise whole vectors
    """

    @intrinsic
    def tile(
        typingctx, rows, vectors, a, a_row, a_word, a_line, b, b_word, b_line, b_vector, length, lines, c, c_row,
        columns, start, start_row, gate, gate_row, rectify,
    ):  # fmt: skip
        def codegen(context, builder, signature, args):
            rows, vectors, *rest = args
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
                _tile(builder, count, width, ragged, *rest)
                builder.branch(done)
            builder.position_at_end(done)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 20), codegen

    return tile


def _tile(
    builder, rows, vectors, ragged, a, a_row, a_word, a_line, b, b_word, b_line, b_vector, length, lines, c, c_row,
    columns, start, start_row, gate, gate_row, rectify,
):  # fmt: skip
    """Emit the code of a tile of `rows` rows and `vectors` vectors."""
    cells = [(i, v) for i in range(rows) for v in range(vectors)]
    masks = [lanes.mask(builder, columns, v) for v in range(vectors)]
    zero = ir.Constant(FLOATS, [0.0] * LANES)
    sums = {cell: cgutils.alloca_once_value(builder, zero) for cell in cells}  # registers, after LLVM's mem2reg
    for cell in cells:
        builder.store(zero, sums[cell])

    def at(base, stride, i):
        return builder.add(base, builder.mul(stride, ir.Constant(I64, i)))

    def load(address, v):
        address = at(address, b_vector, v)
        if ragged:
            return lanes.masked_load(builder, address, 0, masks[v])
        return lanes.load(builder, address, FLOATS, 0, align=WORD)

    with builder.if_then(builder.icmp_signed("!=", start, NONE)):
        for i, v in cells:
            builder.store(lanes.masked_load(builder, at(start, start_row, i), v, masks[v]), sums[i, v])

    def add_word(at_a, at_b):
        words = [load(at_b, v) for v in range(vectors)]
        for i in range(rows):
            word = lanes.load(builder, at(at_a, a_row, i), I32, 0, align=WORD)
            splat = builder.bitcast(lanes.splat(builder, word), FLOATS)
            for v in range(vectors):
                product = builder.fmul(splat, words[v], flags=("contract",))
                total = builder.fadd(builder.load(sums[i, v]), product, flags=("contract",))
                builder.store(total, sums[i, v])

    turns = builder.ashr(length, ir.Constant(I64, 2))
    left = builder.and_(length, ir.Constant(I64, AT_ONCE - 1))
    with cgutils.for_range(builder, lines) as line:
        from_a = builder.add(a, builder.mul(a_line, line.index))
        from_b = builder.add(b, builder.mul(b_line, line.index))
        with cgutils.for_range(builder, turns) as turn:
            word = builder.mul(turn.index, ir.Constant(I64, AT_ONCE))
            at_a = builder.add(from_a, builder.mul(a_word, word))
            at_b = builder.add(from_b, builder.mul(b_word, word))
            for k in range(AT_ONCE):
                add_word(at(at_a, a_word, k), at(at_b, b_word, k))
        done = builder.mul(turns, ir.Constant(I64, AT_ONCE))
        with cgutils.for_range(builder, left) as rest:
            word = builder.add(done, rest.index)
            add_word(
                builder.add(from_a, builder.mul(a_word, word)), builder.add(from_b, builder.mul(b_word, word))
            )

    with builder.if_then(builder.icmp_signed("!=", rectify, NONE)):
        for cell in cells:
            value = builder.load(sums[cell])  # NaN stays
            builder.store(builder.select(builder.fcmp_ordered("<", value, zero), zero, value), sums[cell])
    with builder.if_then(builder.icmp_signed("!=", gate, NONE)):
        for i, v in cells:
            kept = lanes.masked_load(builder, at(gate, gate_row, i), v, masks[v])
            builder.store(
                builder.select(builder.fcmp_ordered(">", kept, zero), builder.load(sums[i, v]), zero), sums[i, v]
            )
    for i, v in cells:
        lanes.masked_store(builder, builder.load(sums[i, v]), at(c, c_row, i), v, masks[v])


whole_tile, ragged_tile = strided_tile(ragged=False), strided_tile(ragged=True)
