"""The register tile of our own matrix product: some rows of C by one panel of B, kept in vector registers. Meanwhile it
prefetches lines, and packs words of another panel.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir

from gpt2core.compile import lanes, llvm
from gpt2core.compile.bfloat16 import native, rounded_words
from gpt2core.compile.jit import cgutils, intrinsic, types
from gpt2core.compile.lanes import FLOATS, LANES, WORD, WORDS
from gpt2core.compile.later import Later, attributes
from gpt2core.compile.line import LINE_BYTES
from gpt2core.compile.llvm import I32, I64
from gpt2core.gemm.blocking import PANEL, PANEL_ROW, VECTORS, blocking
from gpt2core.gemm.words import words_along, words_of

REGISTER_ROWS, WITHIN_TILES = attributes(blocking, "most_rows", "packs_rows")  # if it has registers left for packing
ZERO64, PLACE = ir.Constant(I64, 0), 8  # bytes
FROM_BASE = 4  # rows addressed from one base; there are not enough registers for eight
ONE_ROW, ALONG_ROWS, ALONG_COLUMNS = range(3)  # layouts of A's words in a register tile
LAYOUTS = 3
AT_ONCE = 4  # words per turn of the inner loop
FLOAT_ROWS, HALF_ROWS, SEGMENTS = 1, 2, 3  # what a register tile packs of B meanwhile
PAIR_LINES = 2  # lines fetched in a turn with pairs; one with floats, whose panel has half as many lines of B
PANEL_LINES = 4  # of panels that were packed before, with few rows


def segment_at() -> int:
    """Bytes from the first place: a line behind the last one."""
    at = PLACE * blocking().depth // AT_ONCE * PAIR_LINES
    assert at + LINE_BYTES <= 2 * WORD * blocking().depth  # the scratch of places
    return at


SEGMENT_AT = Later(segment_at)


class Words(NamedTuple):
    """A's words: their address, and the strides of rows and of words in bytes."""

    at: int
    row: int
    word: int


class Cells(NamedTuple):
    """Cells of C: their address, the stride of rows in bytes, how many columns, and whether products are added."""

    at: int
    row: int
    columns: int
    adds: int


class Ahead(NamedTuple):
    """Lines that are prefetched: at the address `at` + each of `places`, the address of int64, in bytes."""

    at: int
    places: int


class Packs(NamedTuple):
    """What is packed meanwhile for another panel: turns of rows and of others, from B's address and its stride of rows
    in bytes on, to an address."""

    row_turns: int
    other_turns: int
    at: int
    row: int
    to: int


class Kind(NamedTuple):
    """Of a register tile: whether words are pairs, whether it rounds the floats that it packs, lines that it prefetches
    in a turn, and whether it ever packs."""

    pairs: bool
    rounds: bool
    lines: int
    packs: bool


def register_tile(halves: bool, lines: int = 0, packs: bool = True) -> Any:
    """An intrinsic (rows, lie, vectors, a: Words, panel, length, c: Cells, ahead: Ahead, packs: Packs).

    It computes some rows of C in the first `columns` columns of a panel, which are in its first `vectors` vectors, from
    `length` words of A and of the panel. It adds them to C if `adds` is set, and overwrites C otherwise. For every
    AT_ONCE words it prefetches so many `lines`, mapped or not; without a number PAIR_LINES, or one for floats. A turn
    is AT_ONCE words. Words of `halves` are pairs of bfloat16, or where there are none, floats rounded to bfloat16.

    lie            rows                            layout of A's words
    ONE_ROW        1                               any
    ALONG_ROWS     one of the blocking's, above 1  the words of a row are consecutive: a.word is WORD
    ALONG_COLUMNS  one of the blocking's, above 1  the words of the rows are side by side: a.row is WORD

    With REGISTER_ROWS it meanwhile packs words for another panel, of PANEL columns, if this one has PANEL columns too
    and the tile ever `packs`: a row of words of float32 in each of its first `row_turns` turns, or something else in
    each of its first `other_turns` turns (one of the two is 0). All that is packed must exist.

    lie            what else
    ALONG_ROWS     a segment of a transposed B of float32: LANES words of a column, then those of the next one, and
                   after PANEL columns the following words; only where the blocking packs
                   segments, by way of a line at places + SEGMENT_AT
    ALONG_COLUMNS  a row of words of bfloat16; only with `halves`

    The addresses panel, places and to are multiples of 64.
    """

    def kind():
        pairs = halves and native()
        return Kind(pairs, halves and not pairs, lines or (PAIR_LINES if pairs else 1), packs)

    @intrinsic
    def tile(typingctx, rows, lie, vectors, a, panel, length, c, ahead, packing):
        def codegen(context, builder, signature, args):
            rows, lie, vectors, a, panel, length, c, ahead, packing = args
            a, c, ahead, packing = (
                named(*cgutils.unpack_tuple(builder, each))
                for named, each in ((Words, a), (Cells, c), (Ahead, ahead), (Packs, packing))
            )
            done = builder.append_basic_block("done")
            number = builder.add(builder.mul(rows, ir.Constant(I64, LAYOUTS)), lie)
            number = builder.add(builder.mul(number, ir.Constant(I64, VECTORS + 1)), vectors)
            choice = builder.switch(number, done)
            many = blocking().rows[:-1]
            for high, layout in [(1, ONE_ROW), *((row, lie) for row in many for lie in (ALONG_ROWS, ALONG_COLUMNS))]:
                for width in range(1, VECTORS + 1):
                    block = builder.append_basic_block(f"tile_{high}_{layout}x{width}")
                    choice.add_case(ir.Constant(I64, (high * LAYOUTS + layout) * (VECTORS + 1) + width), block)
                    builder.position_at_end(block)
                    _register_tile(builder, high, layout, width, kind(), a, panel, length, c, ahead, packing)
                    builder.branch(done)
            builder.position_at_end(done)
            return context.get_dummy_value()

        i64 = types.int64
        return types.void(i64, i64, i64, a, i64, i64, c, ahead, packing), codegen

    return tile


def _register_tile(builder, rows, lie, vectors, kind, a, panel, length, c, ahead, packing):
    """Emit the code of a register tile `vectors` vectors wide. Strides known from `lie` are constants in its loop."""
    pairs, rounds, lines, can_pack = kind
    if lie == ALONG_COLUMNS:
        a_word, offsets = a.word, [ir.Constant(I64, WORD * i) for i in range(rows)]
    else:
        a_word = ir.Constant(I64, WORD) if lie == ALONG_ROWS else a.word
        offsets = [lanes.opaque(builder, builder.mul(a.row, ir.Constant(I64, i))) for i in range(rows)]
    outs = [builder.add(c.at, builder.mul(c.row, ir.Constant(I64, i))) for i in range(rows)]
    cells = [(i, v) for i in range(rows) for v in range(vectors)]
    masks = [lanes.mask(builder, c.columns, v) for v in range(vectors)]
    begin, old, new = builder.block, builder.append_basic_block("old"), builder.append_basic_block("new")
    builder.cbranch(builder.icmp_signed("!=", c.adds, ZERO64), old, new)

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
    if can_pack and WITHIN_TILES and rows == REGISTER_ROWS and vectors == VECTORS:
        until = [builder.mul(turns, ir.Constant(I64, AT_ONCE)) for turns in (packing.row_turns, packing.other_turns)]
        stages.insert(0, (AT_ONCE, until[0], FLOAT_ROWS))
        if lie == ALONG_ROWS and blocking().packs_segments:
            stages.insert(1, (AT_ONCE, until[1], SEGMENTS))
        elif lie == ALONG_COLUMNS and (pairs or rounds):
            stages.insert(1, (AT_ONCE, until[1], HALF_ROWS))

    k, at_a, at_b = ZERO64, a.at, panel
    for step, until, packs in stages:
        before, last = builder.block, builder.sub(until, ir.Constant(I64, step))
        head, body, end = (builder.append_basic_block(name) for name in ("words", "products", "end"))
        builder.branch(head)
        builder.position_at_end(head)
        state = {"k": k, "at_a": at_a, "at_b": at_b, **sums, **({"b": packing.at, "to": packing.to} if packs else {})}
        state |= {"left": ir.Constant(I64, PANEL)} if packs == SEGMENTS else {}  # columns without these words
        phis = {name: builder.phi(value.type) for name, value in state.items()}
        for name, phi in phis.items():
            phi.add_incoming(state[name], before)
        builder.cbranch(builder.icmp_signed("<=", phis["k"], last), body, end)

        builder.position_at_end(body)
        place = builder.add(ahead.places, builder.mul(phis["k"], ir.Constant(I64, lines * PLACE // AT_ONCE)))
        at_a, at_b, total = phis["at_a"], phis["at_b"], {cell: phis[cell] for cell in cells}
        for word in range(step):
            if step == AT_ONCE and word * lines % AT_ONCE == 0:
                offset = lanes.load(builder, place, I64, word * lines // AT_ONCE * PLACE, align=PLACE)
                lanes.prefetch(builder, builder.add(ahead.at, offset))
            if packs == SEGMENTS:
                if word == 0:
                    line = lanes.opaque(builder, builder.add(ahead.places, ir.Constant(I64, SEGMENT_AT)))
                    lanes.store(builder, words_along(builder, pairs, phis["b"]), line, 0)
                    line = lanes.opaque(builder, line)  # words are loaded again, not taken out of the vector
                for w in range(word * LANES // AT_ONCE, (word + 1) * LANES // AT_ONCE):
                    copied = lanes.load(builder, line, I32, w * WORD, align=WORD)
                    lanes.store(builder, copied, phis["to"], w * PANEL_ROW, align=WORD)
            elif packs and word < VECTORS:
                next_row = builder.add(phis["b"], packing.row)
                words = words_of(builder, pairs, packs == HALF_ROWS, phis["b"], next_row, word)
                words = rounded_words(builder, words) if rounds and packs == FLOAT_ROWS else words
                lanes.store(builder, words, phis["to"], word * LANES * WORD)
            total = add_word(total, at_a, at_b)
            if packs == SEGMENTS:  # otherwise LLVM would do the products of all words after all loads
                total = {cell: lanes.fixed(builder, each) for cell, each in total.items()}
            at_a, at_b = builder.add(at_a, a_word), builder.add(at_b, ir.Constant(I64, PANEL_ROW))
        following = builder.add(phis["k"], ir.Constant(I64, step))
        state = {"k": following, "at_a": at_a, "at_b": at_b, **total}
        if packs == SEGMENTS:
            state |= _next_segment(builder, pairs, packing.row, **{name: phis[name] for name in ("b", "to", "left")})
        elif packs:
            state["b"] = builder.add(phis["b"], builder.mul(packing.row, ir.Constant(I64, 2 if pairs else 1)))
            state["to"] = builder.add(phis["to"], ir.Constant(I64, PANEL_ROW))
        for name, value in state.items():
            phis[name].add_incoming(value, builder.block)
        builder.branch(head)

        builder.position_at_end(end)
        k, at_a, at_b, sums = phis["k"], phis["at_a"], phis["at_b"], {cell: phis[cell] for cell in cells}

    # Processors without masks for each lane store slowly by a mask, so that whole vectors are stored without.
    whole = builder.icmp_signed("==", c.columns, ir.Constant(I64, vectors * LANES))
    with builder.if_else(whole) as (plainly, by_masks):
        with plainly:
            for i, v in cells:
                lanes.store(builder, sums[i, v], outs[i], v * LANES * WORD, align=WORD)
        with by_masks:
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


register_floats, register_halves = register_tile(halves=False), register_tile(halves=True)
register_panels = register_tile(halves=False, lines=PANEL_LINES, packs=False)


@intrinsic
def fetch_out(typingctx, c, c_row):
    """Fetch the lines of a register tile of C for writing, mapped or not. c is an address, c_row in bytes."""

    def codegen(context, builder, signature, args):
        for i in range(REGISTER_ROWS):
            row = builder.add(args[0], builder.mul(args[1], ir.Constant(I64, i)))
            for v in range(VECTORS):
                lanes.prefetch(builder, builder.add(row, ir.Constant(I64, v * LINE_BYTES)), to_write=True)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen
