"""Matrix products from compiled code: one interface, `multiply`, over entries of our own product and of libraries.

A library exports the Fortran `sgemm`. Its address is an argument of compiled code, because cached code cannot contain
it.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from gpt2core.compile.clock import ticks
from gpt2core.compile.jit import address_of, cgutils, entry, intrinsic, kernel, runtime, types
from gpt2core.compile.lanes import HALF_BYTES, WORD
from gpt2core.gemm.microkernel import multiply_packed, multiply_panels
from gpt2core.gemm.packing import pack_panels, pack_rows
from gpt2core.gemm.sizes import PRODUCT_SCRATCH
from gpt2core.gemm.tiles import multiply_on_tiles
from gpt2core.step.tensors import ALIGN

ONE, ZERO = np.float32(1.0), np.float32(0.0)
ROUNDED_SIDE, ROUNDED_DEPTH = 384, 512  # of the blocks of bfloat16 that a library multiplies: two fit in the scratch
PARAMETERS = "i" * 18  # of an entry: see `multiply`


@intrinsic
def gemm(typingctx, sgemm, trans_a, trans_b, m, n, k, a, lda, b, ldb, beta, c, ldc):
    """C (m, n) = op(A) (m, k) @ op(B) (k, n) + beta * C; row-major, op transposes if its flag is set.

    sgemm is the library's address; a, b, c are addresses in bytes; ld* are row lengths in elements.
    Row-major C is column-major C^T = op(B)^T op(A)^T: the operands change places.
    """
    i8, i32, f32 = ir.IntType(8), ir.IntType(32), ir.FloatType()

    def codegen(context, builder, signature, args):
        sgemm, trans_a, trans_b, m, n, k, a, lda, b, ldb, beta, c, ldc = args

        def letter(flag):
            nonzero = builder.icmp_signed("!=", flag, ir.Constant(flag.type, 0))
            value = builder.select(nonzero, ir.Constant(i8, ord("T")), ir.Constant(i8, ord("N")))
            return _spill(builder, value)

        def integer(value):
            return _spill(builder, builder.trunc(value, i32))

        def matrix(address):
            return builder.inttoptr(address, ir.PointerType(f32))

        call = [
            letter(trans_b), letter(trans_a), integer(n), integer(m), integer(k),
            _spill(builder, ir.Constant(f32, 1.0)), matrix(b), integer(ldb), matrix(a), integer(lda),
            _spill(builder, beta), matrix(c), integer(ldc),
        ]  # fmt: skip
        kind = ir.FunctionType(ir.VoidType(), [value.type for value in call])
        builder.call(builder.inttoptr(sgemm, ir.PointerType(kind)), call)
        return context.get_dummy_value()

    i64, f = types.int64, types.float32
    return types.void(i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, f, i64, i64), codegen


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


@entry(PARAMETERS)
def product_of_floats(
    address, piece, scratch, half_a, half_b, trans_a, trans_b, m, n, k, a, lda, b, ldb, c, ldc, adds, fetches
):  # fmt: skip
    """`multiply` of float32 by a library's sgemm, called for `piece` columns at a time, or for all if `piece` is 0."""
    most = piece if piece else n
    for first in range(0, n, most):
        at_b = b + WORD * first * (ldb if trans_b else 1)
        gemm(
            address, trans_a, trans_b, m, min(most, n - first), k,
            a, lda, at_b, ldb, ONE if adds else ZERO, c + WORD * first, ldc,
        )  # fmt: skip


@entry(PARAMETERS)
def product_of_rounded(
    address, piece, scratch, half_a, half_b, trans_a, trans_b, m, n, k, a, lda, b, ldb, c, ldc, adds, fetches
):  # fmt: skip
    """`multiply` by a library's product of bfloat16. Blocks of the operands are rounded first."""
    second = scratch + WORD * (PRODUCT_SCRATCH // 2)
    for k0 in range(0, k, ROUNDED_DEPTH):
        depth = min(ROUNDED_DEPTH, k - k0)
        for m0 in range(0, m, ROUNDED_SIDE):
            rows = min(ROUNDED_SIDE, m - m0)
            length_a = pack_matrix(scratch, a, lda, half_a, trans_a, m0, k0, rows, depth)
            for n0 in range(0, n, ROUNDED_SIDE):
                columns = min(ROUNDED_SIDE, n - n0)
                length_b = pack_matrix(second, b, ldb, half_b, 1 - trans_b, n0, k0, columns, depth)
                gemm(
                    address, trans_a, trans_b, rows, columns, depth, scratch, length_a, second, length_b,
                    ONE if adds or k0 else ZERO, c + WORD * (m0 * ldc + n0), ldc,
                )  # fmt: skip


@entry(PARAMETERS)
def own_product_of_floats(
    address, piece, scratch, half_a, half_b, trans_a, trans_b, m, n, k, a, lda, b, ldb, c, ldc, adds, fetches
):  # fmt: skip
    """`multiply` of float32 by our own product. Without a row length, b are panels that packing.pack_panels made."""
    if ldb:
        multiply_packed(
            False, False, scratch, False, False, trans_a, trans_b, m, n, k, a, lda, b, ldb, c, ldc, adds, fetches
        )
    else:
        multiply_panels(scratch, m, n, k, a, lda, b, c, ldc, adds)


@entry(PARAMETERS)
def own_product_of_pairs(
    address, piece, scratch, half_a, half_b, trans_a, trans_b, m, n, k, a, lda, b, ldb, c, ldc, adds, fetches
):  # fmt: skip
    """`multiply` by our own product of pairs of bfloat16, which needs AVX512-BF16."""
    multiply_packed(
        True, False, scratch, half_a, half_b, trans_a, trans_b, m, n, k, a, lda, b, ldb, c, ldc, adds, fetches
    )


@entry(PARAMETERS)
def own_product_of_tiles(
    address, piece, scratch, half_a, half_b, trans_a, trans_b, m, n, k, a, lda, b, ldb, c, ldc, adds, fetches
):  # fmt: skip
    """`multiply` by our own product of pairs on tile registers, which needs AMX and the system's permission. It always
    fetches C."""
    multiply_on_tiles(scratch, half_a, half_b, trans_a, trans_b, m, n, k, a, lda, b, ldb, c, ldc, adds)


@entry(PARAMETERS)
def own_product_of_rounded(
    address, piece, scratch, half_a, half_b, trans_a, trans_b, m, n, k, a, lda, b, ldb, c, ldc, adds, fetches
):  # fmt: skip
    """`multiply` by our own product of operands rounded to bfloat16, on any processor."""
    multiply_packed(
        False, True, scratch, half_a, half_b, trans_a, trans_b, m, n, k, a, lda, b, ldb, c, ldc, adds, fetches
    )


@kernel
def is_own(by):
    """Whether our own code computes a product: it calls no library's function."""
    return by[1] == 0


@kernel
def weight_or_panels(by, weight, panels):
    """Address and row length of a float32 weight for `multiply`: its panels, if there are any and our own product
    computes it.
    """
    if is_own(by) and panels.shape[0]:
        return address_of(panels, 0), 0
    return address_of(weight, 0), weight.shape[1]


@kernel
def multiply(by, trans_a, trans_b, m, n, k, a, lda, b, ldb, c, ldc, adds):
    """C (m, n) = op(A) (m, k) @ op(B) (k, n), or += if `adds` is set; row-major float32, op transposes if its flag is
    set. a, b, c are addresses in bytes; ld* are row lengths in elements. With an ldb of 0, b are B's panels, which only
    our own product of float32 takes (`weight_or_panels`).

    `by` is the address of an entry and its first arguments: address of a library's function, columns per call or 0 for
    all, address of this thread's PRODUCT_SCRATCH words. Products are compiled once, not into each kernel. C is expected
    in a cache.
    """
    multiply_halves(by, 0, 0, trans_a, trans_b, m, n, k, a, lda, b, ldb, c, ldc, adds, 0)


@kernel
def multiply_halves(by, half_a, half_b, trans_a, trans_b, m, n, k, a, lda, b, ldb, c, ldc, adds, fetches):
    """`multiply` of matrices that are bfloat16 in memory if their flag is set, by products that round their operands.

    Only a B that is not transposed may be bfloat16. `fetches`: C is not expected in a cache, so a large product of our
    own on vector registers fetches its lines before it writes them.
    """
    code, address, piece, scratch = by
    shape = (half_a, half_b, trans_a, trans_b, m, n, k)
    _call(code, (address, piece, scratch, *shape, a, lda, b, ldb, c, ldc, adds, fetches))


@intrinsic
def _call(typingctx, code, arguments):
    """Call an entry of matrix products at its address with a tuple of its arguments."""

    def codegen(context, builder, signature, args):
        values = cgutils.unpack_tuple(builder, args[1], len(PARAMETERS))
        kind = ir.FunctionType(ir.VoidType(), [value.type for value in values])
        builder.call(builder.inttoptr(args[0], ir.PointerType(kind)), values)
        return context.get_dummy_value()

    return types.void(types.int64, types.UniTuple(types.int64, len(PARAMETERS))), codegen


@runtime
def time_product(by, half_a, half_b, trans_a, trans_b, m, n, k, a, b, c, fetches):
    """Ticks of one product, on matrices without gaps."""
    begin = ticks()
    multiply_halves(
        by, half_a, half_b, trans_a, trans_b, m, n, k,
        address_of(a, 0), m if trans_a else k, address_of(b, 0), k if trans_b else n, address_of(c, 0), n, 0,
        fetches,
    )  # fmt: skip
    return ticks() - begin


@runtime
def pack_whole(panels, b, trans_b, n, k):
    """Pack op(B) (k, n), without gaps, as panels."""
    pack_panels(address_of(panels, 0), address_of(b, 0), k if trans_b else n, trans_b, k, 0, n)


@runtime
def time_packed(by, m, n, k, a, panels, c):
    """Ticks of one product of our own with a packed B."""
    begin = ticks()
    multiply(by, 0, 0, m, n, k, address_of(a, 0), k, address_of(panels, 0), 0, address_of(c, 0), n, 0)
    return ticks() - begin


def new_scratch() -> tuple[NDArray[np.int32], int]:
    """Scratch memory for `multiply`, and its address; for one thread, valid while the array is kept."""
    words = np.empty(PRODUCT_SCRATCH + ALIGN // 4, np.int32)
    return words, -(-words.ctypes.data // ALIGN) * ALIGN
