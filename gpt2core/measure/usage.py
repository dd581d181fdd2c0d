"""Linux's counts of the calling thread, read from compiled code without allocation.

A reading is a row of int64: see the columns below. It takes two system calls, about a microsecond.
"""

from __future__ import annotations

from llvmlite import ir

from gpt2core.compile import llvm
from gpt2core.compile.clock import ticks
from gpt2core.compile.jit import intrinsic, pointer_i64, pointer_u8, runtime, types
from gpt2core.compile.llvm import I32, I64

READ, VOLUNTARY, INVOLUNTARY, MINOR, MAJOR, CORE, RUN_DELAY_NS = range(7)  # columns of a reading
UNKNOWN = -1
USAGE_CELLS, TEXT_CELLS = 18, 8  # of struct rusage; of what is read of a schedstat file
SCHEDSTAT_FD = USAGE_CELLS + TEXT_CELLS  # cell of the desk; the descriptor, or UNKNOWN
DELAY_NS = SCHEDSTAT_FD + 1  # cell: the run delay at the last reading, or UNKNOWN
ENDED, LONG_TICKS = SCHEDSTAT_FD + 2, SCHEDSTAT_FD + 3  # cells of tracing: end of the last task; spans that are long
DESK_CELLS = 32  # buffer in which a thread's reading is assembled
RUSAGE_THREAD = 1
RU_MINFLT, RU_MAJFLT, RU_NVCSW, RU_NIVCSW = 8, 9, 16, 17  # int64 cells of struct rusage


@intrinsic
def thread_usage(typingctx, address):
    """getrusage(2) of this thread into the memory at an address; 0 if it worked."""

    def codegen(context, builder, signature, args):
        return builder.sext(llvm.call(builder, "getrusage", I32, [ir.Constant(I32, RUSAGE_THREAD), args[0]]), I64)

    return types.int64(types.int64), codegen


@intrinsic
def read_start(typingctx, descriptor, address, size):
    """pread(2) of the first `size` bytes of a file; the number of bytes, or -1."""

    def codegen(context, builder, signature, args):
        arguments = [builder.trunc(args[0], I32), args[1], args[2], ir.Constant(I64, 0)]
        return llvm.call(builder, "pread", I64, arguments)

    return types.int64(types.int64, types.int64, types.int64), codegen


@intrinsic
def this_core(typingctx):
    """sched_getcpu(3): the core this thread is on now."""

    def codegen(context, builder, signature, args):
        return builder.sext(llvm.call(builder, "sched_getcpu", I32), I64)

    return types.int64(), codegen


@runtime
def second_number(text, size):
    """The second number in ASCII text at an address, or UNKNOWN."""
    letters = pointer_u8(text)
    at = 0
    while at < size and letters[at] != 32:
        at += 1
    at += 1
    if at >= size:
        return UNKNOWN
    value, begin = 0, at
    while at < size and 48 <= letters[at] <= 57:
        value = 10 * value + letters[at] - 48
        at += 1
    return value if at > begin else UNKNOWN


@runtime
def read_usage(row, desk):
    """Put a reading of this thread into the row at an address; `desk` is the address of DESK_CELLS cells."""
    out, cells = pointer_i64(row), pointer_i64(desk)
    out[READ] = ticks()
    out[VOLUNTARY], out[INVOLUNTARY], out[MINOR], out[MAJOR] = UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN
    if thread_usage(desk) == 0:
        out[VOLUNTARY], out[INVOLUNTARY] = cells[RU_NVCSW], cells[RU_NIVCSW]
        out[MINOR], out[MAJOR] = cells[RU_MINFLT], cells[RU_MAJFLT]
    out[CORE] = this_core()
    out[RUN_DELAY_NS] = read_run_delay_ns(desk)
    cells[DELAY_NS] = out[RUN_DELAY_NS]


@runtime
def read_run_delay_ns(desk):
    """The time for which this thread was ready but not running so far, or UNKNOWN."""
    cells = pointer_i64(desk)
    if cells[SCHEDSTAT_FD] < 0:
        return UNKNOWN
    text = desk + 8 * USAGE_CELLS
    return second_number(text, read_start(cells[SCHEDSTAT_FD], text, 8 * TEXT_CELLS))


@runtime
def grown_run_delay_ns(desk):
    """Growth of this thread's run delay since its last reading; 0 if either is unknown."""
    cells = pointer_i64(desk)
    before, now = cells[DELAY_NS], read_run_delay_ns(desk)
    cells[DELAY_NS] = now
    return now - before if before >= 0 and now >= 0 else 0
