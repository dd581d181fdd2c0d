"""The words that our own product multiplies: one vector of them, or one square, at a time.

A word is one float32, or with `pairs` two bfloat16 that follow each other along the summed dimension. Where the
processor cannot multiply pairs, or is slow with them, a bfloat16 is a word too, a float32 that was `rounded`. Rounding
is to nearest, ties to even; NaN stays NaN, which infinity may become. Sources are float32, or with `halves` bfloat16.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from gpt2core.compile import bfloat16, lanes, llvm
from gpt2core.compile.jit import intrinsic, kernel, types
from gpt2core.compile.lanes import FLOATS, HALF_BYTES, LANE, LANES, WORD, WORDS
from gpt2core.compile.line import LINE_BYTES
from gpt2core.compile.llvm import I32, I64
from gpt2core.compile.target import features
from gpt2core.gemm.blocking import PANEL_ROW

QUARTER = 4  # words of the smallest vector

# --- one vector


@intrinsic
def pair(typingctx, low, high):
    """The word of two float32."""

    def codegen(context, builder, signature, args):
        return _interleaved(builder, *(builder.bitcast(value, I32) for value in args))

    return types.int32(types.float32, types.float32), codegen


def _interleaved(builder, low, high):
    """Words of float32 from `low` and from `high`, which are given as bits, scalar or vector."""
    kind = low.type
    if bfloat16.native() and kind == WORDS:
        halves = _rounded_both(builder, low, high)
        order = [lane // 2 + LANES * (lane % 2) for lane in range(2 * LANES)]
        return builder.bitcast(lanes.shuffle(builder, halves, halves, order), WORDS)
    return _joined(builder, bfloat16.rounded(builder, low), bfloat16.rounded(builder, high))


def _joined(builder, low, high):
    """Words of bfloat16, which are given as the bits of float32."""
    return builder.or_(builder.lshr(low, lanes.constant(low.type, 16)), high)


def _consecutive(builder, first, second):
    """Words of 32 float32 that follow each other."""
    if bfloat16.native():
        return builder.bitcast(_rounded_both(builder, first, second), WORDS)
    even, odd = (lanes.shuffle(builder, first, second, list(range(side, 2 * LANES, 2))) for side in (0, 1))
    return _interleaved(builder, even, odd)


def _rounded_both(builder, first, second):
    """The bfloat16 of two vectors, one vector's after the other's: one instruction of AVX512-BF16."""
    halves = ir.VectorType(ir.IntType(16), 2 * LANES)
    arguments = [builder.bitcast(bits, FLOATS) for bits in (second, first)]
    return llvm.call(builder, "llvm.x86.avx512bf16.cvtne2ps2bf16.512", halves, arguments)


# --- rows of vectors


def words_along(builder, pairs, row):
    """The first LANES words of a row of float32, whose words are along it."""
    first = lanes.load_bits(builder, row, 0)
    return _consecutive(builder, first, lanes.load_bits(builder, row, 1)) if pairs else first


def words_of(builder, pairs, halves, row, next_row, vector):
    """The words of columns [LANES vector, LANES (vector + 1)): one row's elements, or pairs of two rows' elements. The
    rows are given by their addresses."""
    low = lanes.load_bits(builder, row, vector, halves)
    if not pairs:
        return low
    return (_joined if halves else _interleaved)(builder, low, lanes.load_bits(builder, next_row, vector, halves))


def line_rounder(halves: bool) -> Any:
    """An intrinsic (source, count, to) that rounds the first `count` of 16 elements to bfloat16, as float32. Nothing
    else is read or written."""

    @intrinsic
    def round_line(typingctx, source, count, to):
        def codegen(context, builder, signature, args):
            source, count, to = args
            kept = lanes.mask(builder, count)
            words = lanes.masked_load_bits(builder, source, 0, kept, halves)
            words = words if halves else bfloat16.rounded_words(builder, words)
            lanes.masked_store(builder, builder.bitcast(words, FLOATS), to, 0, kept)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), codegen

    return round_line


round_line, widen_line = line_rounder(halves=False), line_rounder(halves=True)


def line_packer(halves: bool) -> Any:
    """An intrinsic (source, count, to) that packs the first `count` of 32 elements in pairs, a last odd one with 0.
    Nothing else is read or written."""

    @intrinsic
    def pack_line(typingctx, source, count, to):
        def codegen(context, builder, signature, args):
            source, count, to = args
            masks = [lanes.mask(builder, count, v) for v in (0, 1)]
            words = _consecutive(
                builder, *(lanes.masked_load_bits(builder, source, v, masks[v], halves) for v in (0, 1))
            )
            kept = lanes.mask(builder, builder.ashr(builder.add(count, ir.Constant(I64, 1)), ir.Constant(I64, 1)))
            lanes.masked_store(builder, builder.bitcast(words, FLOATS), to, 0, kept)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), codegen

    return pack_line


pack_line, copy_line = line_packer(halves=False), line_packer(halves=True)


def packer(pairs: bool = False, rounded: bool = False, halves: bool = False) -> Any:
    """An intrinsic (low, low_count, high, high_count, to) that packs LANES words of a row, or of pairs from two rows.
    Elements from a count on are zeros and are not read; a count may be negative.
    """
    join = _joined if halves else _interleaved

    @intrinsic
    def pack(typingctx, low, low_count, high, high_count, to):
        def codegen(context, builder, signature, args):
            low, low_count, high, high_count, to = args
            words = lanes.masked_load_bits(builder, low, 0, lanes.mask(builder, low_count), halves)
            if pairs:
                more = lanes.masked_load_bits(builder, high, 0, lanes.mask(builder, high_count), halves)
                words = join(builder, words, more)
            lanes.store(builder, bfloat16.rounded_words(builder, words) if rounded else words, to, 0, align=WORD)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), codegen

    return pack


pack_floats, pack_rounded, pack_pairs = packer(), packer(rounded=True), packer(pairs=True)
widen_halves, pack_half_pairs = packer(halves=True), packer(pairs=True, halves=True)


@kernel
def pack_words(low, low_count, high, high_count, to, pairs, rounded, halves):
    """Pack LANES words by one of the packers."""
    if pairs and halves:
        pack_half_pairs(low, low_count, high, high_count, to)
    elif pairs:
        pack_pairs(low, low_count, high, high_count, to)
    elif halves:
        widen_halves(low, low_count, high, high_count, to)
    elif rounded:
        pack_rounded(low, low_count, high, high_count, to)
    else:
        pack_floats(low, low_count, high, high_count, to)


def _transposed(builder, rows, size):
    """The columns of as many vectors as they have words, in which squares larger than `size` are exchanged already."""
    rows, many = list(rows), len(rows)
    while size:  # exchange the off-diagonal squares of `size` rows, then those within each
        up = [j - size + many if j & size else j for j in range(many)]
        down = [j + many if j & size else j + size for j in range(many)]
        for i in range(many):
            if not i & size:
                upper, lower = rows[i], rows[i + size]
                rows[i] = lanes.shuffle(builder, upper, lower, up)
                rows[i + size] = lanes.shuffle(builder, upper, lower, down)
        size //= 2
    return rows


def _square(builder, starts, first):
    """As many words as there are `starts`, from word `first` of each on: vectors in which squares of four rows are
    exchanged. Loads of four words, which are put side by side, do this, so no shuffle does."""
    kind, rows = ir.VectorType(I32, QUARTER), []
    for i in range(len(starts)):
        at = (first + i // QUARTER * QUARTER) * WORD
        parts = [lanes.load(builder, start, kind, at, align=WORD) for start in starts[i % QUARTER :: QUARTER]]
        while len(parts) > 1:
            both = list(range(2 * parts[0].type.count))
            parts = [lanes.shuffle(builder, *two, both) for two in zip(parts[::2], parts[1::2], strict=True)]
        rows += parts
    return rows


def transposer(pairs: bool = False, rounded: bool = False, halves: bool = False, to_row: int = 0) -> Any:
    """An intrinsic (source, source_row, panel) that transposes 16 words of each of 16 rows, source_row bytes apart, to
    16 columns of a panel, or of rows to_row bytes apart. Two halves that follow each other are a pair as they lie.

    Vectors of 256 bits read a line of 8 rows before the next 8: rows of a weight are often a multiple of 4 KiB apart,
    and 16 such lines evict each other from a first cache of 8 ways.
    """

    @intrinsic
    def transpose(typingctx, source, source_row, panel):
        def codegen(context, builder, signature, args):
            source, source_row, panel = args
            starts = [builder.add(source, builder.mul(source_row, ir.Constant(I64, i))) for i in LANE]
            side = LANES if pairs or halves or "avx512f" in features() else LANES // 2
            for row in range(0, LANES, side):
                for word in range(0, LANES, side):
                    some, size = starts[row : row + side], side // 2
                    if halves and pairs:
                        rows = [lanes.load(builder, start, WORDS, 0, align=HALF_BYTES) for start in some]
                    elif pairs:
                        rows = [words_along(builder, True, start) for start in some]
                    elif halves:
                        rows = [lanes.load_bits(builder, start, 0, halves) for start in some]
                    else:
                        rows, size = _square(builder, some, word), QUARTER // 2
                    if rounded:
                        rows = [bfloat16.rounded_words(builder, words) for words in rows]
                    for i, column in enumerate(_transposed(builder, rows, size)):
                        at = (word + i) * (to_row or PANEL_ROW) + WORD * row
                        lanes.store(builder, column, panel, at, align=WORD * side)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), codegen

    return transpose


transpose_floats, transpose_rounded, transpose_pairs = transposer(), transposer(rounded=True), transposer(pairs=True)
transpose_halves, transpose_half_pairs = transposer(halves=True), transposer(pairs=True, halves=True)
transpose_square = transposer(to_row=LANES * WORD)


def whole_line_packer(halves: bool) -> Any:
    """An intrinsic (source, count, to) that packs 32 elements in pairs. Those from `count` on are zeros and are not
    read."""

    @intrinsic
    def pack(typingctx, source, count, to):
        def codegen(context, builder, signature, args):
            source, count, to = args
            masks = [lanes.mask(builder, count, v) for v in (0, 1)]
            words = _consecutive(
                builder, *(lanes.masked_load_bits(builder, source, v, masks[v], halves) for v in (0, 1))
            )
            lanes.store(builder, words, to, 0)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), codegen

    return pack


def square_packer(halves: bool) -> Any:
    """An intrinsic that packs 32 rows of 16 elements, source_row bytes apart, in pairs along the rows' columns: 16 rows
    of 16 words, to_row bytes apart. Rows from `depth` on and columns from `count` on are zeros and are not read.
    """

    @intrinsic
    def pack(typingctx, source, source_row, depth, count, to, to_row):
        def codegen(context, builder, signature, args):
            source, source_row, depth, count, to, to_row = args
            kept = lanes.mask(builder, count)
            none = ir.Constant(kept.type, [0] * LANES)

            def line(number):
                there = builder.icmp_signed("<", ir.Constant(I64, number), depth)
                at = builder.add(source, builder.mul(source_row, ir.Constant(I64, number)))
                return lanes.masked_load_bits(builder, at, 0, builder.select(there, kept, none), halves)

            join = _joined if halves else _interleaved
            words = [join(builder, line(2 * i), line(2 * i + 1)) for i in LANE]
            for i, row in enumerate(_transposed(builder, words, LANES // 2)):
                lanes.store(builder, row, builder.add(to, builder.mul(to_row, ir.Constant(I64, i))), 0)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 6), codegen

    return pack


pack_whole_line, pack_whole_line_of_halves = (whole_line_packer(halves) for halves in (False, True))
pack_square, pack_square_of_halves = (square_packer(halves) for halves in (False, True))


@intrinsic
def fetch_row(typingctx, address):
    """Prefetch the lines of PANEL floats, mapped or not."""

    def codegen(context, builder, signature, args):
        for at in range(0, PANEL_ROW, LINE_BYTES):
            lanes.prefetch(builder, builder.add(args[0], ir.Constant(I64, at)))
        return context.get_dummy_value()

    return types.void(types.int64), codegen
