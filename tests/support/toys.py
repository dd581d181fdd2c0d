"""Toy step programs of stamped tasks. They count tasks that run before their inputs."""

from __future__ import annotations

import dataclasses

from gpt2core.compile import atomics
from gpt2core.compile.jit import kernel
from gpt2core.step.builder import Builder
from gpt2core.step.control import CELLS
from gpt2core.step.grid import Grid
from gpt2core.step.memory import Memory
from gpt2core.step.ops import Op, Own, Program, Read, Tensor, Update
from gpt2core.step.signature import Int64s, OwnInt64s, Step, TileInt
from gpt2core.step.tensors import TensorSpec, plan_arena


@kernel
def stamp(
    stamps: Int64s, before: Int64s, inputs: Int64s, violations: OwnInt64s, step: Step, number: TileInt,
    first: TileInt, last: TileInt, dawdle: TileInt,
) -> None:  # fmt: skip
    """Task `number` checks that its inputs carry this step, waits for some rounds, then stamps itself.

    Writes:   stamps (tasks,), its own, which carries the step before, to this one; violations (any,) +=
    Reads:    before: the same stamps; inputs: whose, from `first` to `last`
    """
    for i in range(first, last):
        if before[inputs[i]] != step + 1:
            violations[0] += 1
    if stamps[number] != step:
        violations[0] += 1
    for _ in range(dawdle):
        atomics.pause()
    stamps[number] = step + 1


def toy(inputs: list[list[int]], dawdle: list[int]) -> tuple[Program, Memory]:
    """Task i reads the values of inputs[i], all below i, and writes its own."""
    flat = [j for each in inputs for j in each]
    shapes = {"stamps": (len(inputs),), "inputs": (len(flat) + 1,), "violations": (8, 8), "control": (CELLS,)}
    specs = [TensorSpec(name, shape, "int64", constant=name == "inputs") for name, shape in shapes.items()]
    plans = {"temporary": plan_arena(specs)}
    step = Builder(plans)
    at = 0
    for number, each in enumerate(inputs):
        columns = {"number": (number,), "first": (at,), "last": (at + len(each),), "dawdle": (dawdle[number],)}
        step.op(
            "stamp", "forward", stamp,
            Grid((str(number),), columns, {"inputs": ([(j, j + 1) for j in each],)}), [(1, 1)],
            stamps=Update(Tensor("stamps"), "number"), before=Read(Tensor("stamps"), "inputs"),
            inputs=Read(Tensor("inputs")), violations=Own("violations"),
        )  # fmt: skip
        at += len(each)
    memory = Memory(plans)
    memory.arrays["inputs"][: len(flat)] = flat
    return step.build(), memory


def wide(step: Program, *parts: slice) -> Program:
    """The ops of each part as one op of many tiles."""
    ops = [step.ops[part] for part in parts]
    return dataclasses.replace(
        step, ops=tuple(Op(None, each[0].calls, tuple(tile for op in each for tile in op.tiles)) for each in ops)
    )
