"""Matrix products from compiled code: one interface, `multiply`, over entries of our own product and of libraries.

A library exports the Fortran `sgemm`. Its address is an argument of compiled code, because cached code cannot contain
it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from gpt2core.compile.clock import ticks
from gpt2core.compile.jit import address_of, cgutils, entry, intrinsic, kernel, runtime, types
from gpt2core.compile.lanes import HALF_BYTES, WORD
from gpt2core.gemm.microkernel import multiply_packed, multiply_panels
from gpt2core.gemm.operands import WHOLE, Band, Operand, Out, into
from gpt2core.gemm.packing import pack_panels, pack_rows
from gpt2core.gemm.sizes import PRODUCT_SCRATCH
from gpt2core.gemm.tiles import multiply_on_tiles
from gpt2core.step.tensors import ALIGN

ONE, ZERO = np.float32(1.0), np.float32(0.0)
ROUNDED_SIDE, ROUNDED_DEPTH = 384, 512  # of the blocks of bfloat16 that a library multiplies: two fit in the scratch
OF_PRODUCT = "p"  # parameter of a product's entry: the address of its arguments, see `asked`


@intrinsic
def gemm(typingctx, sgemm, m, n, k, a, b, beta, c):
    """C (m, n) = A (m, k) @ B (k, n) + beta * C by the library's function at the address `sgemm`.

    Row-major C is column-major C^T = op(B)^T op(A)^T: the operands change places.
    """
    i8, i32, f32 = ir.IntType(8), ir.IntType(32), ir.FloatType()

    def codegen(context, builder, signature, args):
        sgemm, m, n, k, a, b, beta, c = args
        a, b = (Operand(*cgutils.unpack_tuple(builder, each)) for each in (a, b))
        c = Out(*cgutils.unpack_tuple(builder, c))

        def letter(flag):
            nonzero = builder.icmp_signed("!=", flag, ir.Constant(flag.type, 0))
            value = builder.select(nonzero, ir.Constant(i8, ord("T")), ir.Constant(i8, ord("N")))
            return _spill(builder, value)

        def integer(value):
            return _spill(builder, builder.trunc(value, i32))

        def matrix(address):
            return builder.inttoptr(address, ir.PointerType(f32))

        call = [
            letter(b.transposed), letter(a.transposed), integer(n), integer(m), integer(k),
            _spill(builder, ir.Constant(f32, 1.0)), matrix(b.at), integer(b.length), matrix(a.at), integer(a.length),
            _spill(builder, beta), matrix(c.at), integer(c.length),
        ]  # fmt: skip
        kind = ir.FunctionType(ir.VoidType(), [value.type for value in call])
        builder.call(builder.inttoptr(sgemm, ir.PointerType(kind)), call)
        return context.get_dummy_value()

    i64 = types.int64
    return types.void(i64, i64, i64, i64, a, b, types.float32, c), codegen


def _spill(builder, value):
    """The value in a stack slot of the function's entry block: Fortran takes addresses."""
    slot = cgutils.alloca_once(builder, value.type)
    builder.store(value, slot)
    return slot


@kernel
def pack_matrix(to, source, stride, halves, transposed, first, k0, count, depth):
    """Pack rows [first, first + count) from column k0 on, `depth` long, of a matrix, which may be stored transposed, as
    bfloat16. Return the new row length in elements.
    """
    size = HALF_BYTES if halves else WORD
    if transposed:
        pack_rows(to, source + size * (k0 * stride + first), stride, depth, count, halves)
        return count + count % 2
    pack_rows(to, source + size * (first * stride + k0), stride, count, depth, halves)
    return depth + depth % 2


class Asked(NamedTuple):
    """The arguments of an entry: address of a library's function, columns per call or 0 for all, address of this
    thread's PRODUCT_SCRATCH words, the product C (m, n) = A (m, k) @ B (k, n), and what a triangle leaves of it."""

    address: int
    piece: int
    scratch: int
    m: int
    n: int
    k: int
    a: Operand
    b: Operand
    c: Out
    band: Band


@kernel
def asked(x, rounds):
    """What an entry is asked for. Only a product that rounds its operands takes bfloat16."""
    a = Operand(x[6], x[7], x[8], x[9] if rounds else 0)
    b = Operand(x[10], x[11], x[12], x[13] if rounds else 0)
    return Asked(x[0], x[1], x[2], x[3], x[4], x[5], a, b, Out(x[14], x[15], x[16], x[17]), Band(x[18], x[19]))


@entry(OF_PRODUCT)
def product_of_floats(x):
    """`multiply` of float32 by a library's sgemm, called for `piece` columns at a time, or for all if `piece` is 0."""
    p = asked(x, False)
    b, c, most = p.b, p.c, p.piece if p.piece else p.n
    for first in range(0, p.n, most):
        right = Operand(b.at + WORD * first * (b.length if b.transposed else 1), b.length, b.transposed, 0)
        out = into(c.at + WORD * first, c.length, 0)
        gemm(p.address, p.m, min(most, p.n - first), p.k, p.a, right, ONE if c.adds else ZERO, out)


@entry(OF_PRODUCT)
def product_of_rounded(x):
    """`multiply` by a library's product of bfloat16. Blocks of the operands are rounded first."""
    p = asked(x, True)
    a, b, c = p.a, p.b, p.c
    second = p.scratch + WORD * (PRODUCT_SCRATCH // 2)
    for k0 in range(0, p.k, ROUNDED_DEPTH):
        depth = min(ROUNDED_DEPTH, p.k - k0)
        for m0 in range(0, p.m, ROUNDED_SIDE):
            rows = min(ROUNDED_SIDE, p.m - m0)
            length_a = pack_matrix(p.scratch, a.at, a.length, a.halves, a.transposed, m0, k0, rows, depth)
            for n0 in range(0, p.n, ROUNDED_SIDE):
                columns = min(ROUNDED_SIDE, p.n - n0)
                length_b = pack_matrix(second, b.at, b.length, b.halves, 1 - b.transposed, n0, k0, columns, depth)
                gemm(
                    p.address, rows, columns, depth, Operand(p.scratch, length_a, a.transposed, 1),
                    Operand(second, length_b, b.transposed, 1), ONE if c.adds or k0 else ZERO,
                    into(c.at + WORD * (m0 * c.length + n0), c.length, 0),
                )  # fmt: skip


@entry(OF_PRODUCT)
def own_product_of_floats(x):
    """`multiply` of float32 by our own product. Without a row length, b are panels that packing.pack_panels made."""
    p = asked(x, False)
    if p.b.length:
        multiply_packed(False, False, p.scratch, p.m, p.n, p.k, p.a, p.b, p.c, p.band)
    else:
        multiply_panels(p.scratch, p.m, p.n, p.k, p.a, p.b.at, p.c)


@entry(OF_PRODUCT)
def own_product_of_pairs(x):
    """`multiply` by our own product of pairs of bfloat16, which needs AVX512-BF16."""
    p = asked(x, True)
    multiply_packed(True, False, p.scratch, p.m, p.n, p.k, p.a, p.b, p.c, p.band)


@entry(OF_PRODUCT)
def own_product_of_tiles(x):
    """`multiply` by our own product of pairs on tile registers, which needs AMX and the system's permission. It always
    fetches C."""
    p = asked(x, True)
    multiply_on_tiles(p.scratch, p.m, p.n, p.k, p.a, p.b, p.c)


@entry(OF_PRODUCT)
def own_product_of_rounded(x):
    """`multiply` by our own product of operands rounded to bfloat16, on any processor."""
    p = asked(x, True)
    multiply_packed(False, True, p.scratch, p.m, p.n, p.k, p.a, p.b, p.c, p.band)


@kernel
def is_own(by):
    """Whether our own code computes a product: it calls no library's function."""
    return by[1] == 0


@kernel
def weight_or_panels(by, weight, panels):
    """Address and row length of a weight for `multiply`: its panels, if there are any, then it is float32, and our own
    product computes it.
    """
    if is_own(by) and panels.shape[0]:
        return address_of(panels, 0), 0
    return address_of(weight, 0), weight.shape[1]


@kernel
def multiply_band(by, m, n, k, a, b, c, band):
    """C (m, n) = A (m, k) @ B (k, n), or += if `c.adds` is set: an Out, two Operands and a Band. Matrices of bfloat16
    are for products that round their operands. With a B of row length 0, its address is that of its panels, which only
    our own product of float32 takes (`weight_or_panels`), and only whole.

    `by` is the address of an entry and its first arguments: see `Asked`. Products are compiled once, not into each
    kernel. With `c.fetches`, a large product of our own on vector registers fetches C's lines before it writes them.
    """
    code, address, piece, scratch = by
    _call(code, Asked(address, piece, scratch, m, n, k, a, b, c, band))


@kernel
def multiply(by, m, n, k, a, b, c):
    """`multiply_band` of a whole product."""
    multiply_band(by, m, n, k, a, b, c, Band(WHOLE, 0))


@intrinsic
def _call(typingctx, code, asked):
    """Call an entry of matrix products at its address with the address of its arguments, 20 int64."""

    def codegen(context, builder, signature, args):
        i64 = ir.IntType(64)
        values = list(_flat(builder, args[1]))
        assert all(value.type == i64 for value in values)
        cells = cgutils.alloca_once(builder, ir.ArrayType(i64, len(values)))
        for number, value in enumerate(values):
            builder.store(value, cgutils.gep_inbounds(builder, cells, 0, number))
        kind = ir.FunctionType(ir.VoidType(), [ir.PointerType(i64)])
        builder.call(builder.inttoptr(args[0], ir.PointerType(kind)), [builder.bitcast(cells, ir.PointerType(i64))])
        return context.get_dummy_value()

    return types.void(types.int64, asked), codegen


def _flat(builder, value):
    """The numbers in a value, which may be a tuple of tuples."""
    if not isinstance(value.type, ir.Aggregate):
        yield value
        return
    for part in cgutils.unpack_tuple(builder, value):
        yield from _flat(builder, part)


@runtime
def time_product(by, half_a, half_b, trans_a, trans_b, m, n, k, a, b, c, fetches):
    """Ticks of one product, on matrices without gaps."""
    begin = ticks()
    left = Operand(address_of(a, 0), m if trans_a else k, trans_a, half_a)
    right = Operand(address_of(b, 0), k if trans_b else n, trans_b, half_b)
    multiply(by, m, n, k, left, right, Out(address_of(c, 0), n, 0, fetches))
    return ticks() - begin


@runtime
def pack_whole(panels, b, trans_b, n, k):
    """Pack op(B) (k, n), without gaps, as panels."""
    pack_panels(address_of(panels, 0), address_of(b, 0), k if trans_b else n, trans_b, k, 0, n)


@runtime
def time_packed(by, m, n, k, a, panels, c):
    """Ticks of one product of our own with a packed B."""
    begin = ticks()
    left, right = Operand(address_of(a, 0), k, 0, 0), Operand(address_of(panels, 0), 0, 0, 0)
    multiply(by, m, n, k, left, right, Out(address_of(c, 0), n, 0, 0))
    return ticks() - begin


def new_scratch() -> tuple[NDArray[np.int32], int]:
    """Scratch memory for `multiply`, and its address; for one thread, valid while the array is kept."""
    words = np.empty(PRODUCT_SCRATCH + ALIGN // 4, np.int32)
    return words, -(-words.ctypes.data // ALIGN) * ALIGN
