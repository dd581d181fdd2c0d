"""Calls from compiled code to C functions by address. The address is an argument, because cached code cannot contain
it."""

from __future__ import annotations

from llvmlite import ir

from gpt2core.compile.jit import cgutils, intrinsic, types
from gpt2core.compile.llvm import I64


@intrinsic
def call_c(typingctx, address, arguments):
    """Call the function at an address with a tuple of int64; its result as int64.

    Parameters may be narrower, since a pointer or an int is passed in the same way. Of a narrower result only the low
    bits have a meaning. The result of a void function has none.
    """
    count = len(arguments)

    def codegen(context, builder, signature, args):
        values = cgutils.unpack_tuple(builder, args[1], count)
        kind = ir.FunctionType(I64, [I64] * count)
        return builder.call(builder.inttoptr(args[0], ir.PointerType(kind)), values)

    return types.int64(types.int64, types.UniTuple(types.int64, count)), codegen
