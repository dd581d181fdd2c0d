"""Packs matrices into the words (gemm/words.py) that our own product multiplies."""

import numpy as np

from gpt2core.compile.bfloat16 import nearest, whole
from gpt2core.compile.jit import kernel, pointer_f32, pointer_i32, pointer_u16
from gpt2core.compile.lanes import HALF_BYTES, LANES, WORD
from gpt2core.compile.later import Later
from gpt2core.gemm.blocking import GROUP, PANEL, PANEL_ROW, blocking
from gpt2core.gemm.words import (
    copy_line,
    fetch_row,
    pack_line,
    pack_square,
    pack_square_of_halves,
    pack_whole_line,
    pack_whole_line_of_halves,
    pack_words,
    pair,
    round_line,
    transpose_floats,
    transpose_half_pairs,
    transpose_halves,
    transpose_pairs,
    transpose_rounded,
    transpose_square,
    widen_line,
)

TOGETHER = Later(lambda: 128 // blocking().group * blocking().group)  # columns
ZERO, AHEAD = np.float32(0.0), 8  # rows


@kernel
def round_row(to, source, count, halves):
    """Round `count` elements to bfloat16, as float32."""
    whole = count - count % LANES
    for i in range(0, whole, LANES):  # LANES as a count: masks that the compiler drops
        if halves:
            widen_line(source + HALF_BYTES * i, LANES, to + WORD * i)
        else:
            round_line(source + WORD * i, LANES, to + WORD * i)
    if whole < count and halves:
        widen_line(source + HALF_BYTES * whole, count - whole, to + WORD * whole)
    elif whole < count:
        round_line(source + WORD * whole, count - whole, to + WORD * whole)


@kernel
def pack_rows(words, source, stride, count, depth, halves):
    """Pack the first `depth` elements of `count` rows, `stride` elements apart, as pairs (count, (depth + 1) // 2)."""
    length, size = (depth + 1) // 2, HALF_BYTES if halves else WORD
    for i in range(count):
        row, to = source + size * i * stride, words + WORD * i * length
        for p in range(0, depth, 2 * LANES):
            if halves:
                copy_line(row + size * p, depth - p, to + WORD * (p // 2))
            else:
                pack_line(row + size * p, depth - p, to + WORD * (p // 2))


@kernel
def pack_for_tiles(words, words_row, source, stride, transposed, count, depth, halves):
    """Pack (count, depth), which may be stored transposed, as rows of pairs for tile registers, words_row bytes apart.
    Rows of words end with zeros up to a multiple of LANES; rows up to a multiple of LANES are undefined.
    """
    size = HALF_BYTES if halves else WORD
    for i in range(0, count, LANES if transposed else 1):
        for p in range(0, depth, 2 * LANES):
            to = words + i * words_row + WORD * (p // 2)
            if transposed:
                at = source + size * (p * stride + i)
                if halves:
                    pack_square_of_halves(at, size * stride, depth - p, count - i, to, words_row)
                else:
                    pack_square(at, size * stride, depth - p, count - i, to, words_row)
            elif halves:
                pack_whole_line_of_halves(source + size * (i * stride + p), depth - p, to)
            else:
                pack_whole_line(source + size * (i * stride + p), depth - p, to)


@kernel
def clear_words(panel, begin, end):
    """Zeros as words [begin, end) of a panel's columns."""
    words = pointer_i32(panel)
    for i in range(begin * PANEL, end * PANEL):
        words[i] = 0


@kernel
def pack_depth(words, words_row, source, stride, depth, count, width, pairs, rounded, halves):
    """Pack (depth, count) along its rows: a row of words from each row, or from two, with zeros up to `width`, a
    multiple of LANES.

    words_row in bytes; rows of the source are `stride` elements apart.
    """
    whole, size = count - count % LANES, HALF_BYTES if halves else WORD
    step = 2 if pairs else 1
    for p in range(0, depth, step):
        low, to = source + size * p * stride, words + p // step * words_row
        high = low + size * stride
        if p + step <= depth:
            for i in range(0, whole, LANES):  # LANES as counts: masks that the compiler drops
                pack_words(low + size * i, LANES, high + size * i, LANES, to + WORD * i, pairs, rounded, halves)
            first, there = whole, count
        else:
            first, there = 0, 0
        for i in range(first, width, LANES):
            pack_words(low + size * i, count - i, high + size * i, there - i, to + WORD * i, pairs, rounded, halves)


@kernel
def group_words(length):
    """Words from one group of columns, each `length` words long, to the next. Its last vector reaches behind it."""
    return GROUP * length + LANES - GROUP


@kernel
def pack_columns(words, length, source, stride, depth, count, pairs, rounded, halves):
    """Pack (depth, count) as groups of GROUP columns, each `length` rows of words, `group_words` apart. What is behind
    the last column is undefined. Up to TOGETHER columns are packed together: so whole stretches of the source's rows,
    which lie some KB apart, are read at once. They are too far apart for the processor to prefetch by itself, so each
    is fetched AHEAD rows before it is packed.
    """
    step, size = 2 if pairs else 1, HALF_BYTES if halves else WORD
    group = group_words(length)
    for first in range(0, count, TOGETHER):
        last = min(count, first + TOGETHER)
        for p in range(0, depth, step):
            whole = p + step <= depth
            for ahead in range(p + AHEAD, p + AHEAD + step):
                for i in range(first, last, PANEL):
                    fetch_row(source + size * (ahead * stride + i))
            for i in range(first, last, GROUP):
                low, to = source + size * (p * stride + i), words + WORD * (i // GROUP * group + p // step * GROUP)
                high, left = low + size * stride, count - i
                if whole and left >= LANES:  # LANES as counts: masks that the compiler drops
                    pack_words(low, LANES, high, LANES, to, pairs, rounded, halves)
                else:
                    pack_words(low, left, high, left if whole else 0, to, pairs, rounded, halves)


@kernel
def pack_transposed(panel, source, stride, depth, count, width, pairs, rounded, halves):
    """Pack (count, depth) into a panel's first `width` columns, a multiple of LANES: rows become columns, then zeros.

    Rows of the source are `stride` elements apart. Halves become pairs, or words that need no rounding.
    """
    length = (depth + 1) // 2 if pairs else depth
    squares = count - count % LANES
    blocks = (depth // 2 if pairs else depth) // LANES
    size = HALF_BYTES if halves else WORD
    for i in range(0, squares, LANES):
        at, to = source + size * i * stride, panel + WORD * i
        for _ in range(blocks):
            if pairs and halves:
                transpose_half_pairs(at, HALF_BYTES * stride, to)
                at += 2 * LANES * HALF_BYTES
            elif halves:
                transpose_halves(at, HALF_BYTES * stride, to)
                at += LANES * HALF_BYTES
            elif pairs:
                transpose_pairs(at, WORD * stride, to)
                at += 2 * LANES * WORD
            elif rounded:
                transpose_rounded(at, WORD * stride, to)
                at += LANES * WORD
            else:
                transpose_floats(at, WORD * stride, to)
                at += LANES * WORD
            to += LANES * PANEL_ROW
    for i in range(width):
        row, half_row = pointer_f32(source + WORD * i * stride), pointer_u16(source + HALF_BYTES * i * stride)
        for p in range(blocks * LANES if i < squares else 0, length):
            words, floats = pointer_i32(panel + p * PANEL_ROW), pointer_f32(panel + p * PANEL_ROW)
            if i >= count:
                words[i] = 0
            elif halves and not pairs:
                floats[i] = whole(half_row[p])
            elif halves:
                high = whole(half_row[2 * p + 1]) if 2 * p + 1 < depth else ZERO
                words[i] = pair(whole(half_row[2 * p]), high)
            elif rounded:
                floats[i] = nearest(row[p])
            elif not pairs:
                floats[i] = row[p]
            elif 2 * p + 1 < depth:
                words[i] = pair(row[2 * p], row[2 * p + 1])
            else:
                words[i] = pair(row[2 * p], 0.0)


@kernel
def pack_lanes(panel, source, stride, depth, count):
    """Pack (count, depth), at most LANES rows `stride` elements apart, as (depth, LANES): rows become columns, then
    zeros."""
    squares = depth - depth % LANES if count == LANES else 0
    for p in range(0, squares, LANES):
        transpose_square(source + WORD * p, WORD * stride, panel + WORD * LANES * p)
    for i in range(LANES):
        row = pointer_f32(source + WORD * i * stride)
        for p in range(squares, depth):
            pointer_f32(panel + WORD * LANES * p)[i] = row[p] if i < count else ZERO


@kernel
def pack_panels(panels, b, ldb, trans_b, k, begin, end):
    """Pack columns [begin, end) of op(B) (k, n), float32, for microkernel.multiply_panels; begin is a multiple of
    sizes.PANEL. Column j's panel is j * k words behind the first one. Addresses, that of panels a
    multiple of 64; ldb in elements.
    """
    for j in range(begin, end, PANEL):
        to, columns = panels + WORD * j * k, min(PANEL, end - j)
        width = (columns + LANES - 1) // LANES * LANES
        if trans_b:
            pack_transposed(to, b + WORD * j * ldb, ldb, k, columns, width, False, False, False)
        else:
            pack_depth(to, PANEL_ROW, b + WORD * j, ldb, k, columns, width, False, False, False)
