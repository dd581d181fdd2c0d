"""Creation of tasks under an OpenMP runtime: depend clauses follow from the graph, not from names of ops."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from gpt2core.networks import program
from gpt2core.schedulers.openmp.creation import EVEN, HEAD, LOSS, Creation, plan
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.models import ModelConfig
from gpt2core.step import graph
from gpt2core.step.ops import Access, Call, Mode, Op, Program, Region, Tile, Work

SMALL = TrainConfig(
    model=ModelConfig(layers=1, heads=2, channels=32, vocab=61, context=16),
    batch=2, seq=8, batch_slice=1, token_slice=4, data="synthetic",
)  # fmt: skip


def first_op_named(step: Program, name: str) -> Program:
    """The program with another name for its first op, whose tiles' labels are dropped, so that nodes have the name."""
    op = step.ops[0]
    call = dataclasses.replace(op.calls[0], name=name)
    tiles = tuple(dataclasses.replace(tile, label="") for tile in op.tiles)
    return dataclasses.replace(step, ops=(dataclasses.replace(op, calls=(call,), tiles=tiles), *step.ops[1:]))


def created(step: Program, sync: str) -> Creation:
    tasks = len(step.tasks)
    return plan(step, graph.build(step, sync), "critical-path", [1.0] * tasks)


def clauses(creation: Creation) -> list[list[int]]:
    """Each task's clause, with the numbers of markers for their addresses."""
    base, found = int(creation.markers.ctypes.data), []
    for start in creation.clause:
        count, inout = creation.depend[start : start + HEAD]
        addresses = creation.depend[start + HEAD : start + HEAD + count]
        found.append([int(inout), *((addresses - base) // 8).tolist()])
    return found


@pytest.mark.parametrize("name", ["gate", "begin", "end", "after forward"])
def test_an_op_may_have_the_name_of_a_wait(name: str) -> None:
    step = program.build(SMALL)
    for sync in ("phase", "step", "none"):
        named, usual = created(first_op_named(step, name), sync), created(step, sync)
        assert clauses(named) == clauses(usual)
        assert np.array_equal(named.order, usual.order)
        assert np.array_equal(named.ends, usual.ends)


def test_the_next_step_waits_for_the_loss_and_the_end_of_the_one_before() -> None:
    step = program.build(SMALL)
    found = created(step, "none")
    assert found.gated
    of_loss = {step.tasks[i][0].phase for i, each in enumerate(clauses(found)) if LOSS in each[1:]}
    assert of_loss == {"loss"}
    assert any(EVEN in each[1:] for each in clauses(found))


def waits_for(clause: list[int], other: list[int]) -> bool:
    """Whether a task with this clause waits for an earlier one with the other clause."""
    (inout, *mine), (others, *its) = clause, other
    return bool(set(mine[:inout]) & set(its) or set(mine) & set(its[:others]))


def test_heads_of_attentions_backward_pass_do_not_wait_for_each_other() -> None:
    """They access different columns, and the tasks that read these rows wait for all of them."""
    step = program.build(SMALL)
    found = clauses(created(step, "step"))
    heads = [i for i, (op, _) in enumerate(step.tasks) if (op.name, op.phase) == ("attention", "backward")]
    assert len(heads) == 4  # of two sequences
    assert not any(waits_for(found[b], found[a]) for a in heads for b in heads if a < b)
    readers = [i for i, (op, _) in enumerate(step.tasks) if op.name.startswith("qkv_d")]
    assert all(sum(waits_for(found[i], found[head]) for head in heads) >= 2 for i in readers)


def test_members_of_a_reduction_wait_for_what_is_before_them_only() -> None:
    modes = [Mode.WRITE, Mode.READ, Mode.REDUCE, Mode.REDUCE, Mode.READ, Mode.WRITE]
    tiles = [Tile((Work((0,), 1, 1),), (Access(mode, 0),), str(i)) for i, mode in enumerate(modes)]
    ops = tuple(Op(None, (Call("toy", "forward", waits_for, ()),), (tile,)) for tile in tiles)
    found = clauses(created(Program(ops, (Region("x"),)), "step"))
    waits = {(a, b) for b in range(len(modes)) for a in range(b) if waits_for(found[b], found[a])}
    assert waits == {(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 4), (3, 4), (0, 4), *((a, 5) for a in range(5))}
