"""From a step program to what compiled code needs to run its tasks: addresses and integers in flat tables."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpt2core.arena import Memory
from gpt2core.config import PHASES
from gpt2core.machine.atomics import pause
from gpt2core.machine.clock import ticks
from gpt2core.machine.jit import (
    CONTEXT_SIZE,
    OPERAND_SIZE,
    SCRATCH,
    SGEMM,
    STEP,
    address,
    address_of,
    call_entry,
    entry,
    inlined,
)
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
    delays: NDArray[np.int64]


@entry
def dawdle_entry(x, t, c):
    """Stress mode: wait for a time that depends on the task, the step and the seed, then run the real entry.

    operands: its address, its operands' address, the task's number, the seed.
    """
    mixed = (x[2] * 2654435761 + c[STEP] * 40503 + x[3] * 97) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 15)) * 2246822519) & 0xFFFFFFFF
    if mixed & 3 == 0:
        for _ in range((mixed >> 8) & 0xFFF):
            pause()
    call_entry(x[0], x[1], address(t), address(c))


def dawdling(tasks: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Put a random delay before every task: stands the table's entries behind dawdle_entry; returns its operands."""
    operands = np.zeros((len(tasks), OPERAND_SIZE), np.int64)
    operands[:, 0:2] = tasks[:, [ENTRY, OPERANDS]]
    operands[:, 2], operands[:, 3] = np.arange(len(tasks)), seed
    tasks[:, ENTRY] = dawdle_entry.address
    tasks[:, OPERANDS] = operands.ctypes.data + np.arange(len(tasks)) * operands.strides[0]
    return operands


def bind(program: Program, memory: Memory, threads: int, sgemm: int) -> Dispatch:
    """Resolve every kernel and operand to its address.

    With TASKLOOM_STRESS set to a number, every task is preceded by a random delay with that seed.
    """
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
    stress = os.environ.get("TASKLOOM_STRESS")
    delays = dawdling(tasks, int(stress)) if stress else np.zeros((0, 0), np.int64)
    context = np.zeros((threads, CONTEXT_SIZE), np.int64)
    scratch = memory.arrays.get("scratch")
    for thread in range(threads):
        context[thread, SGEMM] = sgemm
        context[thread, SCRATCH] = 0 if scratch is None else scratch[thread].ctypes.data
    return Dispatch(tasks, context, op_first, kinds, operands, tiles, delays)


@inlined
def run_task(tasks, context, record, thread, step, task):
    """Run one task on this thread and write down how long it took."""
    context[thread, 0] = step
    begin = ticks()
    row = tasks[task]
    call_entry(row[0], row[1], row[2], address_of(context, thread * context.shape[1]))
    note(record, thread, step, task, row[3], row[4], begin, ticks())
