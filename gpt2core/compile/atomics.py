"""Atomic operations on int64 cells by address, and instructions for waiting threads. Numba lacks them."""

from __future__ import annotations

import platform

from llvmlite import ir

from gpt2core.compile import llvm
from gpt2core.compile.jit import intrinsic, types
from gpt2core.compile.llvm import I32, I64, VOID


def _cell(builder, address):
    return builder.inttoptr(address, ir.PointerType(I64))


@intrinsic
def load_acquire(typingctx, address):
    """Load the cell; later accesses are not moved before it."""

    def codegen(context, builder, signature, args):
        return builder.load_atomic(_cell(builder, args[0]), "acquire", 8)

    return types.int64(types.int64), codegen


@intrinsic
def load_relaxed(typingctx, address):
    """Load the cell; other accesses may be moved across it."""

    def codegen(context, builder, signature, args):
        return builder.load_atomic(_cell(builder, args[0]), "monotonic", 8)

    return types.int64(types.int64), codegen


@intrinsic
def store_release(typingctx, address, value):
    """Set the cell; earlier accesses are not moved after it."""

    def codegen(context, builder, signature, args):
        builder.store_atomic(args[1], _cell(builder, args[0]), "release", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def store_relaxed(typingctx, address, value):
    """Set the cell; other accesses may be moved across it."""

    def codegen(context, builder, signature, args):
        builder.store_atomic(args[1], _cell(builder, args[0]), "monotonic", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def fetch_add(typingctx, address, value):
    """Add to the cell and return its previous value; acquire and release."""

    def codegen(context, builder, signature, args):
        return builder.atomic_rmw("add", _cell(builder, args[0]), args[1], "acq_rel")

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def compare_exchange(typingctx, address, expected, desired):
    """Set the cell to `desired` if it contains `expected`; return whether it did. Sequentially consistent."""

    def codegen(context, builder, signature, args):
        pair = builder.cmpxchg(_cell(builder, args[0]), args[1], args[2], "seq_cst", "seq_cst")
        return builder.extract_value(pair, 1)

    return types.boolean(types.int64, types.int64, types.int64), codegen


@intrinsic
def fence(typingctx):
    """A sequentially consistent fence."""

    def codegen(context, builder, signature, args):
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def pause(typingctx):
    """Hint to the core that this is a spin loop; no effect on processors other than x86-64 and 64-bit Arm."""

    def codegen(context, builder, signature, args):
        known = {"x86_64": ("llvm.x86.sse2.pause", []), "aarch64": ("llvm.aarch64.hint", [ir.Constant(I32, 1)])}
        if platform.machine() in known:
            name, arguments = known[platform.machine()]
            llvm.call(builder, name, VOID, arguments)
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def yield_core(typingctx):
    """sched_yield(2): let another thread have this core."""

    def codegen(context, builder, signature, args):
        llvm.call(builder, "sched_yield", I32)
        return context.get_dummy_value()

    return types.void(), codegen
