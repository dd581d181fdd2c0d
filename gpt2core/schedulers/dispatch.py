"""From a step program to what compiled code needs to run its tasks: addresses and integers in flat tables."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpt2core.arena import Memory
from gpt2core.config import PHASES
from gpt2core.machine.clock import ticks
from gpt2core.machine.jit import CONTEXT_SIZE, OPERAND_SIZE, SCRATCH, SGEMM, address_of, call_entry, runtime
from gpt2core.ops import Program
from gpt2core.tracing import note

ENTRY, OPERANDS, TILE, KIND, PHASE = range(5)
COLUMNS = 8  # of the task table; one cache line a task


@dataclass(frozen=True)
class Dispatch:
    """`tasks` (n, COLUMNS) int64 is the task table; `context` (P, CONTEXT_SIZE) a line for each thread; `op_first` (ops
    + 1,) where each op's tasks begin. `kinds` are the op names that times are summed by. The rest is kept alive here.
    """

    tasks: NDArray[np.int64]
    context: NDArray[np.int64]
    op_first: NDArray[np.int64]
    kinds: tuple[tuple[str, str], ...]
    operands: NDArray[np.int64]
    tiles: NDArray[np.int64]


def bind(program: Program, memory: Memory, threads: int, sgemm: int) -> Dispatch:
    """Resolve every kernel and operand to its address."""
    kinds = tuple(dict.fromkeys((op.name, op.phase) for op in program.ops))
    kind_of = {kind: number for number, kind in enumerate(kinds)}
    slots = max(len(op.operands) for op in program.ops)
    width = max(len(tile.args) for op in program.ops for tile in op.tiles)
    count = sum(len(op.tiles) for op in program.ops)
    operands = np.zeros((len(program.ops), slots * OPERAND_SIZE), np.int64)
    tiles = np.zeros((count, max(width, 1)), np.int64)
    tasks = np.zeros((count, COLUMNS), np.int64)
    op_first = np.zeros(len(program.ops) + 1, np.int64)
    row = 0
    for number, op in enumerate(program.ops):
        flat = [cell for operand in op.operands for cell in memory.operand(operand)]
        operands[number, : len(flat)] = flat
        op_first[number] = row
        for tile in op.tiles:
            tiles[row, : len(tile.args)] = tile.args
            tasks[row, :5] = (
                op.entry.address,
                operands[number].ctypes.data,
                tiles[row].ctypes.data,
                kind_of[op.name, op.phase],
                PHASES.index(op.phase),
            )
            row += 1
    op_first[-1] = row
    context = np.zeros((threads, CONTEXT_SIZE), np.int64)
    scratch = memory.arrays.get("scratch")
    for thread in range(threads):
        context[thread, SGEMM] = sgemm
        context[thread, SCRATCH] = 0 if scratch is None else scratch[thread].ctypes.data
    return Dispatch(tasks, context, op_first, kinds, operands, tiles)


@runtime
def run_task(tasks, context, record, thread, step, task):
    """Run one task on this thread and write down how long it took."""
    context[thread, 0] = step
    begin = ticks()
    row = tasks[task]
    call_entry(row[0], row[1], row[2], address_of(context, thread * context.shape[1]))
    note(record, thread, step, task, row[3], row[4], begin, ticks())
