"""Ops are declared on rows of tensors; operands, regions, errors and entries follow from the declarations."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import numpy as np
import pytest

from gpt2core.compile import objects
from gpt2core.compile.bfloat16 import whole
from gpt2core.compile.entries import kernel_entry, source_of
from gpt2core.compile.jit import kernel
from gpt2core.measure.tracing import new_record
from gpt2core.schedulers import dispatch
from gpt2core.schedulers.serial.loop import serial_loop
from gpt2core.spec.errors import GraphError
from gpt2core.step import graph
from gpt2core.step.builder import Builder
from gpt2core.step.control import CELLS
from gpt2core.step.grid import ONE_TILE, ROWS, Grid
from gpt2core.step.memory import Memory
from gpt2core.step.ops import Arena, Mode, Own, Program, Read, Reduce, Tensor, Update, Write
from gpt2core.step.signature import (
    Array,
    Float64s,
    Int64s,
    Matrix,
    MatrixOrHalves,
    OwnVector,
    Scalar,
    Step,
    TileInt,
    Vector,
    signature,
)  # fmt: skip
from gpt2core.step.tensors import HALF, ITEMSIZE, TensorSpec, plan_arena
from tests.support import poison
from tests.support.dependencies import of_program
from tests.support.present import present

PLANS = {
    "weights": plan_arena([TensorSpec("w", (2, 4, 3)), TensorSpec("b", (2, 4))]),
    "temporary": plan_arena([
        TensorSpec("x", (6, 3)), TensorSpec("y", (6,)), TensorSpec("own", (2, 8)), TensorSpec("wide", (6,), "float64"),
        TensorSpec("control", (8,), "int64"),
    ]),
}  # fmt: skip
HALVES = Grid(("a", "b"), {"row0": (0, 3), "row1": (3, 6)})


@kernel
def row_sums(y: Vector, x: Matrix, scratch: OwnVector, times: Scalar, step: Step, row0: TileInt, row1: TileInt):
    """y = (sum of each row of x) * times + step, computed in scratch."""
    for n in range(row0, row1):
        scratch[0] = 0
        for c in range(x.shape[1]):
            scratch[0] += x[n, c]
        y[n] = scratch[0] * times + step


@kernel
def fill(x: Matrix, row0: TileInt, row1: TileInt):
    x[row0:row1] = 1


@kernel
def scale_all(values: Vector, a: TileInt, b: TileInt):
    for i in range(a, b):
        values[i] *= 2


@kernel
def widen(y: Matrix, x: MatrixOrHalves, row0: TileInt, row1: TileInt):
    for n in range(row0, row1):
        for c in range(x.shape[1]):
            y[n, c] = whole(x[n, c])


@kernel
def note(control: Int64s):
    control[1] = 1


@kernel
def note_float(found: Float64s):
    found[0] = 1


def sums(step: Builder, grid: Grid = HALVES, **change: Any) -> None:
    given: dict[str, Any] = {
        "y": Write(Tensor("y"), ROWS), "x": Read(Tensor("x"), ROWS), "scratch": Own("own"), "times": 3, **change
    }  # fmt: skip
    step.op("sums", "forward", row_sums, grid, [(1, 1)] * len(grid), **given)


def filled(step: Builder) -> None:
    step.op("fill", "forward", fill, HALVES, [(1, 1)] * 2, x=Write(Tensor("x"), ROWS))


def touched(program: Program, op: int, tile: int) -> dict[str, Mode]:
    """Mode by the name of each region of a tile."""
    return {str(program.regions[a.region]): a.mode for a in program.ops[op].tiles[tile].accesses}


def test_a_program_runs_from_its_declaration_alone() -> None:
    step = Builder(PLANS)
    filled(step)
    sums(step)
    program = step.build()
    graph.validate(program, graph.build(program, "none"))
    assert set(of_program(program)) == {(0, 2), (1, 3)}
    poison.check(program, PLANS, lambda _: None)


def test_rows_that_overlap_conflict_whatever_their_ranges() -> None:
    step = Builder(PLANS)
    filled(step)
    sums(step, Grid(("c", "d"), {"row0": (0, 2), "row1": (2, 6)}))
    program = step.build()
    edges = of_program(program)
    assert edges == [(0, 2), (0, 3), (1, 3)]
    assert touched(program, 1, 1) == {"x[2]": Mode.READ, "x[3]": Mode.READ, "y[2]": Mode.WRITE}


QUARTERS = Grid(
    ("a", "b", "c", "d"),
    {"row0": (0, 0, 3, 3), "row1": (3, 3, 6, 6), "low": (0, 1, 0, 1), "high": (1, 3, 1, 3), "more": (2, 0, 2, 0)},
)


@kernel
def fill_part(x: Matrix, row0: TileInt, row1: TileInt, low: TileInt, high: TileInt):
    for n in range(row0, row1):
        for c in range(low, high):
            x[n, c] = n


def quarters(step: Builder, columns: str | tuple[str, ...], grid: Grid = QUARTERS) -> Program:
    """Four tiles write parts of x, and two read its halves by rows."""
    step.op("fill", "forward", fill_part, grid, [(1, 1)] * 4, x=Write(Tensor("x"), ROWS, columns))
    sums(step)
    return step.build()


def test_tiles_that_write_disjoint_columns_of_the_same_rows_are_independent() -> None:
    program = quarters(Builder(PLANS), "low:high")
    graph.validate(program, graph.build(program, "none"))
    assert of_program(program) == [(0, 4), (1, 4), (2, 5), (3, 5)]
    assert touched(program, 1, 0) == {"x[0] columns 0:1": Mode.READ, "x[0] columns 1:3": Mode.READ, "y[0]": Mode.WRITE}
    poison.check(program, PLANS, lambda _: None)


def test_ops_side_by_side_are_one_loop_and_may_not_conflict() -> None:
    step, other = Builder(PLANS), Builder(PLANS)
    with step.beside():
        for half in (HALVES.only([0]), HALVES.only([1])):
            step.op("fill", "forward", fill, half, [(1, 1)], x=Write(Tensor("x"), ROWS))
    sums(step)
    program = step.build()
    assert [[op.name for op in loop] for loop in program.loops] == [["fill", "fill"], ["sums"]]
    assert program.loop_first == [0, 2, 4]
    graph.build(program, "step")
    with other.beside():
        filled(other)
        sums(other)
    with pytest.raises(GraphError, match="two tiles of sums or of the ops beside it, from fill on, conflict"):
        graph.build(other.build(), "step")


def test_columns_that_overlap_conflict() -> None:
    with pytest.raises(GraphError, match="two tiles of fill conflict on a region"):
        graph.build(quarters(Builder(PLANS), ("low:high", "more")), "step")
    wide = QUARTERS.with_columns(high=(2, 3, 2, 3))
    with pytest.raises(GraphError, match="two tiles of fill conflict on a region"):
        graph.build(quarters(Builder(PLANS), "low:high", wide), "step")


def test_columns_that_are_written_but_not_declared_are_found() -> None:
    narrow = QUARTERS.with_columns(declared=(1, 2, 1, 2))
    step = Builder(PLANS)
    with pytest.raises(AssertionError, match=r"fill b does not declare what it does: x\[0\] columns 2:3 differs"):
        poison.check(quarters(step, "low:declared", narrow), PLANS, lambda _: None)


def test_columns_meet_rows_elements_and_other_columns() -> None:
    """Accesses conflict where they overlap in memory, however the memory is described."""
    step = Builder(PLANS)
    whole = ONE_TILE.with_columns(row0=[1], row1=[5], low=[1], high=[2], a=[4], b=[5], c=[7])
    step.op("first", "forward", fill_part, whole, [(1, 1)], x=Write(Tensor("x"), ROWS, "low:high"))
    for name, a, b in (("meets", "a", "b"), ("misses", "b", "c"), ("also", "a", "c")):
        grid = ONE_TILE.with_columns(a=whole.column(a), b=whole.column(b))
        step.op(name, "update", scale_all, grid, [(1, 1)], values=Update(Arena("temporary"), "a:b"))
    program = step.build()
    assert of_program(program) == [(0, 1), (1, 3), (2, 3)]
    graph.validate(program, graph.build(program, "none"))


def test_an_arena_and_the_tensors_in_it_are_the_same_memory() -> None:
    step = Builder(PLANS)
    assert step.elements(Tensor("w", 1), (1, 3)) == (15, 21)
    elements = Grid(("0", "1"), {"a": (0, 15), "b": (15, 24)})
    step.op("scale", "update", scale_all, elements, [(1, 1)] * 2, values=Update(Arena("weights"), "a:b"))
    step.op("read", "forward", row_sums, ONE_TILE.with_columns(row0=[0], row1=[1]), [(1, 1)],
            y=Write(Tensor("y")), x=Read(Tensor("w", 1)), scratch=Own("own"), times=1)  # fmt: skip
    program = step.build()
    assert of_program(program) == [(0, 2), (1, 2)]


def test_memory_that_the_same_tasks_touch_alike_is_one_region() -> None:
    specs = [dataclasses.replace(spec, constant=spec.name == "x") for spec in PLANS["temporary"].specs]
    step = Builder({**PLANS, "temporary": plan_arena(specs)})
    whole = ONE_TILE.with_columns(row0=[0], row1=[6])
    sums(step, whole, x=Read(Tensor("x"), ROWS))
    program = step.build()
    assert [len(region.spans) for region in program.regions] == [1, 1]
    assert [str(program.regions[number]) for number in program.constants] == ["x[0]"]


def test_fused_tasks_write_first_what_they_read_then() -> None:
    step = Builder(PLANS)
    filled(step)
    sums(step)
    step.fuse(2)
    program = step.build()
    assert [op.name for op in program.ops] == ["fill+sums"]
    assert touched(program, 0, 0) == {"x[0]": Mode.WRITE, "y[0]": Mode.WRITE}


def test_reductions_of_a_cell_are_in_no_order() -> None:
    step = Builder(PLANS)
    for _ in range(2):
        step.op("note", "forward", note, ONE_TILE, [(1, 1)], control=Reduce(Tensor("control")))
    program = step.build()
    assert of_program(program) == []


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"x": Read(Tensor("z"))}, GraphError, "there is no tensor z"),
        ({"x": Read(Tensor("w", 2))}, GraphError, r"w\[2\] does not exist: w has 2 layers"),
        ({"x": Read(Tensor("w", 0), ROWS)}, GraphError, r"rows 3:6 of w\[0\] do not exist: it has 4"),
        ({"x": Read(Tensor("x"), "row2")}, GraphError, "the grid has no column row2; its columns: row0, row1"),
        ({"x": Read(Tensor("x"), ROWS, ROWS)}, GraphError, "columns 3:6 of x do not exist: it has 3"),
        ({"y": Write(Tensor("y"), (), ROWS)}, GraphError, "columns 0:3 of y do not exist: it has 1"),
        ({"x": Own("own")}, TypeError, "row_sums's x takes float32 array of rank 2, not own own"),
        ({"x": 3}, TypeError, "row_sums's x takes float32 array of rank 2, not 3"),
        ({"times": Read(Tensor("x"))}, TypeError, "row_sums's times"),
        ({"more": 1}, TypeError, "unknown {'more'}"),
    ],
)
def test_what_does_not_fit_the_kernel_is_refused(change, error, message) -> None:
    with pytest.raises(error, match=message):
        sums(Builder(PLANS), **change)


@pytest.mark.parametrize(
    ("name", "kernel_of", "message"),
    [("y", fill, r"x takes float32 array of rank 2; y is float32 \(6,\)"),
     ("x", note_float, r"found takes float64 array of rank 1; x is float32 \(6, 3\)")],
)  # fmt: skip
def test_arrays_of_another_rank_or_type_are_refused(name, kernel_of, message) -> None:
    step = Builder(PLANS)
    parameter = next(iter(signature(kernel_of).operands))
    given: dict[str, Any] = {parameter: Write(Tensor(name), ROWS)}
    step.op("wrong", "forward", kernel_of, HALVES, [(1, 1)] * 2, **given)
    with pytest.raises(TypeError, match=message):
        dispatch.bind(step.build(), Memory(PLANS), 1)


def test_a_column_has_an_integer_for_each_tile() -> None:
    with pytest.raises(GraphError, match="slot has 3 entries for 2 tiles"):
        HALVES.with_columns(slot=range(3))


def test_a_parameter_without_a_kind_is_refused() -> None:
    def plain(x: Matrix, n) -> None: ...

    with pytest.raises(TypeError, match="plain: parameter n has no annotation"):
        signature(plain)


def test_an_entry_unpacks_what_the_signature_says() -> None:
    assert source_of(signature(row_sums)) == (
        "def row_sums_entry(x, t, c):\n"
        "    kernel(\n"
        "        carray(pointer_float32(x[0]), (x[1],)),  # y\n"
        "        carray(pointer_float32(x[4]), (x[5], x[6],)),  # x\n"
        "        carray(pointer_float32(x[8] + c[1] * x[11]), (x[9],)),  # scratch\n"
        "        x[12],  # times\n"
        "        c[0],  # step\n"
        "        t[0],  # row0\n"
        "        t[1],  # row1\n"
        "    )\n"
    )


def test_an_entry_is_loaded_from_the_cache_by_the_next_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second entry object of the same kernel represents the next process: it compiles nothing."""
    first = kernel_entry(row_sums)
    assert first.address
    monkeypatch.setattr(objects, "_loaded", {})
    again = kernel_entry.__wrapped__(row_sums)
    assert again.address
    assert again.loaded.was_kept


def test_each_thread_has_its_own() -> None:
    memory = Memory(PLANS)
    part = Own("own", 2, (2, 3))
    assert memory.own_stride(part) == 32
    memory.arrays["own"][0] = np.arange(8)
    assert memory.view(part).tolist() == [[2, 3, 4], [5, 6, 7]]
    assert memory.view(Own("own")).shape == (8,)


def test_what_is_declared_constant_is_not_written() -> None:
    step = Builder({"weights": plan_arena([TensorSpec("x", (6, 3), constant=True)])})
    with pytest.raises(GraphError, match="a task writes x, which is declared constant"):
        filled(step)


def test_what_computes_a_constant_runs_once_and_uses_only_constants() -> None:
    specs = [TensorSpec("x", (6, 3), constant=True), TensorSpec("y", (6, 3))]
    step = Builder({"weights": plan_arena(specs)})
    with step.once_if_constant(Tensor("x")):
        filled(step)
    program = step.build()
    assert program.ops == ()
    assert [op.name for op in present(program.once).ops] == ["fill"]
    with (
        step.once_if_constant(Tensor("x")),
        pytest.raises(GraphError, match="a task that runs once uses y, which is not declared constant"),
    ):
        step.op("fill", "data", fill, HALVES, [(1, 1)] * 2, x=Write(Tensor("y"), ROWS))
    other = Builder({"weights": plan_arena([TensorSpec("x", (6, 3))])})
    with other.once_if_constant(Tensor("x")):
        filled(other)
    assert (len(other.build().ops), other.build().once) == (1, None)


def test_one_kernel_has_an_entry_for_each_dtype_of_its_tensors() -> None:
    plans = {"activations": plan_arena([
        TensorSpec("y", (4, 3)), TensorSpec("x", (4, 3), constant=True), TensorSpec("h", (4, 3), HALF, constant=True),
        TensorSpec("d", (4, 3), "float64", constant=True),
    ])}  # fmt: skip
    found = []
    for name in ("x", "h"):
        step = Builder(plans)
        grid = Grid(("all",), {"row0": (0,), "row1": (4,)})
        step.op("widen", "forward", widen, grid, [(1, 1)], y=Write(Tensor("y"), ROWS), x=Read(Tensor(name)))
        program, memory = step.build(), Memory(plans)
        memory.arrays["x"][:] = 1.5
        memory.arrays["h"][:] = 0x3FC0  # 1.5 as bfloat16
        bound = dispatch.bind(program, memory, 1)
        serial_loop(0, bound.tasks, bound.context, new_record(1, 1, 0, 64, 0), np.zeros(CELLS, np.int64), 1)
        found.append((program.ops[0].calls[0].dtypes, memory.arrays["y"].tolist()))
    assert found == [(("float32",), [[1.5] * 3] * 4), ((HALF,), [[1.5] * 3] * 4)]
    assert "pointer_uint16(x[4])" in source_of(signature(widen).of((HALF,)))
    assert kernel_entry(widen, (HALF,)) is not kernel_entry(widen, ("float32",))
    with pytest.raises(TypeError, match="widen: x takes float32 or uint16 array of rank 2, not float64"):
        Builder(plans).op("widen", "forward", widen, Grid(("all",), {"row0": (0,), "row1": (4,)}), [(1, 1)],
                          y=Write(Tensor("y")), x=Read(Tensor("d")))  # fmt: skip


@kernel
def count_up(values: Annotated[Any, Array(("int16",), 1)], a: TileInt, b: TileInt):
    for i in range(a, b):
        values[i] += 1


def test_a_dtype_is_an_entry_in_the_table_of_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ITEMSIZE, "int16", 2)
    plans = {"temporary": plan_arena([TensorSpec("counts", (6,), "int16")])}
    step, memory = Builder(plans), Memory(plans)
    step.op("count", "forward", count_up, Grid(("all",), {"a": (1,), "b": (5,)}), [(1, 1)],
            values=Update(Tensor("counts"), "a:b"))  # fmt: skip
    memory.arrays["counts"][:] = -1
    bound = dispatch.bind(step.build(), memory, 1)
    serial_loop(0, bound.tasks, bound.context, new_record(1, 1, 0, 64, 0), np.zeros(CELLS, np.int64), 1)
    assert memory.arrays["counts"].tolist() == [-1, 0, 0, 0, 0, -1]
