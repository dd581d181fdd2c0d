"""Blocking in the kernel until a cell changes: futex(2), on Linux. Elsewhere a thread yields its core instead."""

from __future__ import annotations

import ctypes
import platform

from llvmlite import ir

from gpt2core.compile.jit import intrinsic, types
from gpt2core.compile.llvm import I32, I64, call

NUMBER = {"x86_64": 202, "aarch64": 98, "ppc64le": 221, "riscv64": 98}  # of the system call; all little endian
WAIT_PRIVATE, WAKE_PRIVATE = 128, 129
MEMBARRIER = {"x86_64": 324, "aarch64": 283, "ppc64le": 365, "riscv64": 283}  # of membarrier(2)
FENCE_EVERYONE, REGISTER = 8, 16  # its commands: private expedited, and the registration that this needs
NAP_NS = 5_000_000  # a parked thread wakes by itself after this time, which limits the cost of a lost wake-up
EVERYONE = 1 << 30


def _futex(builder, address, operation, value, timeout):
    number = NUMBER.get(platform.machine())
    if number is None:
        call(builder, "sched_yield", I32)
    else:
        arguments = [ir.Constant(I64, number), address, ir.Constant(I64, operation), value, timeout]
        call(builder, "syscall", I64, arguments)


@intrinsic
def park(typingctx, address, value):
    """Block while the cell at an address holds value (its low half is compared), until a `wake` or for NAP_NS."""

    def codegen(context, builder, signature, args):
        module, name, kind = builder.module, "taskloom.nap", ir.ArrayType(I64, 2)
        nap = module.globals.get(name)
        if nap is None:  # struct timespec; a constant, as stack memory would grow in a loop
            nap = ir.GlobalVariable(module, kind, name)
            nap.linkage, nap.global_constant = "internal", True
            nap.initializer = ir.Constant(kind, [ir.Constant(I64, 0), ir.Constant(I64, NAP_NS)])
        _futex(builder, args[0], WAIT_PRIVATE, args[1], builder.ptrtoint(nap, I64))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


def register() -> None:
    """Let this process use fence_everyone. Where Linux refuses, a lost wake-up costs at most NAP_NS."""
    number = MEMBARRIER.get(platform.machine())
    if number is not None:
        ctypes.CDLL(None).syscall(number, REGISTER, 0, 0)


@intrinsic
def fence_everyone(typingctx):
    """A sequentially consistent fence of this thread and of all running threads of the process: membarrier(2).

    A thread that is about to park pays for the order of the others' stores and loads, which need no fence of their own:
    0.3 to 2 us (median and 95th percentile beside a thread that runs, two virtual cores).
    """

    def codegen(context, builder, signature, args):
        builder.fence("seq_cst")
        number = MEMBARRIER.get(platform.machine())
        if number is not None:
            call(builder, "syscall", I64, [ir.Constant(I64, each) for each in (number, FENCE_EVERYONE, 0, 0)])
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def wake(typingctx, address, count):
    """Wake at most `count` of the threads that are parked at an address."""

    def codegen(context, builder, signature, args):
        _futex(builder, args[0], WAKE_PRIVATE, args[1], ir.Constant(I64, 0))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen
