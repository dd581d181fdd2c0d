"""Our own matrix product: C (m, n) float32, from operands as float32 or rounded to bfloat16.

B is packed into panels of PANEL columns: one word (gemm.packing) of each column, then the next word of each, with zeros
after the end of the matrix. So a register tile, REGISTER_ROWS by PANEL of C, stays in vector registers while it reads
one stream of whole vectors of B and broadcasts single words of A. A panel is used by all rows of A while it is in the
core's cache (Goto & van de Geijn 2008; Van Zee & van de Geijn 2015).

On x86-64 with AVX512-BF16 words are pairs of bfloat16, each one lane of VDPBF16PS; elsewhere operands are rounded to
bfloat16 and multiplied as float32. All other code is generic vector code for LLVM. Where a process may use the tile
registers of AMX, bfloat16 is multiplied there (gemm.tiles).
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from gpt2core.compile import lanes, llvm
from gpt2core.compile.jit import intrinsic, kernel, pointer_i64, types
from gpt2core.compile.lanes import FLOATS, HALF, LANES, LINE, WORD, WORDS
from gpt2core.compile.llvm import I32, I64
from gpt2core.compile.target import FEATURES, ZEN4
from gpt2core.gemm.packing import (
    DOT_BF16,
    PANEL_ROW,
    fetch_row,
    pack_columns,
    pack_depth,
    pack_rows,
    pack_transposed,
    round_row,
    words_along,
    words_of,
)
from gpt2core.gemm.sizes import PANEL, PRODUCT_BLOCK, PRODUCT_DEPTH

REGISTER_ROWS = 8 if "avx512f" in FEATURES else 2  # rows of C in registers
INSTRUCTIONS = {"fp32": "avx512" if REGISTER_ROWS == 8 else "generic"}
INSTRUCTIONS["rounded"] = f"{INSTRUCTIONS['fp32']}, rounded"
INSTRUCTIONS["bf16"] = "avx512-bf16" if DOT_BF16 else INSTRUCTIONS["rounded"]
ZERO64, PLACE = ir.Constant(I64, 0), 8  # bytes
VECTORS = PANEL // LANES
FROM_BASE = 4  # rows addressed from one base; there are not enough registers for eight
ONE_ROW, ALONG_ROWS, ALONG_COLUMNS = range(3)  # layouts of A's words in a register tile
AT_ONCE = 4  # words per turn of the inner loop
LARGE = 1 << 17  # elements of a block of B from which on it is not expected in the caches, and C may be fetched
FIRST_AT_ONCE, FIRST_AHEAD = 8, 32  # of a first panel: words packed at once, and rows that are fetched before them
FLOAT_ROWS, HALF_ROWS, SEGMENTS = 1, 2, 3  # what a register tile packs of B meanwhile
PAIR_LINES = 2  # lines fetched in a turn with pairs; one with floats, whose panel has half as many lines of B
SEGMENT_AT = PLACE * PRODUCT_DEPTH // AT_ONCE * PAIR_LINES  # bytes from the first place: a line behind the last one
assert SEGMENT_AT + LINE <= 2 * WORD * PRODUCT_DEPTH  # the scratch of places
WITHIN_TILES = REGISTER_ROWS == 8  # other tiles leave too few registers to pack meanwhile


def register_tile(pairs: bool) -> Any:
    """An intrinsic (rows_of, vectors, a, a_row, a_word, panel, length, c, c_row, columns, adds, ahead, places,
    row_turns, other_turns, b, b_row, to).

    It computes some rows of C in the first `columns` columns of a panel, which are in its first `vectors` vectors, from
    `length` words of A and of the panel. It adds them to C if `adds` is set, and overwrites C otherwise. For every
    AT_ONCE words it prefetches one line (PAIR_LINES with pairs), at `ahead` + the next of `places` (int64, bytes),
    mapped or not. A turn is AT_ONCE words.

    rows_of        rows           layout of A's words
    ONE_ROW        1              any
    ALONG_ROWS     REGISTER_ROWS  the words of a row are consecutive: a_word is WORD
    ALONG_COLUMNS  REGISTER_ROWS  the words of LANES rows are side by side: a_row is WORD

    Meanwhile it packs words for another panel, of PANEL columns, from b on to `to`, if this one has PANEL columns too:
    a row of words of float32 in each of its first `row_turns` turns, or something else in each of its first
    `other_turns` turns (one of the two is 0). All that is packed must exist.

    rows_of        what else
    ALONG_ROWS     a segment of a transposed B of float32: LANES words of a column, then those of the next one, and
                   after PANEL columns the following words; only on Zen 4, by way of a line at places + SEGMENT_AT
    ALONG_COLUMNS  a row of words of bfloat16; only with pairs

    a, panel, c, ahead, places, b and to are addresses, panel, places and to multiples of 64. a_row, a_word, c_row and
    b_row are strides in bytes.
    """

    @intrinsic
    def tile(
        typingctx, rows_of, vectors, a, a_row, a_word, panel, length, c, c_row, columns, adds, ahead, places, row_turns,
        other_turns, b, b_row, to,
    ):  # fmt: skip
        def codegen(context, builder, signature, args):
            rows_of, vectors, *rest = args
            done = builder.append_basic_block("done")
            kinds = [(lie, width) for lie in (ONE_ROW, ALONG_ROWS, ALONG_COLUMNS) for width in range(1, VECTORS + 1)]
            number = builder.add(builder.mul(rows_of, ir.Constant(I64, VECTORS)), vectors)
            choice = builder.switch(number, done)
            for value, (lie, width) in enumerate(kinds, start=1):
                block = builder.append_basic_block(f"tile_{lie}x{width}")
                choice.add_case(ir.Constant(I64, value), block)
                builder.position_at_end(block)
                _register_tile(builder, lie, width, pairs, *rest)
                builder.branch(done)
            builder.position_at_end(done)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 18), codegen

    return tile


def _register_tile(
    builder, lie, vectors, pairs, a, a_row, a_word, panel, length, c, c_row, columns, adds, ahead, places, row_turns,
    other_turns, b, b_row, to,
):  # fmt: skip
    """Emit the code of a register tile `vectors` vectors wide. Strides known from `lie` are constants in its loop."""
    rows = 1 if lie == ONE_ROW else REGISTER_ROWS
    if lie == ALONG_COLUMNS:
        a_word, offsets = ir.Constant(I64, LANES * WORD), [ir.Constant(I64, WORD * i) for i in range(rows)]
    else:
        a_word = ir.Constant(I64, WORD) if lie == ALONG_ROWS else a_word
        offsets = [lanes.opaque(builder, builder.mul(a_row, ir.Constant(I64, i))) for i in range(rows)]
    outs = [builder.add(c, builder.mul(c_row, ir.Constant(I64, i))) for i in range(rows)]
    cells = [(i, v) for i in range(rows) for v in range(vectors)]
    masks = [lanes.mask(builder, columns, v) for v in range(vectors)]
    begin, old, new = builder.block, builder.append_basic_block("old"), builder.append_basic_block("new")
    builder.cbranch(builder.icmp_signed("!=", adds, ZERO64), old, new)

    builder.position_at_end(old)
    there = {(i, v): lanes.masked_load(builder, outs[i], v, masks[v]) for i, v in cells}
    builder.branch(new)

    builder.position_at_end(new)
    sums = {cell: builder.phi(FLOATS) for cell in cells}
    for cell, phi in sums.items():
        phi.add_incoming(ir.Constant(FLOATS, [0.0] * LANES), begin)
        phi.add_incoming(there[cell], old)

    def add_word(sums, at_a, at_b):
        """Add one word's products to the sums."""
        b = [lanes.load(builder, at_b, WORDS, v * LANES * WORD) for v in range(vectors)]
        bases = [at_a, builder.add(at_a, offsets[FROM_BASE])] if rows > FROM_BASE else [at_a]
        for i in range(rows):
            place = builder.add(bases[i // FROM_BASE], offsets[i % FROM_BASE])
            word = lanes.splat(builder, lanes.load(builder, place, I32, 0, align=WORD))
            sums = {**sums, **{(i, v): _add_product(builder, pairs, sums[i, v], word, b[v]) for v in range(vectors)}}
        return sums

    stages = [(AT_ONCE, length, None), (1, length, None)]  # words in a turn, until which word, what it packs
    if WITHIN_TILES and lie != ONE_ROW and vectors == VECTORS:
        until = [builder.mul(turns, ir.Constant(I64, AT_ONCE)) for turns in (row_turns, other_turns)]
        stages.insert(0, (AT_ONCE, until[0], FLOAT_ROWS))
        if lie == ALONG_ROWS and ZEN4:
            stages.insert(1, (AT_ONCE, until[1], SEGMENTS))
        elif lie == ALONG_COLUMNS and pairs:
            stages.insert(1, (AT_ONCE, until[1], HALF_ROWS))

    k, at_a, at_b = ZERO64, a, panel
    for step, until, packs in stages:
        before, last = builder.block, builder.sub(until, ir.Constant(I64, step))
        head, body, end = (builder.append_basic_block(name) for name in ("words", "products", "end"))
        builder.branch(head)
        builder.position_at_end(head)
        state = {"k": k, "at_a": at_a, "at_b": at_b, **sums, **({"b": b, "to": to} if packs else {})}
        state |= {"left": ir.Constant(I64, PANEL)} if packs == SEGMENTS else {}  # columns without these words
        phis = {name: builder.phi(value.type) for name, value in state.items()}
        for name, phi in phis.items():
            phi.add_incoming(state[name], before)
        builder.cbranch(builder.icmp_signed("<=", phis["k"], last), body, end)

        builder.position_at_end(body)
        lines = PAIR_LINES if pairs else 1
        place = builder.add(places, builder.mul(phis["k"], ir.Constant(I64, lines * PLACE // AT_ONCE)))
        at_a, at_b, total = phis["at_a"], phis["at_b"], {cell: phis[cell] for cell in cells}
        for word in range(step):
            if step == AT_ONCE and word * lines % AT_ONCE == 0:
                offset = lanes.load(builder, place, I64, word * lines // AT_ONCE * PLACE, align=PLACE)
                lanes.prefetch(builder, builder.add(ahead, offset))
            if packs == SEGMENTS:
                if word == 0:
                    line = lanes.opaque(builder, builder.add(places, ir.Constant(I64, SEGMENT_AT)))
                    lanes.store(builder, words_along(builder, pairs, phis["b"]), line, 0)
                    line = lanes.opaque(builder, line)  # words are loaded again, not taken out of the vector
                for w in range(word * LANES // AT_ONCE, (word + 1) * LANES // AT_ONCE):
                    copied = lanes.load(builder, line, I32, w * WORD, align=WORD)
                    lanes.store(builder, copied, phis["to"], w * PANEL_ROW, align=WORD)
            elif packs and word < VECTORS:
                next_row = builder.add(phis["b"], b_row)
                words = words_of(builder, pairs, packs == HALF_ROWS, phis["b"], next_row, word)
                lanes.store(builder, words, phis["to"], word * LANES * WORD)
            total = add_word(total, at_a, at_b)
            if packs == SEGMENTS:  # otherwise LLVM would do the products of all words after all loads
                total = {cell: lanes.fixed(builder, each) for cell, each in total.items()}
            at_a, at_b = builder.add(at_a, a_word), builder.add(at_b, ir.Constant(I64, PANEL_ROW))
        following = builder.add(phis["k"], ir.Constant(I64, step))
        state = {"k": following, "at_a": at_a, "at_b": at_b, **total}
        if packs == SEGMENTS:
            state |= _next_segment(builder, pairs, b_row, **{name: phis[name] for name in ("b", "to", "left")})
        elif packs:
            state["b"] = builder.add(phis["b"], builder.mul(b_row, ir.Constant(I64, 2 if pairs else 1)))
            state["to"] = builder.add(phis["to"], ir.Constant(I64, PANEL_ROW))
        for name, value in state.items():
            phis[name].add_incoming(value, builder.block)
        builder.branch(head)

        builder.position_at_end(end)
        k, at_a, at_b, sums = phis["k"], phis["at_a"], phis["at_b"], {cell: phis[cell] for cell in cells}

    for i, v in cells:
        lanes.masked_store(builder, sums[i, v], outs[i], v, masks[v])


def _next_segment(builder, pairs, b_row, b, to, left):
    """The next column's words, or after PANEL columns the first one's following words."""
    after, back = LANES * WORD * (2 if pairs else 1), builder.mul(b_row, ir.Constant(I64, PANEL - 1))
    left = builder.sub(left, ir.Constant(I64, 1))
    last = builder.icmp_signed("==", left, ZERO64)
    down = ir.Constant(I64, LANES * PANEL_ROW - (PANEL - 1) * WORD)
    return {
        "b": builder.add(b, builder.select(last, builder.sub(ir.Constant(I64, after), back), b_row)),
        "to": builder.add(to, builder.select(last, down, ir.Constant(I64, WORD))),
        "left": builder.select(last, ir.Constant(I64, PANEL), left),
    }


def _add_product(builder, pairs, total, a, b):
    """total + a * b in each lane, or the two products of a pair."""
    if pairs:
        return llvm.call(builder, "llvm.x86.avx512bf16.dpbf16ps.512", FLOATS, [total, a, b])
    product = builder.fmul(builder.bitcast(a, FLOATS), builder.bitcast(b, FLOATS), flags=("contract",))
    return builder.fadd(total, product, flags=("contract",))


register_floats = register_tile(pairs=False)
register_pairs = (
    register_tile(pairs=True) if DOT_BF16 else register_floats
)  # on other processors no product uses pairs


@intrinsic
def fetch_out(typingctx, c, c_row):
    """Fetch the lines of a register tile of C for writing, mapped or not. c is an address, c_row in bytes."""

    def codegen(context, builder, signature, args):
        for i in range(REGISTER_ROWS):
            row = builder.add(args[0], builder.mul(args[1], ir.Constant(I64, i)))
            for v in range(VECTORS):
                lanes.prefetch(builder, builder.add(row, ir.Constant(I64, v * LINE)), to_write=True)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@kernel
def place_lines(places, length, rows, size, stride):
    """Distribute the lines of `rows` rows of `size` bytes, `stride` bytes apart, evenly over `length` places, as byte
    offsets from the first row. Few prefetches are then in flight at a time, so that loads are not delayed.
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
def pack_share(panel, b, ldb, depth, columns, pairs, rounded, half_b, begin, end):
    """Pack words [begin, end) of a panel's first `columns` columns from b (depth, columns), whose rows are ldb elements
    apart. panel and b are addresses.
    """
    step, row = 2 if pairs else 1, (HALF if half_b else WORD) * ldb
    to, source, rows = panel + begin * PANEL_ROW, b + begin * step * row, min(depth, end * step) - begin * step
    if columns == PANEL and half_b:  # as constants: the inner loop is unrolled
        pack_depth(to, PANEL_ROW, source, ldb, rows, PANEL, PANEL, pairs, rounded, True)
    elif columns == PANEL:
        pack_depth(to, PANEL_ROW, source, ldb, rows, PANEL, PANEL, pairs, rounded, False)
    else:
        width = (columns + LANES - 1) // LANES * LANES
        pack_depth(to, PANEL_ROW, source, ldb, rows, columns, width, pairs, rounded, half_b)


@kernel
def pack_first(panel, b, ldb, depth, columns, pairs, rounded, half_b, length):
    """Pack all words of a panel. The rows of b are some KB apart, too far for the processor to prefetch by itself, so
    each is fetched FIRST_AHEAD rows before it is packed.
    """
    step, row_bytes = 2 if pairs else 1, (HALF if half_b else WORD) * ldb
    for begin in range(0, length, FIRST_AT_ONCE):
        for row in range(begin * step, (begin + FIRST_AT_ONCE) * step):
            fetch_row(b + (row + FIRST_AHEAD) * row_bytes)
        pack_share(panel, b, ldb, depth, columns, pairs, rounded, half_b, begin, min(begin + FIRST_AT_ONCE, length))


@kernel
def multiply_block(
    a, a_row, a_word, a_group, rows, b, next_b, ldb, trans_b, depth, length, n, c, c_row, adds, panel, next_panel,
    places, pairs, rounded, half_b, fetches
):  # fmt: skip
    """Compute C (rows, n) from a block of A's words and op(B) (depth, n), panel by panel. c_row and A's strides are in
    bytes; a_group is that of LANES rows. A transposed B is float32.

    While a panel is multiplied, the next one is packed: a share of its words with each register tile. The lines of a
    share are prefetched during the tile before, so that few prefetched lines are in the caches at a time. B's rows are
    some KB apart, and the lines of a whole panel would evict each other. What register_tile can pack of a share is
    packed during the tile, the rest after it. A transposed B is packed in shares only where these are whole segments,
    and a tile has as many turns (on Zen 4, with 96 rows or more). Otherwise it is packed as a whole with the last
    share, and its lines, which are consecutive, are prefetched during the panel before. During the last panel, the
    lines of the next block's first panel are prefetched, from next_b on.

    If `fetches` is set and B is LARGE, C's lines are fetched before a tile of REGISTER_ROWS rows, so that its stores do
    not wait.
    """
    tiles, step = max(1, rows // REGISTER_ROWS), 2 if pairs else 1
    share, share_rows = (length + tiles - 1) // tiles, (PANEL + tiles - 1) // tiles  # words; rows of a transposed B
    lines, large = length // AT_ONCE * (PAIR_LINES if pairs else 1), 1 if n * depth >= LARGE else 0
    size = HALF if half_b else WORD  # bytes of an element of B
    word_b, column_b = step * size * (1 if trans_b else ldb), size * (ldb if trans_b else 1)  # bytes
    within = 1 if WITHIN_TILES and (pairs or not rounded) else 0
    segments = (share + LANES - 1) // LANES * PANEL  # of a tile's share, a turn each
    if not (ZEN4 and within and trans_b and a_word == WORD) or depth % (LANES * step) or segments > length // AT_ONCE:
        segments = 0
    if segments:
        share = segments // PANEL * LANES
        place_lines(places, lines, PANEL, share * word_b, column_b)
    elif trans_b:
        place_lines(places, lines, share_rows, size * depth, column_b)
    else:
        place_lines(places, lines, share * step, size * PANEL, size * ldb)
    for j in range(-PANEL, n, PANEL):  # at first, a panel is packed only, and at once
        columns, following, begin, i = min(PANEL, n - j), j + PANEL, 0, 0
        while i < rows:
            rows_of, end = ONE_ROW, min(begin + share, length) if j >= 0 else length
            if i + REGISTER_ROWS <= rows:
                rows_of = ALONG_ROWS if a_word == WORD else ALONG_COLUMNS
            if j >= 0:
                if trans_b and not segments:
                    ahead = next_b if following >= n else b + following * column_b
                    ahead += share_rows * (i // REGISTER_ROWS) * column_b
                elif following >= n:
                    ahead = next_b + begin * word_b
                elif end < length:
                    ahead = b + end * word_b + following * column_b
                else:
                    ahead = b + (following + PANEL) * column_b
                x, y = a + i // LANES * a_group + i % LANES * a_row, c + i * c_row + WORD * j
                vectors = (columns + LANES - 1) // LANES
                if large and fetches and rows_of != ONE_ROW:
                    fetch_out(y, c_row)
                row_turns, other_turns, done = 0, 0, begin
                if within and rows_of != ONE_ROW and following + PANEL <= n:
                    if segments:
                        other_turns, done = (end - begin) // LANES * PANEL, end
                    elif not trans_b and (rows_of == ALONG_COLUMNS or not half_b):
                        done = max(begin, min(end, depth // step, begin + length // AT_ONCE))
                        row_turns, other_turns = (0, done - begin) if half_b else (done - begin, 0)
                at_b, to = b + begin * word_b + following * column_b, next_panel + begin * PANEL_ROW
                if pairs:
                    register_pairs(
                        rows_of, vectors, x, a_row, a_word, panel, length, y, c_row, columns, adds, ahead, places,
                        row_turns, other_turns, at_b, size * ldb, to,
                    )  # fmt: skip
                else:
                    register_floats(
                        rows_of, vectors, x, a_row, a_word, panel, length, y, c_row, columns, adds, ahead, places,
                        row_turns, other_turns, at_b, size * ldb, to,
                    )  # fmt: skip
                begin = done
            if following >= n:
                begin = end
            elif begin < end:
                right, at_b = min(PANEL, n - following), b + following * column_b
                if j < 0 and large and not trans_b:
                    pack_first(next_panel, at_b, ldb, depth, right, pairs, rounded, half_b, length)
                elif not trans_b:
                    pack_share(next_panel, at_b, ldb, depth, right, pairs, rounded, half_b, begin, end)
                elif end == length:
                    width = (right + LANES - 1) // LANES * LANES
                    pack_transposed(next_panel, at_b, ldb, depth, right, width, pairs, rounded)
                begin = end
            i += 1 if rows_of == ONE_ROW else REGISTER_ROWS
        panel, next_panel = next_panel, panel


@kernel
def multiply_packed(
    pairs, rounded, scratch, half_a, half_b, trans_a, trans_b, m, n, k, a, lda, b, ldb, c, ldc, adds, fetches
):  # fmt: skip
    """C (m, n) = op(A) (m, k) @ op(B) (k, n), or += if `adds` is set; row-major, op transposes if its flag is set.

    `pairs` (needs AVX512-BF16) and `rounded` (on any processor) round the operands to bfloat16; only then may they be
    bfloat16 in memory, see gemm.multiply. a, b, c are addresses; ld* are row lengths in elements. scratch is the
    address, a multiple of 64, of PRODUCT_SCRATCH words that no other thread uses. `fetches`: see multiply_block.
    """
    panel, next_panel = scratch, scratch + PRODUCT_DEPTH * PANEL_ROW
    places = next_panel + PRODUCT_DEPTH * PANEL_ROW
    words = places + 2 * WORD * PRODUCT_DEPTH
    most = 2 * PRODUCT_DEPTH if pairs else PRODUCT_DEPTH
    parts = (k + most - 1) // most  # nearly equal, so that C is not read again for a short remainder
    most = (k + 2 * parts - 1) // (2 * parts) * 2
    size_a, size_b = HALF if half_a else WORD, HALF if half_b else WORD
    for k0 in range(0, k, most):
        depth = min(most, k - k0)
        length = (depth + 1) // 2 if pairs else depth
        block = PRODUCT_BLOCK // length // LANES * LANES
        for m0 in range(0, m, block):
            rows = min(block, m - m0)
            at_a, a_row, a_word, a_group = words, WORD * length, WORD, LANES * WORD * length
            source = a + size_a * (k0 * lda + m0 if trans_a else m0 * lda + k0)
            if trans_a:
                a_row, a_word = WORD, LANES * WORD
                if half_a:
                    pack_columns(words, length, source, lda, depth, rows, pairs, rounded, True)
                else:
                    pack_columns(words, length, source, lda, depth, rows, pairs, rounded, False)
            elif pairs and not half_a:
                pack_rows(words, source, lda, rows, depth, False)
            elif pairs and (lda % 2 or depth % 2):  # rows are not whole pairs
                pack_rows(words, source, lda, rows, depth, True)
            elif rounded:
                for i in range(rows):
                    round_row(words + i * a_row, source + size_a * i * lda, depth, half_a)
            else:  # rows of float32, or of whole pairs of bfloat16
                at_a, a_row, a_group = source, size_a * lda, LANES * size_a * lda
            b_word, next_k = size_b * (1 if trans_b else ldb), k0 if m0 + block < m else k0 + depth
            next_b = b + next_k * b_word
            if next_k == k:  # the columns behind these: often the next product's
                next_b = b + size_b * n * (ldb if trans_b else 1)
            multiply_block(
                at_a, a_row, a_word, a_group, rows, b + k0 * b_word, next_b, ldb, trans_b, depth, length,
                n, c + WORD * m0 * ldc, WORD * ldc, 1 if adds or k0 else 0, panel, next_panel, places, pairs, rounded,
                half_b, fetches,
            )  # fmt: skip
