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

from typing import NamedTuple

from gpt2core.compile.bfloat16 import native
from gpt2core.compile.jit import kernel, pointer_i64
from gpt2core.compile.lanes import HALF_BYTES, LANES, WORD
from gpt2core.compile.later import Later, attributes
from gpt2core.compile.line import LINE_BYTES
from gpt2core.gemm.blocking import BLOCK, DEPTH, GROUP, PANEL, PANEL_ROW, VECTORS, blocking
from gpt2core.gemm.operands import COLUMNS_FROM, COLUMNS_TO, WHOLE, WORDS_FROM, WORDS_TO, Band, Operand, Out
from gpt2core.gemm.packing import group_words, pack_columns, pack_depth, pack_rows, pack_transposed, round_row
from gpt2core.gemm.register_tile import (
    ALONG_COLUMNS,
    ALONG_ROWS,
    AT_ONCE,
    ONE_ROW,
    PAIR_LINES,
    PANEL_LINES,
    REGISTER_ROWS,
    WITHIN_TILES,
    Ahead,
    Cells,
    Packs,
    Words,
    fetch_out,
    register_floats,
    register_halves,
    register_panels,
)
from gpt2core.gemm.words import fetch_row

TILE_ROWS, SEGMENTS = attributes(blocking, "rows", "packs_segments")
ROUNDS = Later(lambda: int(not native()))  # whether register tiles round, instead of multiplying pairs
LARGE = 1 << 17  # elements of a block of B from which on it is not expected in the caches, and C may be fetched
SMALL = 1 << 14  # elements of a transposed A up to which it is read as it lies: they stay in a near cache
FIRST_AT_ONCE, FIRST_AHEAD = 8, 32  # of a first panel: words packed at once, and rows that are fetched before them


@kernel
def place_lines(places, length, rows, size, stride):
    """Distribute the lines of `rows` rows of `size` bytes, `stride` bytes apart, evenly over `length` places, as byte
    offsets from the first row. Few prefetches are then in flight at a time, so that loads are not delayed.
    """
    to = pointer_i64(places)
    lines = rows * ((size + LINE_BYTES - 1) // LINE_BYTES)
    row, at, due = 0, 0, 0
    for t in range(length):
        to[t] = row + at
        due += lines
        while due >= length:
            due -= length
            at += LINE_BYTES
            if at >= size:
                row, at = row + stride, 0


@kernel
def pack_share(panel, b, ldb, depth, columns, pairs, rounded, half_b, begin, end):
    """Pack words [begin, end) of a panel's first `columns` columns from b (depth, columns), whose rows are ldb elements
    apart. panel and b are addresses.
    """
    step, row = 2 if pairs else 1, (HALF_BYTES if half_b else WORD) * ldb
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
    step, row_bytes = 2 if pairs else 1, (HALF_BYTES if half_b else WORD) * ldb
    for begin in range(0, length, FIRST_AT_ONCE):
        for row in range(begin * step, (begin + FIRST_AT_ONCE) * step):
            fetch_row(b + (row + FIRST_AHEAD) * row_bytes)
        pack_share(panel, b, ldb, depth, columns, pairs, rounded, half_b, begin, min(begin + FIRST_AT_ONCE, length))


@kernel
def rows_of_tile(left):
    """Rows of the next register tile, if so many are left."""
    for rows in TILE_ROWS:
        if left >= rows:
            return rows
    return 1


@kernel
def layout_of(rows, a_word):
    """How A's words lie in a register tile of some rows."""
    if rows == 1:
        return ONE_ROW
    return ALONG_ROWS if a_word == WORD else ALONG_COLUMNS


@kernel
def part_of_tile(band, i, rows, j, columns, length, pairs):
    """What a Band leaves of a register tile of rows [i, i + rows) and of the `columns` columns of a panel from j on:
    columns [left, right) of these, whole vectors, and words [first, last) of `length`.
    """
    low, high, step = i + band.shift, i + rows - 1 + band.shift, 2 if pairs else 1  # of its first and last row
    left, right, first, last = 0, columns, 0, length
    if band.kind == COLUMNS_TO:
        right = min(columns, (high - j + LANES) // LANES * LANES)
    elif band.kind == COLUMNS_FROM:
        left = max(0, (low - j) // LANES * LANES)
    elif band.kind == WORDS_TO:
        last = min(length, max(0, high // step + 1))
    elif band.kind == WORDS_FROM:
        first = min(length, max(0, low // step))
    return left, right, first, last


class Block(NamedTuple):
    """A block of A's words: its address, and the strides in bytes of rows, of words, and of GROUP rows."""

    at: int
    row: int
    word: int
    group: int


class Panels(NamedTuple):
    """Scratch: a panel, the next one, and the places of lines that are prefetched."""

    this: int
    next: int
    places: int


@kernel
def multiply_block(rows, depth, length, n, a, b, next_b, c, panels, pairs, rounded, band):
    """Compute C (rows, n) from a Block of A, of `length` words, and an Operand B (depth, n), panel by panel.

    While a panel is multiplied, the next one is packed: a share of its words with each register tile. The lines of a
    share are prefetched during the tile before, so that few prefetched lines are in the caches at a time. B's rows are
    some KB apart, and the lines of a whole panel would evict each other. What register_tile can pack of a share is
    packed during the tile, the rest after it. A transposed B of float32 is packed in shares only where the blocking
    packs segments, these are whole, and a tile has as many turns (with 96 rows or more). Otherwise a transposed B is
    packed as a whole with the last share, and its lines, which are consecutive, are prefetched during the panel before.
    During the last panel, the lines of the next block's first panel are prefetched, from next_b on.
    Register tiles that a Band leaves out are skipped, of others vectors and words outside it.

    If B is LARGE, and `c.fetches` is set or products are added, C's lines of a tile are fetched during the tile before,
    so that neither its loads nor its stores wait.
    """
    ldb, trans_b, half_b, c_row = b.length, b.transposed, b.halves, WORD * c.length
    panel, next_panel, places = panels
    tiles, step = max(1, rows // REGISTER_ROWS), 2 if pairs else 1
    share, share_rows = (length + tiles - 1) // tiles, (PANEL + tiles - 1) // tiles  # words; rows of a transposed B
    lines, large = length // AT_ONCE * (PAIR_LINES if pairs else 1), 1 if n * depth >= LARGE else 0
    size = HALF_BYTES if half_b else WORD  # bytes of an element of B
    word_b, column_b = step * size * (1 if trans_b else ldb), size * (ldb if trans_b else 1)  # bytes
    halves = 1 if pairs or (rounded and ROUNDS) else 0
    within = 1 if WITHIN_TILES and (halves or not rounded) else 0
    segments = (share + LANES - 1) // LANES * PANEL  # of a tile's share, a turn each
    whole = depth % (LANES * step) == 0 and segments <= length // AT_ONCE
    whole = whole and not rounded and not half_b and band.kind == WHOLE
    if not (SEGMENTS and within and trans_b and a.word == WORD and whole):
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
            rows_of, end = rows_of_tile(rows - i), min(begin + share, length) if j >= 0 else length
            lie = layout_of(rows_of, a.word)
            left, right, first, last = part_of_tile(band, i, rows_of, j, columns, length, pairs)
            if j >= 0 and left < right:
                if trans_b and not segments:
                    ahead = next_b if following >= n else b.at + following * column_b
                    ahead += share_rows * (i // REGISTER_ROWS) * column_b
                elif following >= n:
                    ahead = next_b + begin * word_b
                elif end < length:
                    ahead = b.at + end * word_b + following * column_b
                else:
                    ahead = b.at + (following + PANEL) * column_b
                x, y = a.at + i // GROUP * a.group + i % GROUP * a.row, c.at + i * c_row + WORD * (j + left)
                vectors = (right - left + LANES - 1) // LANES
                if large and (c.fetches or c.adds) and rows_of == REGISTER_ROWS:
                    fetch_out(y + rows_of * c_row if i + rows_of < rows else c.at + WORD * following, c_row)
                row_turns, other_turns, done = 0, 0, begin
                if within and rows_of == REGISTER_ROWS and vectors == VECTORS and following + PANEL <= n:
                    if segments:
                        other_turns, done = (end - begin) // LANES * PANEL, end
                    elif not trans_b and (lie == ALONG_COLUMNS or not half_b):
                        done = max(begin, min(end, depth // step, begin + (last - first) // AT_ONCE))
                        row_turns, other_turns = (0, done - begin) if half_b else (done - begin, 0)
                at_b, to = b.at + begin * word_b + following * column_b, next_panel + begin * PANEL_ROW
                words, cells = Words(x + first * a.word, a.row, a.word), Cells(y, c_row, right - left, c.adds)
                at_panel = panel + first * PANEL_ROW + WORD * left
                fetched, packs = Ahead(ahead, places), Packs(row_turns, other_turns, at_b, size * ldb, to)
                if halves:
                    register_halves(rows_of, lie, vectors, words, at_panel, last - first, cells, fetched, packs)
                else:
                    register_floats(rows_of, lie, vectors, words, at_panel, last - first, cells, fetched, packs)
                begin = done
            if following >= n:
                begin = end
            elif begin < end:
                right, at_b = min(PANEL, n - following), b.at + following * column_b
                if j < 0 and large and not trans_b:
                    pack_first(next_panel, at_b, ldb, depth, right, pairs, rounded, half_b, length)
                elif not trans_b:
                    pack_share(next_panel, at_b, ldb, depth, right, pairs, rounded, half_b, begin, end)
                elif end == length:
                    width = (right + LANES - 1) // LANES * LANES
                    pack_transposed(next_panel, at_b, ldb, depth, right, width, pairs, rounded, half_b)
                begin = end
            i += rows_of
        panel, next_panel = next_panel, panel


@kernel
def depth_of_parts(k, pairs):
    """Depth of the parts of a product, nearly equal, so that C is not read again for a short remainder."""
    most = 2 * DEPTH if pairs else DEPTH
    parts = (k + most - 1) // most
    return (k + 2 * parts - 1) // (2 * parts) * 2


@kernel
def multiply_panels(scratch, m, n, k, a, panels, c):
    """C (m, n) = A (m, k) @ B (k, n), or += if `c.adds` is set, from B's panels (packing.pack_panels): the bits of
    `multiply_packed`. For few rows of A, for which a panel would be packed in vain each time.

    While a tile is computed, lines of the next panel are prefetched, with some tiles all of them.
    """
    places = scratch + 2 * DEPTH * PANEL_ROW
    most, tiles = depth_of_parts(k, False), (m + REGISTER_ROWS - 1) // REGISTER_ROWS
    lines = most // AT_ONCE * PANEL_LINES
    share = min(lines, (most * PANEL_ROW // LINE_BYTES + tiles - 1) // tiles) * LINE_BYTES
    place_lines(places, lines, 1, share, 0)
    for k0 in range(0, k, most):
        depth = min(most, k - k0)
        for j in range(0, n, PANEL):
            columns, panel, i = min(PANEL, n - j), panels + WORD * j * k + k0 * PANEL_ROW, 0
            vectors, ahead = (columns + LANES - 1) // LANES, panel + WORD * PANEL * k
            while i < m:
                rows = rows_of_tile(m - i)
                words = Words(a.at + WORD * (i * a.length + k0), WORD * a.length, WORD)
                at_c, adds = c.at + WORD * (i * c.length + j), 1 if c.adds or k0 else 0
                register_panels(
                    rows, layout_of(rows, WORD), vectors, words, panel, depth,
                    Cells(at_c, WORD * c.length, columns, adds), Ahead(ahead, places), Packs(0, 0, 0, 0, 0),
                )  # fmt: skip
                ahead += share
                i += rows


@kernel
def multiply_packed(pairs, rounded, scratch, m, n, k, a, b, c, band):
    """C (m, n) = A (m, k) @ B (k, n), or += if `c.adds` is set; see gemm.operands.

    `pairs` (needs AVX512-BF16) and `rounded` (on any processor) round the operands to bfloat16; only then may they be
    bfloat16 in memory, see gemm.multiply. scratch is the address, a multiple of 64, of PRODUCT_SCRATCH words that no
    other thread uses.
    """
    lda, trans_a, half_a = a.length, a.transposed, a.halves
    ldb, trans_b, half_b, ldc = b.length, b.transposed, b.halves, c.length
    panel, next_panel = scratch, scratch + DEPTH * PANEL_ROW
    places = next_panel + DEPTH * PANEL_ROW
    words = places + 2 * WORD * DEPTH
    most = depth_of_parts(k, pairs)
    size_a, size_b = HALF_BYTES if half_a else WORD, HALF_BYTES if half_b else WORD
    for k0 in range(0, k, most):
        depth = min(most, k - k0)
        length = (depth + 1) // 2 if pairs else depth
        block = BLOCK // group_words(length) * GROUP
        for m0 in range(0, m, block):
            rows = min(block, m - m0)
            at_a, a_row, a_word, a_group = words, WORD * length, WORD, GROUP * WORD * length
            source = a.at + size_a * (k0 * lda + m0 if trans_a else m0 * lda + k0)
            if trans_a and not pairs and not rounded and lda * depth <= SMALL:
                at_a, a_row, a_word, a_group = source, WORD, WORD * lda, WORD * GROUP
            elif trans_a:
                a_row, a_word, a_group = WORD, GROUP * WORD, WORD * group_words(length)
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
                at_a, a_row, a_group = source, size_a * lda, GROUP * size_a * lda
            b_word, next_k = size_b * (1 if trans_b else ldb), k0 if m0 + block < m else k0 + depth
            next_b = b.at + next_k * b_word
            if next_k == k:  # the columns behind these: often the next product's
                next_b = b.at + size_b * n * (ldb if trans_b else 1)
            moved = m0 if band.kind in (COLUMNS_TO, COLUMNS_FROM) else m0 - k0
            multiply_block(
                rows, depth, length, n, Block(at_a, a_row, a_word, a_group),
                Operand(b.at + k0 * b_word, ldb, trans_b, half_b), next_b,
                Out(c.at + WORD * m0 * ldc, ldc, 1 if c.adds or k0 else 0, c.fetches),
                Panels(panel, next_panel, places), pairs, rounded, Band(band.kind, band.shift + moved),
            )  # fmt: skip
