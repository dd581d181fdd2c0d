"""Our own product of bfloat16 on the tile registers of AMX: C (m, n) float32 from matrices of float32, which are
rounded as they are packed, or of bfloat16.

A tile register has 16 rows of 64 bytes. Six hold 32 rows by a panel's 48 columns of C, one a tile of A (16 rows of 16
pairs) and one a tile of B (16 words of 16 columns, as panels have them). So eight loads serve six products. TDPBF16PS
adds the products of 16 pairs to each element: those of the pairs' low halves and those of the high halves are summed
first, each by itself. Subnormal operands count as zero.

Reading B from memory takes longer than multiplying it by the rows of a slice. Still, no line of the next panel is
fetched during a tile, because loads of tiles need the same line buffers (docs/decisions/0013).
"""

from __future__ import annotations

import ctypes
import functools
import platform

from llvmlite import ir

from gpt2core.compile import lanes, llvm
from gpt2core.compile.jit import cgutils, intrinsic, kernel, types
from gpt2core.compile.lanes import HALF_BYTES, LANES, WORD
from gpt2core.compile.line import LINE_BYTES
from gpt2core.compile.llvm import I8, I64, VOID
from gpt2core.compile.target import features
from gpt2core.gemm.blocking import BLOCK, DEPTH, PANEL, PANEL_ROW, VECTORS
from gpt2core.gemm.packing import clear_words, pack_depth, pack_for_tiles, pack_transposed
from gpt2core.gemm.words import fetch_row

TILE_ROWS = 2 * LANES  # rows of C in registers
A, B, REGISTERS = 6, 7, 8  # tile registers; those before A hold C
ROWS_AHEAD = 4  # rows of the next C that are fetched for LANES words
WORDS_AT_ONCE = 4  # packed while the rows of the next ones are fetched
ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA = 158, 0x1023, 18  # Linux: asm/unistd_64.h, asm/prctl.h, asm/fpu/types.h


def exist() -> bool:
    """Whether code is compiled for a processor with tile registers, whose system knows them."""
    return platform.system() == "Linux" and {"amx_tile", "amx_bf16"} <= features()


@functools.cache
def permitted() -> bool:
    """Whether this process may use tile registers. Linux gives them on request only."""
    return exist() and ctypes.CDLL(None).syscall(ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA) == 0


# --- tile registers


def configure(builder):
    """Emit the configuration of this thread's tile registers, all as 16 rows of 64 bytes."""
    palette, row = 1, [LINE_BYTES, 0]  # bytes of a row, in 16 bits
    config = [palette, *[0] * 15, *row * REGISTERS, *[0] * 16, *[LANES] * REGISTERS, *[0] * 8]
    place = cgutils.alloca_once_value(builder, ir.Constant(ir.ArrayType(I8, len(config)), config))
    llvm.call(builder, "llvm.x86.ldtilecfg", VOID, [place])


@intrinsic
def begin_tiles(typingctx):
    """Configure this thread's tile registers, all as whole ones."""

    def codegen(context, builder, signature, args):
        configure(builder)
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def end_tiles(typingctx):
    """Release this thread's tile registers, so that the system need not save them."""

    def codegen(context, builder, signature, args):
        llvm.call(builder, "llvm.x86.tilerelease", VOID)
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def multiply_registers(typingctx, halves, vectors, a, a_row, panel, length, c, c_row, adds, next_c, next_row):
    """Compute 16 * halves rows of C in the panel's first `vectors` vectors, from `length` pairs, a multiple of LANES.
    Add them to C if `adds` is set, and overwrite C otherwise. Fetch the lines of the next C for writing, TILE_ROWS by
    PANEL, mapped or not.

    a, panel, c and next_c are addresses; a_row, c_row and next_row are strides in bytes.
    """

    def codegen(context, builder, signature, args):
        halves, vectors, *rest = args
        done = builder.append_basic_block("done")
        choice = builder.switch(builder.add(builder.mul(halves, ir.Constant(I64, VECTORS)), vectors), done)
        for high in (1, 2):
            for width in range(1, VECTORS + 1):
                block = builder.append_basic_block(f"tiles_{high}x{width}")
                choice.add_case(ir.Constant(I64, high * VECTORS + width), block)
                builder.position_at_end(block)
                _multiply_registers(builder, high, width, *rest)
                builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 11), codegen


def _multiply_registers(builder, halves, vectors, a, a_row, panel, length, c, c_row, adds, next_c, next_row):
    """Emit the code for `halves` by `vectors` tile registers of C."""

    def number(value):
        return ir.Constant(I64, value)

    def moved(address, times, stride):
        return builder.add(address, builder.mul(stride, times))

    def move(name, register, address, stride):
        place = builder.inttoptr(address, ir.PointerType(I8))
        llvm.call(builder, f"llvm.x86.{name}64", VOID, [ir.Constant(I8, register), place, stride])

    cells = [(half, v) for half in range(halves) for v in range(vectors)]
    of_cell = {cell: register for register, cell in enumerate(cells)}
    outs = {(half, v): moved(builder.add(c, number(v * LINE_BYTES)), number(half * LANES), c_row) for half, v in cells}
    with builder.if_else(builder.icmp_signed("!=", adds, number(0))) as (old, new):
        with old:
            for cell in cells:
                move("tileloadd", of_cell[cell], outs[cell], c_row)
        with new:
            for cell in cells:
                llvm.call(builder, "llvm.x86.tilezero", VOID, [ir.Constant(I8, of_cell[cell])])
    with cgutils.for_range(builder, builder.lshr(length, number(4))) as loop:
        ahead = builder.and_(builder.mul(loop.index, number(ROWS_AHEAD)), number(TILE_ROWS - 1))
        for row in range(ROWS_AHEAD):
            place = moved(next_c, builder.add(ahead, number(row)), next_row)
            for v in range(VECTORS):
                lanes.prefetch(builder, builder.add(place, number(v * LINE_BYTES)), to_write=True)
        at_a, at_b = moved(a, loop.index, number(LANES * WORD)), moved(panel, loop.index, number(LANES * PANEL_ROW))
        for half in range(halves):
            move("tileloadd", A, moved(at_a, number(half * LANES), a_row), a_row)
            for v in range(vectors):
                move("tileloadd", B, builder.add(at_b, number(v * LINE_BYTES)), number(PANEL_ROW))
                registers = [ir.Constant(I8, each) for each in (of_cell[half, v], A, B)]
                llvm.call(builder, "llvm.x86.tdpbf16ps", VOID, registers)
    for cell in cells:
        move("tilestored", of_cell[cell], outs[cell], c_row)


@intrinsic
def copy_cells(typingctx, source, source_row, to, to_row, rows, columns):
    """Copy the first `columns` float32, at most PANEL, of some rows. Addresses; strides in bytes."""

    def codegen(context, builder, signature, args):
        source, source_row, to, to_row, rows, columns = args
        masks = [lanes.mask(builder, columns, v) for v in range(VECTORS)]
        with cgutils.for_range(builder, rows) as loop:
            from_row = builder.add(source, builder.mul(source_row, loop.index))
            into_row = builder.add(to, builder.mul(to_row, loop.index))
            for v, kept in enumerate(masks):
                lanes.masked_store(builder, lanes.masked_load(builder, from_row, v, kept), into_row, v, kept)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 6), codegen


# --- products


@kernel
def multiply_tile(a, a_row, rows, panel, length, c, c_row, columns, adds, next_c, cells):
    """C (rows, columns), at most TILE_ROWS by PANEL; see `multiply_registers`. At C's edges whole tiles are computed at
    `cells`, the address of TILE_ROWS by PANEL words.
    """
    halves, vectors = (rows + LANES - 1) // LANES, (columns + LANES - 1) // LANES
    is_edge = rows < halves * LANES or columns < vectors * LANES
    to, to_row = c, c_row
    if is_edge:
        to, to_row = cells, PANEL_ROW
        if adds:
            copy_cells(c, c_row, to, to_row, rows, columns)
    multiply_registers(halves, vectors, a, a_row, panel, length, to, to_row, adds, next_c, c_row)
    if is_edge:
        copy_cells(to, to_row, c, c_row, rows, columns)


@kernel
def pack_panel(panel, b, ldb, trans_b, half_b, depth, length, columns):
    """Pack (depth, columns) of op(B) at the address b as `length` words; the last ones are zeros.

    Where B is not transposed, its rows are some KB apart, too far for the processor to prefetch by itself.
    """
    width = (columns + LANES - 1) // LANES * LANES
    if trans_b:
        pack_transposed(panel, b, ldb, depth, columns, width, True, False, half_b)
    else:
        for first in range(0, depth, 2 * WORDS_AT_ONCE):
            to, rows = panel + first // 2 * PANEL_ROW, min(2 * WORDS_AT_ONCE, depth - first)
            row = (HALF_BYTES if half_b else WORD) * ldb
            source = b + first * row
            for i in range(2 * WORDS_AT_ONCE, 4 * WORDS_AT_ONCE):
                fetch_row(source + i * row)
            if columns == PANEL and half_b:  # as constants: the inner loop is unrolled
                pack_depth(to, PANEL_ROW, source, ldb, rows, PANEL, PANEL, True, False, True)
            elif columns == PANEL:
                pack_depth(to, PANEL_ROW, source, ldb, rows, PANEL, PANEL, True, False, False)
            else:
                pack_depth(to, PANEL_ROW, source, ldb, rows, columns, width, True, False, half_b)
    clear_words(panel, (depth + 1) // 2, length)


@kernel
def multiply_on_tiles(scratch, m, n, k, a, b, c):
    """C (m, n) = A (m, k) @ B (k, n), or += if `c.adds` is set; arguments as for `multiply_packed`, but C's lines are
    always fetched."""
    lda, trans_a, half_a = a.length, a.transposed, a.halves
    ldb, trans_b, half_b = b.length, b.transposed, b.halves
    panel, cells = scratch, scratch + DEPTH * PANEL_ROW
    words = scratch + 2 * DEPTH * PANEL_ROW
    parts = (k + 2 * DEPTH - 1) // (2 * DEPTH)  # nearly equal, of whole tiles
    most = (k + 2 * LANES * parts - 1) // (2 * LANES * parts) * 2 * LANES
    size_a, size_b = HALF_BYTES if half_a else WORD, HALF_BYTES if half_b else WORD
    begin_tiles()
    for k0 in range(0, k, most):
        depth = min(most, k - k0)
        length = (depth + 2 * LANES - 1) // (2 * LANES) * LANES
        block, a_row, c_row = BLOCK // length // TILE_ROWS * TILE_ROWS, WORD * length, WORD * c.length
        for m0 in range(0, m, block):
            rows = min(block, m - m0)
            at_a = a.at + size_a * (k0 * lda + m0 if trans_a else m0 * lda + k0)
            pack_for_tiles(words, a_row, at_a, lda, trans_a, rows, depth, half_a)
            for j in range(0, n, PANEL):
                columns = min(PANEL, n - j)
                at_b = b.at + size_b * (j * ldb + k0 if trans_b else k0 * ldb + j)
                pack_panel(panel, at_b, ldb, trans_b, half_b, depth, length, columns)
                for i in range(0, rows, TILE_ROWS):
                    at_c = c.at + (m0 + i) * c_row + WORD * j
                    next_c = at_c + TILE_ROWS * c_row
                    if i + TILE_ROWS >= rows:
                        next_c = c.at + m0 * c_row + WORD * (j + PANEL)
                    multiply_tile(
                        words + i * a_row, a_row, min(TILE_ROWS, rows - i), panel, length, at_c, c_row, columns,
                        1 if c.adds or k0 else 0, next_c, cells,
                    )  # fmt: skip
    end_tiles()
