"""A clock that is cheap enough to be read twice for each task.

It is the processor's constant-rate counter, calibrated against CLOCK_MONOTONIC over the whole run. Where there is no
such counter, it is clock_gettime (`target.clock`).
"""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass

from llvmlite import ir

from gpt2core.compile import llvm, target
from gpt2core.compile.calls import Call
from gpt2core.compile.jit import cgutils, intrinsic, runtime, types
from gpt2core.compile.llvm import I32, I64

CLOCK_MONOTONIC = 1


@intrinsic
def ticks(typingctx):
    """The counter as int64. Only differences have a meaning; `Calibration` converts them into seconds."""

    def codegen(context, builder, signature, args):
        if target.clock() == "tsc":
            return llvm.call(builder, "llvm.readcyclecounter", I64)
        if target.clock() == "cntvct":  # for LLVM the cycle counter is another one, which Linux does not let us read
            return builder.asm(ir.FunctionType(I64, []), "mrs $0, cntvct_el0", "=r", [], side_effect=True)
        time = cgutils.alloca_once(builder, ir.ArrayType(I64, 2))  # once: a loop that allocates overflows the stack
        llvm.call(builder, "clock_gettime", I32, [ir.Constant(I32, CLOCK_MONOTONIC), time])
        seconds, nanos = cgutils.unpack_tuple(builder, builder.load(time), 2)
        return builder.add(builder.mul(seconds, ir.Constant(I64, 1_000_000_000)), nanos)

    return types.int64(), codegen


@runtime
def read_ticks():
    """The counter, for Python."""
    return ticks()


@functools.cache
def _ready() -> Call:
    """A prepared call of read_ticks, which spends no time on arguments."""
    return read_ticks.ready()  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Calibration:
    """Seconds per tick, from two paired readings of the counter and of CLOCK_MONOTONIC."""

    seconds_per_tick: float

    @classmethod
    def between(cls, first: tuple[int, int], last: tuple[int, int]) -> Calibration:
        """Calibrate with two `pair()`s, milliseconds apart or more. Raises ValueError if the counter stood still."""
        if last[0] == first[0]:
            raise ValueError("the counter did not advance between the two readings")
        return cls((last[1] - first[1]) * 1e-9 / (last[0] - first[0]))


def pair() -> tuple[int, int]:
    """(ticks, monotonic nanoseconds) of one instant: of five attempts the one whose readings were closest together."""
    best = None
    read = _ready()
    for _ in range(5):
        before = time.monotonic_ns()
        count = read()
        after = time.monotonic_ns()
        if best is None or after - before < best[0]:
            best = (after - before, count, (before + after) // 2)
    assert best is not None
    return best[1], best[2]
