"""A canary: fixed work that is timed before and after a run's steps, on its cores, with all threads at once.

It is machine code, listed below for x86-64 and 64-bit Arm, so no version of Taskloom, LLVM or NumPy changes it. If step
times change and the canary's do not, the software changed; if both change, the machine did (analysis/history.py). Half
of its time goes to arithmetic in registers, half to memory that a core's own cache does not hold. It shows neither the
clock rate of wide vectors nor effects of larger memory.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from llvmlite import ir

from gpt2core.compile.clock import ticks
from gpt2core.compile.jit import address_of, intrinsic, runtime, types
from gpt2core.compile.line import LINE_BYTES
from gpt2core.compile.llvm import I64, VOID
from gpt2core.node import pages
from gpt2core.run.first_touch import touch
from gpt2core.schedulers.together import BEGIN, END, times_s
from gpt2core.schedulers.waiting import barrier

THREAD_BYTES = 4 << 20
PASSES = 4  # over a thread's memory in a repetition: about 1 ms
REPETITIONS = 16  # before the steps, and as many after them

# Address and number of lines are $0 and $1. Eight chains x = x / 2 + 1 / 2; all four parts of a line are read.
X86_64 = "\n".join([
    "mov $0, %r8", "mov $1, %r9",
    "mov $$0x3f000000, %eax", "movd %eax, %xmm8", "shufps $$0, %xmm8, %xmm8",
    *(f"xorps %xmm{i}, %xmm{i}" for i in (*range(8), 9)),
    ".p2align 6", "1:",
    *(f"mulps %xmm8, %xmm{i}\naddps %xmm8, %xmm{i}" for i in range(8)),
    *(f"orps {16 * part}(%r8), %xmm9" for part in range(4)),
    f"add $${LINE_BYTES}, %r8", "dec %r9", "jnz 1b",
])  # fmt: skip
AARCH64 = "\n".join([
    "mov x8, $0", "mov x9, $1",
    "fmov v8.4s, #0.5",
    *(f"movi v{i}.2d, #0" for i in (*range(8), 9)),
    ".p2align 6", "1:",
    *(f"fmul v{i}.4s, v{i}.4s, v8.4s\nfadd v{i}.4s, v{i}.4s, v8.4s" for i in range(8)),
    *(f"ldr q10, [x8, #{16 * part}]\norr v9.16b, v9.16b, v10.16b" for part in range(4)),
    f"add x8, x8, #{LINE_BYTES}", "subs x9, x9, #1", "b.ne 1b",
])  # fmt: skip
CODES = {"x86_64": X86_64, "aarch64": AARCH64}
CLOBBERED = {
    "x86_64": ["rax", "r8", "r9", *(f"xmm{i}" for i in range(10)), "memory", "dirflag", "fpsr", "flags"],
    "aarch64": ["x8", "x9", *(f"v{i}" for i in range(11)), "memory", "cc"],
}
CODE = CODES.get(platform.machine(), "")
UNAVAILABLE = None if CODE else f"no canary exists for {platform.machine()}"


def identity(code: str) -> str:
    """A hash of the work."""
    return hashlib.sha256(f"{code} {THREAD_BYTES} {PASSES}".encode()).hexdigest()


IDENTITY = identity(CODE)


@intrinsic
def one_pass(typingctx, address, lines):
    """The fixed code over a number of lines at an address, which is a multiple of 16."""

    def codegen(context, builder, signature, args):
        constraint = ",".join(["r", "r", *(f"~{{{name}}}" for name in CLOBBERED[platform.machine()])])
        builder.asm(ir.FunctionType(VOID, [I64, I64]), CODE, constraint, args, side_effect=True)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@runtime
def canary_loop(thread, addresses, times, cells, threads, spin):
    """Touch this thread's memory, then pass over it, all threads at once; records (begin, end) of each repetition in
    ticks."""
    address = addresses[thread]
    touch(address, address + THREAD_BYTES)
    one_pass(address, THREAD_BYTES // LINE_BYTES)
    for repetition in range(REPETITIONS):
        barrier(address_of(cells, 0), threads, spin)
        times[thread, repetition, BEGIN] = ticks()
        for _ in range(PASSES):
            one_pass(address, THREAD_BYTES // LINE_BYTES)
        times[thread, repetition, END] = ticks()


@dataclass
class Canary:
    """The canary of one run, on its cores."""

    cores: Sequence[int]
    times_s: list[float] = field(default_factory=list)

    def time(self) -> None:
        """Add the times of REPETITIONS repetitions, each from its first thread's begin to its last one's end."""
        if UNAVAILABLE is not None:
            return
        threads = len(self.cores)
        memory = np.frombuffer(pages.reserve(threads * THREAD_BYTES), np.uint8)
        addresses = memory.ctypes.data + THREAD_BYTES * np.arange(threads)
        self.times_s += times_s(self.cores, canary_loop, [addresses], REPETITIONS)

    def about(self) -> dict[str, Any]:
        """The block `canary` of a result."""
        return {"sha256": IDENTITY, "times_s": self.times_s, "unavailable": UNAVAILABLE}
