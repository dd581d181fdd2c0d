"""Creation of tasks under an OpenMP runtime: depend clauses follow from the graph, not from names of ops."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from gpt2core.networks import program
from gpt2core.schedulers.openmp.creation import EVEN, LOSS, Creation, plan
from gpt2core.spec.config import ModelConfig, TrainConfig
from gpt2core.step import graph
from gpt2core.step.ops import Program

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
        count = creation.depend[start + 1]
        addresses = creation.depend[start + 5 : start + 5 + count]
        found.append([*creation.depend[start + 2 : start + 5].tolist(), *((addresses - base) // 8).tolist()])
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
    of_loss = {step.tasks[i][0].phase for i, each in enumerate(clauses(found)) if LOSS in each[3:]}
    assert of_loss == {"loss"}
    assert any(EVEN in each[3:] for each in clauses(found))
