"""A step of any network. A training step: its forward pass from the network, reverse and update from the tape."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from gpt2core.layers import goal
from gpt2core.networks.network import Network, network_of
from gpt2core.spec.config import TrainConfig
from gpt2core.step.builder import Builder
from gpt2core.step.ops import Arena, Own
from gpt2core.step.parameters import GRADIENTS, Destination, Parameter
from gpt2core.step.tape import Share, Tape

Update = Callable[[Builder, Sequence[Parameter], int | None, Arena | Own], None]  # optimizers/update.py


def add_step(step: Builder, config: TrainConfig, update: Update) -> None:
    """Add one step of the run's mode."""
    if config.mode == "train":
        Training(step, config, update).add(network_of(config))
    else:
        network_of(config).forward(config, step)
        goal.add(step, config)
        step.tape = Tape()  # a used one refers to the step, whose memory a large graph needs


class Training:
    """Adds the micro-batches of a step and, by `update`, the update of what they read.

    With fusion "all" each block of a weight is updated by the task that computes the last share of its gradient, so no
    gradient is kept.
    """

    def __init__(self, step: Builder, config: TrainConfig, update: Update) -> None:
        self.step, self.config, self.update = step, config, update
        self.keeps_gradients = step.fusion != "all"

    def add(self, network: Network) -> None:
        for micro in range(self.config.grad_accum):
            self.step.micro, self.step.tape = micro, Tape()
            network.forward(self.config, self.step)
            goal.add(self.step, self.config)
            self._reverse(self.step.tape)
        if self.keeps_gradients:
            kinds = self.step.tape.parameters.values()
            blocks = [block for kind in kinds for blocks in kind.values() for block in blocks]
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
                elif len(mine) == tape.uses[share.weight]:
                    for number, each in enumerate(mine):
                        each.add(Destination(own=True, adds=number > 0))
                    (blocks,) = (kind[share.weight] for kind in tape.parameters.values() if share.weight in kind)
                    self._update_at_once(blocks, share.layer, 1 + len(mine))
        tape.check_complete()
        for kind, total in tape.sums.items():
            blocks = [block for weight in total.weights for block in tape.parameters[kind][weight]]
            total.add(blocks, Destination(own=not self.keeps_gradients, adds=self.accumulates()))
            if not self.keeps_gradients:
                self._update_at_once(blocks, None, 2)

    def _update_at_once(self, blocks: list[Parameter], layer: int | None, count: int) -> None:
        """Add the update to the ops that have just computed the gradients, `count` with the update."""
        self.update(self.step, blocks, layer, Destination(own=True).whole)
        self.step.fuse(count)
