"""Measure this node's peaks: `python -m gpt2core.run.roof --result FILE`. It prints one JSON event a line
(process/launch.py).

It measures three peaks with each number of pinned threads:

    products   GFLOP/s of matrix products of 1024 x 1024, one on each thread, by the fastest library
    registers  GFLOP/s of multiply-adds in vector registers
    triad      GB/s of a = b + s * c on arrays larger than the caches, counted as by STREAM: two reads and a write

Products and registers are measured in single precision and in bfloat16. A peak is the rate of the undisturbed node, so
the best repetition counts.

Source: McCalpin 1995 (STREAM).
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpt2core.compile.clock import ticks
from gpt2core.compile.jit import address_of, pointer_f32, runtime
from gpt2core.gemm import libraries as gemm
from gpt2core.gemm import registers
from gpt2core.gemm.libraries import Library
from gpt2core.gemm.multiply import multiply, new_scratch
from gpt2core.gemm.operands import Out, plain
from gpt2core.node import host, load, peaks
from gpt2core.node.topology import spread
from gpt2core.process import trainer
from gpt2core.process.launch import allowed_cores
from gpt2core.schedulers.together import BEGIN, END, times_s
from gpt2core.schedulers.waiting import barrier

SIZE = 1024  # rows and columns of the matrices
PRODUCTS = 12  # a repetition: 0.1 s on a core that does 200 GFLOP/s
TRIADS = 4
TURNS = 5_000_000  # of all chains in registers: 0.02 s on a core that does two of 16 lanes in a cycle
ARRAY_BYTES, THREAD_BYTES = 64 << 20, 16 << 20  # of each of triad's three arrays: at least, and for each thread
REPETITIONS = 5


@runtime
def products_loop(thread, by, scratch, matrices, size, times, cells, threads, spin):
    """Multiply this thread's matrices PRODUCTS times, all threads at once."""
    base, mine = matrices[thread], (by[0], by[1], by[2], scratch[thread])
    a, b, c = base, base + 4 * size * size, base + 8 * size * size
    barrier(address_of(cells, 0), threads, spin)
    times[thread, 0, BEGIN] = ticks()
    for _ in range(PRODUCTS):
        multiply(mine, size, size, size, plain(a, size), plain(b, size), Out(c, size, 0, 1))
    times[thread, 0, END] = ticks()


@runtime
def registers_loop(thread, kind, value, sums, turns, times, cells, threads, spin):
    """Multiply and add in registers, all threads at once; the sums are stored, so that the compiler cannot drop
    them."""
    barrier(address_of(cells, 0), threads, spin)
    times[thread, 0, BEGIN] = ticks()
    if kind == registers.PAIRS_KIND:
        sums[thread, 0] = registers.pair_multiply_adds(turns, value)
    elif kind == registers.TILES_KIND:
        sums[thread, 0] = registers.tile_multiply_adds(turns, value)
    else:
        sums[thread, 0] = registers.multiply_adds(turns, value)
    times[thread, 0, END] = ticks()


@runtime
def triad_loop(thread, arrays, elements, times, cells, threads, spin):
    """a = b + s * c on this thread's share of the arrays TRIADS times, all threads at once."""
    a, b, c = pointer_f32(arrays[0]), pointer_f32(arrays[1]), pointer_f32(arrays[2])
    first, last = elements * thread // threads, elements * (thread + 1) // threads
    for i in range(first, last):
        a[i], b[i], c[i] = np.float32(0), np.float32(1), np.float32(2)
    barrier(address_of(cells, 0), threads, spin)
    times[thread, 0, BEGIN] = ticks()
    for _ in range(TRIADS):
        for i in range(first, last):
            a[i] = b[i] + np.float32(3) * c[i]
    times[thread, 0, END] = ticks()


def best_s(cores: Sequence[int], loop: Callable[..., None], arguments: Sequence[Any]) -> float:
    """Seconds of the fastest repetition."""
    return min(times_s(cores, loop, arguments)[0] for _ in range(REPETITIONS))


def gflop_per_s(cores: Sequence[int], library: Library) -> float:
    matrices, scratch = np.ones((len(cores), 3, SIZE, SIZE), np.float32), [new_scratch() for _ in cores]
    addresses: NDArray[np.int64] = matrices.ctypes.data + np.arange(len(cores)) * matrices.strides[0]
    of_thread = np.array([address for _, address in scratch], np.int64)
    seconds = best_s(cores, products_loop, [library.by(), of_thread, addresses, SIZE])
    return len(cores) * PRODUCTS * 2 * SIZE**3 / seconds / 1e9


def registers_gflop_per_s(cores: Sequence[int], kind: int) -> float:
    sums = np.zeros((len(cores), 16), np.float32)  # a cache line each
    turns = TURNS * registers.flop(registers.FLOATS_KIND) // registers.flop(kind)
    seconds = best_s(cores, registers_loop, [kind, np.float32(0.5), sums, turns])
    return len(cores) * turns * registers.flop(kind) / seconds / 1e9


def all_registers_gflop_per_s(cores: Sequence[int]) -> dict[str, float | None]:
    """By precision."""
    rates = {kind: registers_gflop_per_s(cores, kind) for kind in registers.kinds_of_bf16()}
    return {
        "registers_gflop_per_s": rates[registers.FLOATS_KIND],
        "bf16_registers_gflop_per_s": max(rates.values()),
    }


def triad_gb_per_s(cores: Sequence[int]) -> float:
    elements = max(ARRAY_BYTES, THREAD_BYTES * len(cores)) // 4
    arrays = [np.empty(elements, np.float32) for _ in range(3)]
    addresses = np.array([array.ctypes.data for array in arrays], np.int64)
    seconds = best_s(cores, triad_loop, [addresses, elements])
    return TRIADS * 3 * 4 * elements / seconds / 1e9


def named(libraries: Sequence[Library]) -> dict[str, str]:
    return {key: ", ".join(getattr(library, key) for library in libraries) for key in ("name", "version")}


def measure(counts: Sequence[int], tell: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """The peaks by number of threads, on the cores that a team of so many threads takes."""
    cores, libraries, others = spread(allowed_cores()), gemm.available(), load.Others()
    of_bf16 = gemm.available("bf16")
    found: dict[str, dict[str, float | None]] = {}
    for done, count in enumerate(counts):
        tell({"event": "peak", "done": done, "total": len(counts), "threads": count})
        team = cores[:count]
        found[str(count)] = {
            "gflop_per_s": max(gflop_per_s(team, library) for library in libraries),
            "bf16_gflop_per_s": max(gflop_per_s(team, library) for library in of_bf16),
            **all_registers_gflop_per_s(team),
            "triad_gb_per_s": triad_gb_per_s(team),
        }
    return {
        "schema": peaks.SCHEMA,
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "blas": {**named(libraries), "bf16": named(of_bf16)},
        "load_average": next(iter(host.load_average() or ()), None),
        "busy_cores": others.busy_cores(),
        "threads": found,
    }


def main() -> int:
    """Measure, store and report the peaks; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m gpt2core.run.roof", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--result", type=Path, required=True, help="file for the result (JSON)")
    arguments = parser.parse_args()

    def work(_: threading.Event) -> None:
        trainer.started()
        found = measure(peaks.thread_counts(len(allowed_cores())), trainer.emit)
        trainer.deliver(arguments.result, peaks.keep(found))

    return trainer.main(work)


if __name__ == "__main__":
    trainer.leave(main())
