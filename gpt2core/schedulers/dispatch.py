"""Converts a step program into flat tables of addresses and integers, from which compiled code runs its tasks."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpt2core.compile.atomics import pause, yield_core
from gpt2core.compile.clock import ticks
from gpt2core.compile.entries import kernel_entry
from gpt2core.compile.jit import (
    COMPLETE,
    CONTEXT_SIZE,
    OF_KERNEL,
    OPERAND_SIZE,
    SCRATCH,
    STEP,
    THREAD,
    address,
    address_of,
    call_entry,
    entry,
    inlined,
    pointer_i64,
)
from gpt2core.gemm.table import Products
from gpt2core.measure.tracing import LAST_BEGIN, begins, close_wait, note
from gpt2core.spec import settings
from gpt2core.step import tensors
from gpt2core.step.memory import Memory
from gpt2core.step.ops import Call, Product, Program
from gpt2core.step.signature import Array, signature

ENTRY, OPERANDS, TILE, KIND, PHASE, NUMBER, NEXT = range(7)
CALL = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)  # an entry's type
COLUMNS = 8  # of the tables; one cache line a call
# Operands of hold_entry: a task's own entry, its operands, the entry of its poll, and the number of its op's name.
START, ON, POLL, NAME = range(4)


@dataclass(frozen=True)
class Dispatch:
    """A program as tables. A call's NUMBER is its index in the program."""

    tasks: NDArray[np.int64]  # (n, COLUMNS) each task's first call; NEXT: address of the task's next call, or 0
    later: tuple[int, ...]  # tasks that are complete only after they ran; those of `tasks` hold their thread until then
    held: NDArray[np.int64]  # (later, OPERAND_SIZE) operands of hold_entry
    waits: tuple[str, ...]  # names of their ops
    context: NDArray[np.int64]  # (P, CONTEXT_SIZE) a line for each thread
    op_first: NDArray[np.int64]  # (loops + 1,) where the tasks of each loop, an op or ops side by side, begin
    kinds: tuple[tuple[str, str], ...]  # (name, phase) by which times are summed
    blas: Mapping[tuple[str, str], str]  # libraries of their products
    kept: tuple[NDArray[np.int64], ...]  # memory to which the tables point

    @property
    def started(self) -> NDArray[np.int64]:
        """`tasks`, of which those that are complete only later return once they have started it."""
        if not self.later:
            return self.tasks
        tasks, later = self.tasks.copy(), list(self.later)
        tasks[later, ENTRY], tasks[later, OPERANDS] = self.held[:, START], self.held[:, ON]
        return tasks


@entry(OF_KERNEL)
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
    """Put a random delay before every task: replace the table's entries by dawdle_entry; return its operands."""
    operands = np.zeros((len(tasks), OPERAND_SIZE), np.int64)
    operands[:, 0:2] = tasks[:, [ENTRY, OPERANDS]]
    operands[:, 2], operands[:, 3] = np.arange(len(tasks)), seed
    tasks[:, ENTRY] = dawdle_entry.address
    tasks[:, OPERANDS] = operands.ctypes.data + np.arange(len(tasks)) * operands.strides[0]
    return operands


@entry(OF_KERNEL)
def hold_entry(x, t, c):
    """Run a task that only starts something, and hold the thread until it is complete. operands: START, ON, POLL, NAME.
    """
    call_entry(x[START], x[ON], address(t), address(c))
    c[COMPLETE] = 0
    while c[COMPLETE] == 0:
        call_entry(x[POLL], x[ON], address(t), address(c))
        if c[COMPLETE] == 0:
            yield_core()


def bind(program: Program, memory: Memory, threads: int, products: Products | None = None) -> Dispatch:
    """Resolve every kernel and operand to its address. A program without matrix products needs no `products`.

    A task that is complete only later holds its thread until it is, so that every scheduler may run it; one that knows
    both moments uses `Dispatch.started`.

    With TASKLOOM_STRESS set to a number, every task is preceded by a random delay with that seed.
    """
    calls = [call for op in program.ops for call in op.calls]
    kinds = tuple(dict.fromkeys((call.name, call.phase) for call in calls))
    kind_of = {kind: number for number, kind in enumerate(kinds)}
    slots = max(len(call.operands) for call in calls)
    width = max(len(work.args) for *_, work in program.calls)
    count = len(program.calls)
    operands = np.zeros((len(calls), slots * OPERAND_SIZE), np.int64)
    args = np.zeros((count, max(width, 1)), np.int64)
    tasks = np.zeros((len(program.tasks), COLUMNS), np.int64)
    following = np.zeros((count - len(tasks) + 1, COLUMNS), np.int64)
    later = tuple(task for task, (op, _) in enumerate(program.tasks) if op.poll)
    held = np.zeros((len(later), OPERAND_SIZE), np.int64)
    named = tuple(dict.fromkeys(op.name for op in program.ops if op.poll))
    task, number, place, more, rows_held = 0, 0, 0, 0, iter(held)
    for op in program.ops:
        for call in op.calls:
            flat = operands_of(call, memory, products)
            operands[place, : len(flat)] = flat
            place += 1
        for tile in op.tiles:
            row = tasks[task]
            for at, (call, work) in enumerate(zip(op.calls, tile.work, strict=True), start=place - len(op.calls)):
                if row[ENTRY]:
                    row[NEXT] = following[more].ctypes.data
                    row, more = following[more], more + 1
                args[number, : len(work.args)] = work.args
                row[:NEXT] = (
                    kernel_entry(call.kernel, call.dtypes).address,
                    operands[at].ctypes.data,
                    args[number].ctypes.data,
                    kind_of[call.name, call.phase],
                    op.micro * len(program.phases) + program.phases.index(call.phase),
                    number,
                )
                number += 1
            if op.poll:
                row, waits = tasks[task], next(rows_held)
                poll = kernel_entry(op.poll, op.calls[0].dtypes).address
                waits[:] = row[ENTRY], row[OPERANDS], poll, named.index(op.name)
                row[ENTRY], row[OPERANDS] = hold_entry.address, waits.ctypes.data
            task += 1
    seed = settings.stress()
    delays = np.zeros((0, 0), np.int64) if seed is None else dawdling(tasks, seed)
    context = np.zeros((threads, CONTEXT_SIZE), np.int64)
    context[:, THREAD] = np.arange(threads)
    if products:
        words = memory.arrays[tensors.SCRATCH]
        context[:, SCRATCH] = words.ctypes.data + np.arange(threads) * words.strides[0]
    blas = {
        (call.name, call.phase): str(products.of(operand))
        for call in calls
        for operand in call.operands
        if products and isinstance(operand, Product)
    }
    op_first = np.array(program.loop_first, np.int64)
    return Dispatch(tasks, later, held, named, context, op_first, kinds, blas, (operands, args, following, delays))


def run_once(program: Program, memory: Memory, products: Products | None = None) -> None:
    """Compute the constants that a program derives from constants, once these are filled."""
    if program.once:
        bound = bind(program.once, memory, 1, products)
        for task in bound.tasks:
            CALL(int(task[ENTRY]))(int(task[OPERANDS]), int(task[TILE]), bound.context.ctypes.data)


def operands_of(call: Call, memory: Memory, products: Products | None) -> list[int]:
    """The cells of a call's operands.

    Raises ValueError for a product without a library, TypeError for an array of another dtype or rank than its
    parameter.
    """
    flat: list[int] = []
    known = signature(call.kernel).of(call.dtypes).operands
    for (name, kind), operand in zip(known.items(), call.operands, strict=True):
        if isinstance(operand, int):
            flat += (operand, 0, 0, 0)
        elif isinstance(operand, Product):
            if products is None:
                raise ValueError(f"no library was chosen for the product {operand}")
            flat += products.operand(operand)
        elif operand is None:
            flat += (0, 0, 0, 0)
        else:
            array = memory.view(operand)
            if isinstance(kind, Array) and kind.flat:
                array = array.reshape(-1)
            if not isinstance(kind, Array) or (str(array.dtype), min(array.ndim, 2)) != (kind.dtypes[0], kind.rank):
                found = f"{array.dtype} {array.shape}"
                raise TypeError(f"{call.name} {call.phase}: {name} takes {kind}; {operand} is {found}")
            # Kernels take at most two dimensions: inner ones are merged.
            first, second = array.shape[0], math.prod(array.shape[1:]) if array.ndim > 1 else 0
            flat += (int(array.ctypes.data), first, second, memory.own_stride(operand))
    return flat


@inlined
def run_task(tasks, context, record, thread, step, task):
    """Run one task on this thread. Record how long each of its calls took, and the wait that it ends."""
    run_calls(tasks, context, record, thread, step, task)
    close_wait(record, thread, record.waited[thread, LAST_BEGIN])


@inlined
def run_calls(tasks, context, record, thread, step, task):
    """Run one task's calls on this thread and record how long each took."""
    context[thread, STEP] = step
    begin = begins(record, thread, ticks())
    start = begin
    at = address_of(tasks, task * tasks.shape[1])
    while at != 0:
        row = pointer_i64(at)
        call_entry(row[ENTRY], row[OPERANDS], row[TILE], address_of(context, thread * context.shape[1]))
        end = ticks()
        note(record, thread, step, task, row[NUMBER], row[KIND], row[PHASE], begin, end)
        begin, at = end, row[NEXT]
    record.waited[thread, LAST_BEGIN] = start
