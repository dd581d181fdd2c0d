"""A step of any network: its forward pass from the network; reverse and update, if its mode has them, from the tape."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gpt2core.layers import goal
from gpt2core.networks.network import network_of
from gpt2core.spec.config import TrainConfig
from gpt2core.step.builder import Builder
from gpt2core.step.ops import Arena, Own, Tensor
from gpt2core.step.parameters import GRADIENTS, Destination, Parameter
from gpt2core.step.tape import Share, Tape

if TYPE_CHECKING:
    from gpt2core.ranks.exchange import Exchange

Update = Callable[[Builder, Sequence[Parameter], int | None, Arena | Own], None]  # optimizers/update.py


def add_step(
    step: Builder, config: TrainConfig, update: Update, exchange: Exchange | None = None
) -> Sequence[Parameter]:
    """Add one step of the run's mode. exchange: of a run of several ranks, of which config is a part. Return the
    parameters whose gradients ranks fold, in the order in which these become complete."""
    if config.has_gradients:
        training = Training(step, config, update, exchange)
        training.add()
        return training.complete
    network_of(config).forward(config, step)
    goal.add(step, config)
    step.tape = Tape()  # a used one refers to the step, whose memory a large graph needs
    return ()


class Training:
    """Adds the micro-batches of a step and, by `update`, the update of what they read.

    With fusion "all" each block of a weight is updated by the task that computes the last share of its gradient, so no
    gradient is kept. `complete`: parameters in the order in which their gradients, which are kept, become complete;
    without those whose gradients ranks do not fold.
    """

    def __init__(
        self, step: Builder, config: TrainConfig, update: Update, exchange: Exchange | None = None
    ) -> None:
        self.step, self.config, self.update, self.exchange = step, config, update, exchange
        self.keeps_gradients = step.fusion != "all"
        self.complete: list[Parameter] = []

    def add(self) -> None:
        network = network_of(self.config)
        micros = self.config.grad_accum // self.step.rank.total
        for micro in range(micros):
            self.step.micro, self.step.tape, self.complete = micro, Tape(), []
            network.forward(self.config, self.step)
            if self.exchange and micro == micros - 1:
                self.exchange.losses(self.step)
            goal.add(self.step, self.config)
            self._reverse(self.step.tape)
        tape, exchange = self.step.tape, self.exchange if self.exchange and self.exchange.layout.buckets else None
        blocks = [
            block for kind in tape.parameters.values() for weight, blocks in kind.items()
            if not (exchange and tape.folds(weight)) for block in blocks
        ]  # fmt: skip
        if exchange:
            exchange.update(self.step, self.update, blocks)
        elif self.keeps_gradients and self.config.updates:
            self.update(self.step, blocks, None, GRADIENTS)
        self.step.tape = Tape()  # a used one refers to the step, whose memory a large graph needs

    def accumulates(self) -> bool:
        """Whether gradients are added to those of the micro-batches before."""
        return self.step.micro > 0

    def _reverse(self, tape: Tape) -> None:
        """Add the reverse of each layer; then each share of a gradient, once what it needs has been computed."""
        shares: dict[object, list[Share]] = defaultdict(list)
        while tape.reverses:
            tape.reverses.pop().add()
            for share in tape.ready():
                mine = shares[share.weight]
                mine.append(share)
                if self.keeps_gradients:
                    share.add(Destination(own=False, adds=self.accumulates() or len(mine) > 1))
                    if len(mine) == tape.uses[share.weight]:
                        self._note_complete(tape, share.weight)
                elif len(mine) == tape.uses[share.weight]:
                    for number, each in enumerate(mine):
                        each.add(Destination(own=True, adds=number > 0))
                    self._update_at_once(_blocks(tape, share.weight), share.layer, 1 + len(mine))
        tape.check_complete()
        for kind, total in tape.sums.items():
            blocks = [block for weight in total.weights for block in tape.parameters[kind][weight]]
            total.add(blocks, Destination(own=not self.keeps_gradients, adds=self.accumulates()))
            if self.keeps_gradients:
                self._note_complete(tape, *total.weights)
            else:
                self._update_at_once(blocks, None, 2)

    def _note_complete(self, tape: Tape, *weights: Tensor) -> None:
        self.complete += [block for weight in weights if tape.folds(weight) for block in _blocks(tape, weight)]

    def _update_at_once(self, blocks: list[Parameter], layer: int | None, count: int) -> None:
        """Add the update to the ops that have just computed the gradients, `count` with the update."""
        self.update(self.step, blocks, layer, Destination(own=True).whole)
        self.step.fuse(count)


def _blocks(tape: Tape, weight: Tensor) -> list[Parameter]:
    """The blocks of a weight."""
    (blocks,) = (kind[weight] for kind in tape.parameters.values() if weight in kind)
    return blocks
