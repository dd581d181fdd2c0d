"""Check that a program declares the accesses of its kernels. All memory that a task does not declare to read is
poisoned; the task must still write the right bits, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

import numpy as np

from gpt2core.gemm.table import Products
from gpt2core.measure.tracing import new_record
from gpt2core.schedulers import dispatch
from gpt2core.schedulers.serial.loop import serial_loop
from gpt2core.step.control import STEPS_DONE, STOP
from gpt2core.step.memory import Memory
from gpt2core.step.ops import Access, Mode, Own, Program, Span
from gpt2core.step.tensors import ArenaPlan

READS, WRITES = (Mode.READ, Mode.UPDATE, Mode.REDUCE), (Mode.WRITE, Mode.UPDATE, Mode.REDUCE)
POISON = 0xFF  # a float of these bytes is NaN


def check(
    program: Program,
    plans: Mapping[str, ArenaPlan],
    fill: Callable[[Memory], None],
    products: Products | None = None,
    number_of_step: int = 0,
) -> None:
    """Run every task of one step, first those that run once. `fill` sets the initial memory: constants and weights.
    number_of_step: that kernels get."""
    if program.once:
        check(program.once, plans, fill, products)
    real, poisoned = Memory(plans), Memory(plans)
    for memory in (real, poisoned):
        fill(memory)
        dispatch.run_once(program, memory, products)
    tables = {id(memory): dispatch.bind(program, memory, 1, products) for memory in (real, poisoned)}
    micros = 1 + max(op.micro for op in program.ops)
    record = new_record(1, number_of_step + 1, 0, 64, 0, micros=micros)

    def run(memory: Memory, number: int) -> None:
        bound = tables[id(memory)]
        control = memory.arrays["control"]
        control[STEPS_DONE] = number_of_step
        serial_loop(0, bound.tasks[number : number + 1], bound.context, record, control, number_of_step + 1)
        control[STOP + 1 :] = 0  # the rest of it is the scheduler's

    def copy(accesses: Iterable[Access], modes: Collection[Mode], into: Mapping[str, np.ndarray]) -> None:
        for access in accesses:
            if access.mode in modes:
                for span in program.regions[access.region].spans:
                    copied = zip(parts(into[span.arena], span), parts(real.arenas[span.arena], span), strict=True)
                    for mine, its in copied:
                        mine[...] = its

    operands = [operand for op in program.ops for call in op.calls for operand in call.operands]
    own = {operand.name for operand in operands if isinstance(operand, Own)} | ({"words"} if products else set())
    for number, (op, tile) in enumerate(program.tasks):
        for block in poisoned.arenas.values():
            block[:] = POISON
        poisoned.arrays["control"][:] = 0
        copy(tile.accesses, READS, poisoned.arenas)
        expected = {kind: block.copy() for kind, block in poisoned.arenas.items()}
        run(real, number)
        run(poisoned, number)
        copy(tile.accesses, WRITES, expected)
        for name in own:
            poisoned.arrays[name].view(np.uint8)[:] = POISON
        for kind, block in poisoned.arenas.items():
            if block.tobytes() != expected[kind].tobytes():
                where = differing(program, kind, block, expected[kind])
                raise AssertionError(f"{op.label} {tile.label} does not declare what it does: {where} differs")


def parts(block: np.ndarray, span: Span) -> list[np.ndarray]:
    """Views of a span of an arena."""
    whole = block[span.begin : span.end]
    return [whole.reshape(-1, span.stride)[:, low:high] for low, high in span.columns] or [whole]


def differing(program: Program, kind: str, got: np.ndarray, wanted: np.ndarray) -> str:
    """Location of the first wrong byte."""
    differs = got != wanted
    for region in program.regions:
        if any(span.arena == kind and any(part.any() for part in parts(differs, span)) for span in region.spans):
            return str(region)
    return f"byte {int(np.flatnonzero(differs)[0])} of {kind}"
