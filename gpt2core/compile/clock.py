"""A clock cheap enough to read twice a task: the processor's constant-rate counter, calibrated against
CLOCK_MONOTONIC over the whole run. Where there is no such counter, clock_gettime itself.
"""

from __future__ import annotations

import platform
import time
from dataclasses import dataclass
from pathlib import Path

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from gpt2core.compile.jit import runtime


def _source() -> str:
    """tsc or clock_gettime: what `ticks` reads on this machine."""
    if platform.machine() == "x86_64":
        try:
            flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("flags")[2].partition("\n")[0].split()
        except OSError:
            flags = []
        if "constant_tsc" in flags:
            return "tsc"
    return "clock_gettime"


SOURCE = _source()


@intrinsic
def ticks(typingctx):
    """The counter, as int64. Only differences mean anything; `Calibration` turns them into seconds."""
    i64 = ir.IntType(64)

    def codegen(context, builder, signature, args):
        if SOURCE == "tsc":
            name, kind = "llvm.readcyclecounter", ir.FunctionType(i64, [])
            function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
            return builder.call(function, [])
        kind = ir.FunctionType(ir.IntType(32), [ir.IntType(32), ir.PointerType(i64)])
        name = "clock_gettime"
        function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        spec = builder.alloca(i64, 2)
        builder.call(function, [ir.Constant(ir.IntType(32), 1), spec])
        seconds, nanos = (builder.load(builder.gep(spec, [ir.Constant(ir.IntType(32), i)])) for i in (0, 1))
        return builder.add(builder.mul(seconds, ir.Constant(i64, 1_000_000_000)), nanos)

    return types.int64(), codegen


@runtime
def read_ticks():
    """The counter, for Python."""
    return ticks()


@dataclass(frozen=True)
class Calibration:
    """Seconds a tick, from two paired readings of the counter and of CLOCK_MONOTONIC."""

    seconds_per_tick: float

    @classmethod
    def between(cls, first: tuple[int, int], last: tuple[int, int]) -> Calibration:
        """From two `pair()`s; at least some milliseconds should lie between them."""
        if last[0] == first[0]:
            raise ValueError("the counter did not advance between the two readings")
        return cls((last[1] - first[1]) * 1e-9 / (last[0] - first[0]))


def pair() -> tuple[int, int]:
    """(ticks, monotonic nanoseconds) read as close together as can be: the tightest of a few tries."""
    best = None
    for _ in range(5):
        before = time.monotonic_ns()
        count = int(read_ticks())
        after = time.monotonic_ns()
        if best is None or after - before < best[0]:
            best = (after - before, count, (before + after) // 2)
    assert best is not None
    return best[1], best[2]
