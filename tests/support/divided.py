"""Ranks that divide matrices, without MPI: one process runs the programs of all ranks, op after op, and copies what
they send. What several ranks compute must have these bits (docs/decisions/0039).
"""

from __future__ import annotations

import ctypes
import itertools

import numpy as np
from numpy.typing import NDArray

from gpt2core.compile.jit import STEP
from gpt2core.gemm import libraries, table
from gpt2core.gemm.table import Products
from gpt2core.networks.exchanged import layout_of
from gpt2core.networks.network import network_of
from gpt2core.ranks.cells import CELLS, TRAFFIC_CELLS
from gpt2core.run.fill import fill
from gpt2core.run.prepare import plan
from gpt2core.run.train import train
from gpt2core.schedulers import dispatch
from gpt2core.spec.config import TrainConfig
from gpt2core.step.memory import Memory
from gpt2core.step.ops import Arena, Op, Outside, Own, Tensor
from gpt2core.step.signature import signature

Weights = dict[str, NDArray[np.float32]]


class One:
    """One rank: its program, its memory, and the tasks of each op."""

    def __init__(self, config: TrainConfig, number: int, products: Products) -> None:
        planned = plan(config, rank=number)
        self.number, self.program, self.layout = number, planned.program, layout_of(planned.config, number)
        self.memory = Memory(planned.arenas)
        data = network_of(config).data(planned.config.part)
        outside = {"mpi": np.zeros(CELLS, np.int64), "messages": np.zeros((1, 5), np.int64),
                   "traffic": np.zeros((1, TRAFFIC_CELLS), np.int64)}  # fmt: skip
        fill(self.memory, planned.config, {**data, **outside}, number)
        self.bound = dispatch.bind(self.program, self.memory, 1, products)

    def run(self, op: int, step: int) -> None:
        """Run the tasks of an op."""
        self.bound.context[0, STEP] = step
        first = sum(len(each.tiles) for each in self.program.ops[:op])
        for task in self.bound.tasks[first : first + len(self.program.ops[op].tiles)]:
            row = task.tolist()
            while row:
                context = self.bound.context.ctypes.data
                dispatch.CALL(row[dispatch.ENTRY])(row[dispatch.OPERANDS], row[dispatch.TILE], context)
                following = row[dispatch.NEXT]
                row = list((ctypes.c_int64 * dispatch.COLUMNS).from_address(following)) if following else []

    def array(self, op: Op, name: str) -> NDArray[np.generic]:
        """The operand of an op, as one vector."""
        (call,) = op.calls
        operand = dict(zip(signature(call.kernel).operands, call.operands, strict=True))[name]
        assert isinstance(operand, Tensor | Arena | Own | Outside)
        return self.memory.view(operand).reshape(-1)


def train_divided(config: TrainConfig) -> tuple[list[float], list[Weights]]:
    """Losses and each rank's final weights of a run whose ranks divide the matrices."""
    ranks = trained(config)
    losses = [each.memory.arrays["losses"].tolist() for each in ranks]
    assert losses == [losses[0]] * len(ranks)
    return losses[0], [each.memory.weights for each in ranks]


def trained(config: TrainConfig) -> list[One]:
    """The ranks of a run after its steps."""
    products = table.choose([libraries.ours(config.precision)], [], lambda _: None)
    ranks = [One(config, number, products) for number in range(config.ranks)]
    for step in range(config.steps):
        for number, op in enumerate(ranks[0].program.ops):
            if op.name.endswith("_send"):
                copy(ranks, op.name.removesuffix("_send"), number)
            elif not op.name.endswith("_arrived"):
                for each in ranks:
                    each.run(number, step)
    return ranks


def have_the_norms_of_one(one: TrainConfig, several: TrainConfig) -> None:
    """All ranks have the same norms of gradients, which are those of one rank and above the limit."""
    norms = [each.memory.arrays["gradient_norms"].tolist() for each in trained(several)]
    assert norms == [norms[0]] * several.ranks
    np.testing.assert_allclose(norms[0], train(one).gradient_norms, rtol=1e-5)
    assert min(norms[0]) > several.grad_clip


def have_the_same_weights(some: list[Weights], others: list[Weights]) -> None:
    """The weights of each rank have the same bits."""
    for mine, theirs in zip(some, others, strict=True):
        for name, array in mine.items():
            np.testing.assert_array_equal(array, theirs[name], name)


def copy(ranks: list[One], kind: str, number: int) -> None:
    """Copy what the ranks send in all tiles of op `number` to where the others expect it."""
    for sender, receiver in itertools.permutations(ranks, 2):
        source = sender.array(sender.program.ops[number], "source")
        target = receiver.array(receiver.program.ops[number], "target")
        groups = zip(sender.layout.by_kind[kind], receiver.layout.by_kind[kind], strict=True)
        for sent, expected in groups:  # messages with one tag arrive in the order in which they are sent
            leaving = [each for each in sent if not each.receives and each.peer == receiver.number]
            arriving = [each for each in expected if each.receives and each.peer == sender.number]
            for mine, to in zip(leaving, arriving, strict=True):
                assert (mine.tag, mine.elements) == (to.tag, to.elements)
                target[to.offset : to.offset + to.elements] = source[mine.offset : mine.offset + mine.elements]
