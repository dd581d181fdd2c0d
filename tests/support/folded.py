"""Data parallelism without MPI: one process computes the parts of all ranks and folds their gradients in rank order.

What several ranks compute must have these bits (docs/decisions/0022). A rank's part of the batch is a micro-batch here,
but each rank has its own gradient; products do not add to the gradient of the rank before.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpt2core.compile.jit import kernel
from gpt2core.gemm import libraries, table
from gpt2core.measure.tracing import new_record
from gpt2core.networks.exchanged import layout_of
from gpt2core.networks.network import network_of
from gpt2core.networks.reverse import Training
from gpt2core.optimizers.update import update_of
from gpt2core.ranks import exchange
from gpt2core.run.fill import fill
from gpt2core.run.prepare import plan
from gpt2core.schedulers import dispatch
from gpt2core.schedulers.scheduler import Job, Stage
from gpt2core.spec import schedulers
from gpt2core.spec.config import TrainConfig
from gpt2core.step import graph
from gpt2core.step.builder import Builder
from gpt2core.step.grid import F32
from gpt2core.step.memory import Memory
from gpt2core.step.ops import Read, Tensor, add_or_set
from gpt2core.step.parameters import BOTH, GRADIENTS, Parameter, grid
from gpt2core.step.signature import Scalar, TileInt, Vector
from gpt2core.step.tape import Tape
from gpt2core.step.tensors import TensorSpec, plan_arena

FOLDED = Tensor("folded")


@kernel
def fold(
    folded: Vector, gradients: Vector, rank: Scalar, a0: TileInt, a1: TileInt, b0: TileInt, b1: TileInt
):  # fmt: skip
    """Add a rank's gradients [a0, a1) and [b0, b1) to those of the ranks before it; rank 0's are copied."""
    for begin, end in ((a0, a1), (b0, b1)):
        for i in range(begin, end):
            folded[i] = folded[i] + gradients[i] if rank else gradients[i]


class Norm:
    """The norm of the gradients, with its parts in rank order."""

    squares = Tensor("own_squares")

    def __init__(self, own: Sequence[Sequence[Parameter]]) -> None:
        ends = itertools.accumulate(map(len, own), initial=0)
        self.sums = [(rank, first, last) for rank, (first, last) in enumerate(itertools.pairwise(ends))]

    def counted(self, parameters: Sequence[Parameter]) -> Sequence[Parameter]:
        return parameters

    def norm(self, step: Builder, _count: int) -> Tensor:
        exchange.add_norm_shares(step, self.squares, self.sums)
        return exchange.NORM_SHARES


class Ranks(Training):
    """A step whose micro-batches are the ranks' parts of the batch."""

    def __init__(self, step: Builder, config: TrainConfig, own: Sequence[Sequence[Parameter]]) -> None:
        """own: each rank's parts of the weights, if the gradients' norm is limited; its square is the sum of theirs."""
        update, parts = update_of(config, Norm(own) if own else None), [each for mine in own for each in mine]
        folded: Any = FOLDED  # gradients in a tensor, where a step's own are an arena
        super().__init__(
            step, config, lambda step, parameters, layer, _: update(step, parts or parameters, layer, folded)
        )

    def accumulates(self) -> bool:
        return False

    def _reverse(self, tape: Tape) -> None:
        super()._reverse(tape)
        blocks = [block for kind in tape.parameters.values() for each in kind.values() for block in each]
        self.step.op(
            "fold", "backward", fold, grid(blocks, GRADIENTS), [(each.size, 3 * F32 * each.size) for each in blocks],
            folded=add_or_set(self.step.micro > 0, FOLDED, BOTH), gradients=Read(GRADIENTS, BOTH),
            rank=self.step.micro,
        )  # fmt: skip


def train_folded(config: TrainConfig, ranks: int) -> tuple[list[float], dict[str, NDArray[np.float32]]]:
    """Losses and final weights of a run whose batch `ranks` ranks share. Its fusion must keep gradients."""
    parts = dataclasses.replace(config, batch=config.batch // ranks, grad_accum=ranks)
    planned = plan(parts)
    parts, threads = planned.config, len(planned.cores)
    elements = planned.arenas["gradients"].bytes // F32
    temporary = [*planned.arenas["temporary"].specs, TensorSpec("folded", (elements,))]
    own = []
    if config.grad_clip:
        layouts = [layout_of(dataclasses.replace(config, ranks=ranks), rank) for rank in range(ranks)]
        own = [[Parameter(label, tuple(part for _, part in found), 0) for label, found in each.mine()]
               for each in layouts]  # fmt: skip
        temporary += [TensorSpec("own_squares", (sum(map(len, own)),), "float64"),
                      TensorSpec("norm_shares", (ranks,), "float64")]  # fmt: skip
    arenas = {**planned.arenas, "temporary": plan_arena(temporary)}
    step = Builder(arenas, parts.fused)
    Ranks(step, parts, own).add()
    program = step.build(parts.phases)
    tasks = graph.build(program, parts.sync)
    graph.validate(program, tasks)
    memory = Memory(arenas)
    fill(memory, parts, network_of(parts).data(parts))
    products = table.choose([libraries.ours(parts.precision)], [], lambda _: None)
    bound = dispatch.bind(program, memory, threads, products)
    record = new_record(threads, parts.steps, 0, len(bound.kinds), 0, micros=ranks)
    who = schedulers.scheduler(parts.scheduler)
    job = Job(program, tasks, bound, memory.arrays["control"].view(np.int64), planned.cores, who.chosen(parts))
    cost_s = [graph.cost_s(tile) for _, tile in program.tasks]
    who.prepare(job).run(Stage(0, parts.steps, record, cost_s, lambda: None, lambda _: contextlib.nullcontext()))
    return memory.arrays["losses"].tolist(), memory.weights
