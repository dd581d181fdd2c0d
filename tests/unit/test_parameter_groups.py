"""Parameters of a kernel that belong together are a NamedTuple: an op names its fields, an entry makes the tuple."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from gpt2core.compile.entries import source_of
from gpt2core.compile.jit import kernel
from gpt2core.measure.tracing import new_record
from gpt2core.schedulers import dispatch
from gpt2core.schedulers.serial.loop import serial_loop
from gpt2core.step.builder import Builder
from gpt2core.step.control import CELLS
from gpt2core.step.grid import ROWS, Grid
from gpt2core.step.memory import Memory
from gpt2core.step.ops import Read, Tensor, Update
from gpt2core.step.signature import Matrix, Scalar, TileInt, Vector, signature
from gpt2core.step.tensors import TensorSpec, plan_arena

PLANS = {"temporary": plan_arena([TensorSpec("x", (6, 3)), TensorSpec("y", (6,))])}
HALVES = Grid(("a", "b"), {"row0": (0, 3), "row1": (3, 6)})


class Some(NamedTuple):
    """A group of parameters of different kinds."""

    row0: TileInt
    row1: TileInt
    times: Scalar


@kernel
def scale_some(x: Matrix, some: Some, y: Vector):
    """x = x * times + y, row by row."""
    for n in range(some.row0, some.row1):
        for c in range(x.shape[1]):
            x[n, c] = x[n, c] * some.times + y[n]


def test_an_op_names_the_fields_of_a_group() -> None:
    step = Builder(PLANS)
    step.op("scale", "forward", scale_some, HALVES, [(1, 1)] * 2,
            x=Update(Tensor("x"), ROWS), y=Read(Tensor("y"), ROWS), times=3)  # fmt: skip
    memory = Memory(PLANS)
    x, y = memory.view(Tensor("x")), memory.view(Tensor("y"))
    x[:], y[:] = np.arange(18).reshape(6, 3), np.arange(6)
    bound = dispatch.bind(step.build(), memory, 1)
    serial_loop(0, bound.tasks, bound.context, new_record(1, 1, 0, 64, 0), np.zeros(CELLS, np.int64), 1)
    np.testing.assert_array_equal(x, 3 * np.arange(18).reshape(6, 3) + np.arange(6)[:, None])


def test_an_entry_makes_a_group_of_its_fields() -> None:
    assert source_of(signature(scale_some)) == (
        "def scale_some_entry(x, t, c):\n"
        "    kernel(\n"
        "        carray(pointer_float32(x[0]), (x[1], x[2],)),  # x\n"
        "        Some(\n"
        "            t[0],  # row0\n"
        "            t[1],  # row1\n"
        "            x[4],  # times\n"
        "        ),  # some\n"
        "        carray(pointer_float32(x[8]), (x[9],)),  # y\n"
        "    )\n"
    )


def test_a_name_in_a_group_and_beside_it_is_refused() -> None:
    def twice(some: Some, row0: TileInt) -> None: ...

    with pytest.raises(TypeError, match="twice: two parameters are named row0"):
        signature(twice)


def test_a_field_without_a_kind_is_refused() -> None:
    class Bare(NamedTuple):
        n: int
        row0: TileInt

    def plain(bare: Bare) -> None: ...

    plain.__annotations__["bare"] = Bare
    with pytest.raises(TypeError, match="plain: parameter n has no annotation"):
        signature(plain)
