"""Our own matrix product: C (m, n) float32 from float32 matrices, as float32 or with operands rounded to bfloat16.

Operands are made of 32-bit words along the summed dimension k: a word is one float32, or two bfloat16 that follow each
other (a pair). B is brought into panels of PANEL columns: one word of each column, then the next word of each, with
zeros where the matrix ends. So a tile of C, TILE_ROWS by PANEL, stays in vector registers while it reads one stream of
whole vectors of B and broadcasts single words of A. A panel is used by all rows of A while it is in the core's cache
(Goto & van de Geijn 2008; Van Zee & van de Geijn 2015).

On x86-64 with AVX512-BF16 a word of pairs is one lane of VDPBF16PS; elsewhere pairs are widened and multiplied as
float32. Everything is generic vector code to LLVM otherwise.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from gpt2core.machine.jit import Entry, kernel, pointer_f32, pointer_i32, pointer_i64
from gpt2core.tensors import PANEL, PRODUCT_BLOCK, PRODUCT_DEPTH

FEATURES = llvm.get_host_cpu_features()
DOT_BF16 = bool(FEATURES.get("avx512bf16", False))
TILE_ROWS = 8 if FEATURES.get("avx512f", False) else 2  # of C in registers
INSTRUCTIONS = {
    "fp32": "avx512" if TILE_ROWS == 8 else "generic",
    "bf16": "avx512-bf16" if DOT_BF16 else "widened",
}
LANES = 16  # of 32 bits, in one vector
LANE = range(LANES)
VECTORS = PANEL // LANES
WORD, LINE = 4, 64  # bytes
PANEL_ROW = PANEL * WORD  # bytes
ZERO = np.float32(0)

I1, I32, I64, F32 = ir.IntType(1), ir.IntType(32), ir.IntType(64), ir.FloatType()
WORDS, FLOATS, MASK = ir.VectorType(I32, LANES), ir.VectorType(F32, LANES), ir.VectorType(I1, LANES)
ZERO64, ADDRESS = ir.Constant(I64, 0), types.int64


# --- from float32 to pairs


@intrinsic
def pair(typingctx, low, high):
    """The word of two float32, each rounded to the nearest bfloat16, ties to even; NaN stays NaN."""

    def codegen(context, builder, signature, args):
        return _pair(builder, *(builder.bitcast(value, I32) for value in args))

    return types.int32(types.float32, types.float32), codegen


def _pair(builder, low, high):
    """Words of pairs from float32 bits, scalar or vector."""
    kind = low.type
    if DOT_BF16 and kind == WORDS:  # one instruction rounds both, which then lie one after the other
        halves = ir.VectorType(ir.IntType(16), 2 * LANES)
        name = "llvm.x86.avx512bf16.cvtne2ps2bf16.512"
        floats = [builder.bitcast(bits, FLOATS) for bits in (high, low)]
        rounded = builder.call(_declared(builder, name, halves, [FLOATS, FLOATS]), floats)
        order = [lane // 2 + LANES * (lane % 2) for lane in range(2 * LANES)]
        return builder.bitcast(_shuffle(builder, rounded, rounded, order), WORDS)
    return builder.or_(
        builder.lshr(_rounded(builder, low), _constant(kind, 16)),
        builder.and_(_rounded(builder, high), _constant(kind, 0xFFFF0000)),
    )


def _rounded(builder, bits):
    """The bits with the nearest bfloat16 in their upper half; the lower half is of no meaning."""
    kind = bits.type
    odd = builder.and_(builder.lshr(bits, _constant(kind, 16)), _constant(kind, 1))
    near = builder.add(builder.add(bits, _constant(kind, 0x7FFF)), odd)
    magnitude = builder.and_(bits, _constant(kind, 0x7FFFFFFF))
    is_nan = builder.icmp_unsigned(">", magnitude, _constant(kind, 0x7F800000))
    return builder.select(is_nan, builder.or_(bits, _constant(kind, 0x400000)), near)


# --- from a matrix to words


def transposer(pairs: bool) -> Any:
    """An intrinsic (source, source_row, panel): 16 words of each of 16 rows, source_row bytes apart, to 16 columns of a
    panel.
    """

    @intrinsic
    def transpose(typingctx, source, source_row, panel):
        def codegen(context, builder, signature, args):
            source, source_row, panel = args
            rows = []
            for i in range(LANES):
                start = builder.add(source, builder.mul(source_row, ir.Constant(I64, i)))
                words = _load(builder, start, WORDS, 0, align=4)
                if pairs:
                    more = _load(builder, start, WORDS, LANES * WORD, align=4)
                    even, odd = (_shuffle(builder, words, more, list(range(side, 2 * LANES, 2))) for side in (0, 1))
                    words = _pair(builder, even, odd)
                rows.append(words)
            size = LANES // 2
            while size:  # exchange the off-diagonal squares of `size` rows, then those within each
                for i in range(LANES):
                    if not i & size:
                        upper, lower = rows[i], rows[i + size]
                        rows[i] = _shuffle(builder, upper, lower, [j - size + LANES if j & size else j for j in LANE])
                        rows[i + size] = _shuffle(
                            builder, upper, lower, [j + LANES if j & size else j + size for j in LANE]
                        )
                size //= 2
            for i, row in enumerate(rows):
                _store(builder, row, panel, i * PANEL_ROW, align=64)
            return context.get_dummy_value()

        return types.void(ADDRESS, ADDRESS, ADDRESS), codegen

    return transpose


transpose_floats, transpose_pairs = transposer(pairs=False), transposer(pairs=True)


def packer(pairs: bool) -> Any:
    """An intrinsic (low, low_count, high, high_count, to): LANES words of a row, or of pairs from two. Elements from
    a count on, which may be negative, are not read but taken as zeros.
    """

    @intrinsic
    def pack(typingctx, low, low_count, high, high_count, to):
        def codegen(context, builder, signature, args):
            low, low_count, high, high_count, to = args
            words = builder.bitcast(_masked_load(builder, low, 0, _mask(builder, low_count, 0)), WORDS)
            if pairs:
                more = _masked_load(builder, high, 0, _mask(builder, high_count, 0))
                words = _pair(builder, words, builder.bitcast(more, WORDS))
            _store(builder, words, to, 0, align=64)
            return context.get_dummy_value()

        return types.void(*[ADDRESS] * 5), codegen

    return pack


pack_floats, pack_pairs = packer(pairs=False), packer(pairs=True)


@kernel
def pack_rows(words, source, stride, count, depth):
    """Pairs (count, (depth + 1) // 2) of the first `depth` elements of rows, `stride` elements apart."""
    length = (depth + 1) // 2
    for i in range(count):
        row, to = pointer_f32(source + WORD * i * stride), pointer_i32(words + WORD * i * length)
        for p in range(depth // 2):
            to[p] = pair(row[2 * p], row[2 * p + 1])
        if depth % 2:
            to[length - 1] = pair(row[depth - 1], ZERO)


@kernel
def pack_depth(words, words_row, source, stride, depth, count, width, pairs):
    """Words along the rows of (depth, count): a row of words from each row, or from two. Zeros up to `width`, a
    multiple of LANES.

    words_row in bytes; rows of the source are `stride` elements apart.
    """
    if pairs:
        for p in range((depth + 1) // 2):
            low, to = source + WORD * 2 * p * stride, words + p * words_row
            there = count if 2 * p + 1 < depth else 0
            for i in range(0, width, LANES):
                pack_pairs(low + WORD * i, count - i, low + WORD * (stride + i), there - i, to + WORD * i)
    else:
        for p in range(depth):
            low, to = source + WORD * p * stride, words + p * words_row
            for i in range(0, width, LANES):
                pack_floats(low + WORD * i, count - i, 0, 0, to + WORD * i)


@kernel
def pack_transposed(panel, source, stride, count, depth, pairs):
    """A panel from (count, depth), count at most PANEL: rows become columns. Rows are `stride` elements apart."""
    length = (depth + 1) // 2 if pairs else depth
    whole = count - count % LANES
    blocks = (depth // 2 if pairs else depth) // LANES
    for i in range(0, whole, LANES):
        at, to = source + WORD * i * stride, panel + WORD * i
        for _ in range(blocks):
            if pairs:
                transpose_pairs(at, WORD * stride, to)
                at += 2 * LANES * WORD
            else:
                transpose_floats(at, WORD * stride, to)
                at += LANES * WORD
            to += LANES * PANEL_ROW
    for i in range(PANEL):
        row = pointer_f32(source + WORD * i * stride)
        for p in range(blocks * LANES if i < whole else 0, length):
            words, floats = pointer_i32(panel + p * PANEL_ROW), pointer_f32(panel + p * PANEL_ROW)
            if i >= count:
                words[i] = 0
            elif not pairs:
                floats[i] = row[p]
            elif 2 * p + 1 < depth:
                words[i] = pair(row[2 * p], row[2 * p + 1])
            else:
                words[i] = pair(row[2 * p], ZERO)


# --- a tile of C


def tile_product(rows: int, pairs: bool, dot_bf16: bool = DOT_BF16) -> Any:
    """An intrinsic (a, a_row, a_word, panel, length, c, c_row, columns, adds, ahead, places): `rows` rows of C and the
    first `columns` of a panel's columns, from `length` words; added to what is there if `adds` is set. With each word
    the line at ahead + the next of `places` (int64, bytes) is fetched, whether or not there is memory.

    a, panel, c, ahead and places are addresses, panel a multiple of 64; a_row, a_word and c_row are strides in bytes.
    """

    @intrinsic
    def tile(typingctx, a, a_row, a_word, panel, length, c, c_row, columns, adds, ahead, places):
        def codegen(context, builder, signature, args):
            a, a_row, a_word, panel, length, c, c_row, columns, adds, ahead, places = args
            lines = [builder.add(a, builder.mul(a_row, ir.Constant(I64, i))) for i in range(rows)]
            outs = [builder.add(c, builder.mul(c_row, ir.Constant(I64, i))) for i in range(rows)]
            cells = [(i, v) for i in range(rows) for v in range(VECTORS)]
            masks = [_mask(builder, columns, v) for v in range(VECTORS)]
            begin, loop, end = builder.block, builder.append_basic_block("words"), builder.append_basic_block("store")
            old = builder.append_basic_block("old")
            builder.cbranch(builder.icmp_signed("!=", adds, ir.Constant(I64, 0)), old, loop)

            builder.position_at_end(old)
            there = {(i, v): _masked_load(builder, outs[i], v, masks[v]) for i, v in cells}
            builder.branch(loop)

            builder.position_at_end(loop)
            k, at_a, at_b = builder.phi(I64), builder.phi(I64), builder.phi(I64)
            sums = {cell: builder.phi(FLOATS) for cell in cells}
            place = _load(builder, builder.add(places, builder.shl(k, ir.Constant(I64, 3))), I64, 0, align=8)
            _prefetch(builder, builder.add(ahead, place))
            b = [_load(builder, at_b, WORDS, v * LANES * WORD) for v in range(VECTORS)]
            total = {}
            for i in range(rows):
                word = _splat(builder, _load(builder, builder.add(lines[i], at_a), I32, 0, align=4))
                for v in range(VECTORS):
                    total[i, v] = _add_products(builder, pairs, dot_bf16, sums[i, v], word, b[v])
            following = builder.add(k, ir.Constant(I64, 1))
            for phi, first, other, then in (
                (k, ZERO64, ZERO64, following),
                (at_a, ZERO64, ZERO64, builder.add(at_a, a_word)),
                (at_b, panel, panel, builder.add(at_b, ir.Constant(I64, PANEL_ROW))),
                *((sums[cell], ir.Constant(FLOATS, [0.0] * LANES), there[cell], total[cell]) for cell in cells),
            ):
                phi.add_incoming(first, begin)
                phi.add_incoming(other, old)
                phi.add_incoming(then, loop)
            builder.cbranch(builder.icmp_signed("<", following, length), loop, end)

            builder.position_at_end(end)
            for i, v in cells:
                _masked_store(builder, total[i, v], outs[i], v, masks[v])
            return context.get_dummy_value()

        return types.void(*[ADDRESS] * 11), codegen

    return tile


def _add_products(builder, pairs, dot_bf16, total, a, b):
    """total + a * b in each lane, or the two products of a pair."""
    if pairs and dot_bf16:
        name, kind = "llvm.x86.avx512bf16.dpbf16ps.512", [FLOATS, WORDS, WORDS]
        return builder.call(_declared(builder, name, FLOATS, kind), [total, a, b])
    factors = [(a, b)]
    if pairs:
        factors = [
            (builder.shl(a, _constant(WORDS, 16)), builder.shl(b, _constant(WORDS, 16))),
            (builder.and_(a, _constant(WORDS, 0xFFFF0000)), builder.and_(b, _constant(WORDS, 0xFFFF0000))),
        ]
    for x, y in factors:
        product = builder.fmul(builder.bitcast(x, FLOATS), builder.bitcast(y, FLOATS), flags=("contract",))
        total = builder.fadd(total, product, flags=("contract",))
    return total


many_floats, one_float = tile_product(TILE_ROWS, pairs=False), tile_product(1, pairs=False)
many_pairs, one_pair = tile_product(TILE_ROWS, pairs=True), tile_product(1, pairs=True)


@kernel
def place_lines(places, length, rows, size, stride):
    """Spread the lines of `rows` rows of `size` bytes, `stride` bytes apart, evenly over `length` places, in bytes from
    the first row's start. So few are under way at a time that loads are not held up.
    """
    to = pointer_i64(places)
    lines = rows * ((size + LINE - 1) // LINE)
    row, at, due = 0, 0, 0
    for t in range(length):
        to[t] = row + at
        due += lines
        while due >= length:
            due -= length
            at += LINE
            if at >= size:
                row, at = row + stride, 0


@kernel
def multiply_panel(a, a_row, a_word, panel, length, c, c_row, m, columns, adds, pairs, ahead, ahead_row, rows, places):
    """C (m, columns) from words of A and a panel; strides in bytes.

    Meanwhile the `rows` rows, ahead_row bytes apart, that the next panel is made from are fetched, each tile's share at
    its `places`.
    """
    whole = m - m % TILE_ROWS
    for i in range(0, whole, TILE_ROWS):
        x, y, z = a + i * a_row, c + i * c_row, ahead + rows * i // whole * ahead_row
        if pairs:
            many_pairs(x, a_row, a_word, panel, length, y, c_row, columns, adds, z, places)
        else:
            many_floats(x, a_row, a_word, panel, length, y, c_row, columns, adds, z, places)
    for i in range(whole, m):
        x, y = a + i * a_row, c + i * c_row
        if pairs:
            one_pair(x, a_row, a_word, panel, length, y, c_row, columns, adds, ahead, places)
        else:
            one_float(x, a_row, a_word, panel, length, y, c_row, columns, adds, ahead, places)


@kernel
def multiply_tiled(pairs, scratch, trans_a, trans_b, m, n, k, a, lda, b, ldb, c, ldc):
    """C (m, n) = op(A) (m, k) @ op(B) (k, n), row-major float32; op transposes if its flag is set.

    With `pairs` operands are rounded to bfloat16. a, b, c are addresses; ld* are row lengths in elements; scratch is
    the address, a multiple of 64, of PRODUCT_SCRATCH words that are the caller's alone.
    """
    panel, places = scratch, scratch + PRODUCT_DEPTH * PANEL_ROW
    words = places + 2 * WORD * PRODUCT_DEPTH
    most = 2 * PRODUCT_DEPTH if pairs else PRODUCT_DEPTH
    parts = (k + most - 1) // most  # nearly equal, so that C is not read again for a short rest
    most = (k + 2 * parts - 1) // (2 * parts) * 2
    for k0 in range(0, k, most):
        depth = min(most, k - k0)
        length = (depth + 1) // 2 if pairs else depth
        block = PRODUCT_BLOCK // length // LANES * LANES
        for m0 in range(0, m, block):
            rows = min(block, m - m0)
            width = (rows + LANES - 1) // LANES * LANES
            at_a, a_row, a_word = words, WORD, WORD * width
            if trans_a:
                pack_depth(words, WORD * width, a + WORD * (k0 * lda + m0), lda, depth, rows, width, pairs)
            elif pairs:
                a_row, a_word = WORD * length, WORD
                pack_rows(words, a + WORD * (m0 * lda + k0), lda, rows, depth)
            else:
                at_a, a_row, a_word = a + WORD * (m0 * lda + k0), WORD * lda, WORD
            from_rows, size, step = depth, PANEL_ROW, PANEL  # what a panel is made from, and how far it is to the next
            if trans_b:
                from_rows, size, step = PANEL, WORD * depth, PANEL * ldb
            tiles = max(1, rows // TILE_ROWS)
            place_lines(places, length, (from_rows + tiles - 1) // tiles, size, WORD * ldb)
            for j in range(0, n, PANEL):
                columns = min(PANEL, n - j)
                if trans_b:
                    source = b + WORD * (j * ldb + k0)
                    pack_transposed(panel, source, ldb, columns, depth, pairs)
                else:
                    source = b + WORD * (k0 * ldb + j)
                    pack_depth(panel, PANEL_ROW, source, ldb, depth, columns, PANEL, pairs)
                multiply_panel(
                    at_a, a_row, a_word, panel, length, c + WORD * (m0 * ldc + j), WORD * ldc, rows, columns, k0, pairs,
                    source + WORD * step, WORD * ldb, from_rows, places,
                )  # fmt: skip


def tiled_product(pairs, scratch, trans_a, trans_b, m, n, k, a, lda, b, ldb, c, ldc):
    multiply_tiled(pairs != 0, scratch, trans_a, trans_b, m, n, k, a, lda, b, ldb, c, ldc)


ARGUMENTS = (ADDRESS,) * 13
product = Entry(tiled_product, types.void(*ARGUMENTS))  # called by its address as a library's is: compiled once


@intrinsic
def call_product(typingctx, address, arguments):
    """Call `product` at its address with a tuple of its arguments."""

    def codegen(context, builder, signature, args):
        values = cgutils.unpack_tuple(builder, args[1], len(ARGUMENTS))
        function = builder.inttoptr(args[0], ir.PointerType(ir.FunctionType(ir.VoidType(), [I64] * len(ARGUMENTS))))
        builder.call(function, values)
        return context.get_dummy_value()

    return types.void(ADDRESS, types.UniTuple(ADDRESS, len(ARGUMENTS))), codegen


# --- vectors in LLVM's language


def _constant(kind: ir.Type, value: int) -> Any:
    """An integer, or a vector of it."""
    return ir.Constant(kind, [value] * LANES if isinstance(kind, ir.VectorType) else value)


def _pointer(builder, address, kind, offset):
    return builder.inttoptr(builder.add(address, ir.Constant(I64, offset)), ir.PointerType(kind))


def _load(builder, address, kind, offset, align=64):
    loaded = builder.load(_pointer(builder, address, kind, offset))
    loaded.align = align
    return loaded


def _store(builder, value, address, offset, align):
    builder.store(value, _pointer(builder, address, value.type, offset)).align = align


def _shuffle(builder, first, second, lanes):
    return builder.shuffle_vector(first, second, ir.Constant(ir.VectorType(I32, len(lanes)), lanes))


def _splat(builder, word):
    nothing = ir.Constant(WORDS, ir.Undefined)
    return _shuffle(builder, builder.insert_element(nothing, word, ir.Constant(I32, 0)), nothing, [0] * LANES)


def _prefetch(builder, address):
    """Into the second cache, for reading."""
    pointer = _pointer(builder, address, ir.IntType(8), 0)
    function = _declared(builder, "llvm.prefetch.p0", ir.VoidType(), [pointer.type, I32, I32, I32])
    builder.call(function, [pointer, *(ir.Constant(I32, value) for value in (0, 2, 1))])


def _mask(builder, columns, vector):
    """Which lanes of a tile's vector are columns of C."""
    lanes = ir.Constant(WORDS, [vector * LANES + lane for lane in LANE])
    return builder.icmp_signed("<", lanes, _splat(builder, builder.trunc(columns, I32)))


def _masked_load(builder, address, vector, mask):
    pointer = _pointer(builder, address, FLOATS, vector * LANES * WORD)
    function = _declared(builder, "llvm.masked.load.v16f32.p0", FLOATS, [pointer.type, I32, MASK, FLOATS])
    return builder.call(function, [pointer, ir.Constant(I32, 4), mask, ir.Constant(FLOATS, [0.0] * LANES)])


def _masked_store(builder, value, address, vector, mask):
    pointer = _pointer(builder, address, FLOATS, vector * LANES * WORD)
    function = _declared(builder, "llvm.masked.store.v16f32.p0", ir.VoidType(), [FLOATS, pointer.type, I32, MASK])
    builder.call(function, [value, pointer, ir.Constant(I32, 4), mask])


def _declared(builder, name, result, arguments):
    return builder.module.globals.get(name) or ir.Function(builder.module, ir.FunctionType(result, arguments), name)
