"""Evaluations between the steps of a training run: loss and accuracy of all images of a split.

An evaluation repeats the forward pass of a batch. It reads the run's weights. Its activations lie where those of the
steps do, which no step needs after its end; so evaluations change no bit of the training.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np

from gpt2core.gemm.table import Products
from gpt2core.networks.classes import RIGHT
from gpt2core.networks.language import LOSS
from gpt2core.run.execute import Stages
from gpt2core.run.prepare import Emit, RunPlan, silent
from gpt2core.schedulers import dispatch
from gpt2core.spec.errors import Cancelled, NotFinite
from gpt2core.step.memory import Memory


class Evaluations:
    """Evaluates the weights of a run. planned: what evaluations repeat; arenas: the run's."""

    def __init__(
        self, planned: RunPlan, arenas: Memory, products: Products, emit: Emit, stop: threading.Event | None
    ) -> None:
        own_bytes = planned.arenas["temporary"].bytes
        blocks = {**arenas.arenas, "temporary": arenas.arenas["temporary"][-own_bytes:]}
        self.memory = Memory(planned.arenas, blocks)
        self.entries = arenas.arrays["evaluated"]
        self.order = np.zeros(planned.config.batch, np.int64)
        self.memory.arrays |= {"samples": arenas.arrays["samples"], "order": self.order}
        self.program, self.products = planned.program, products
        bound = dispatch.bind(planned.program, self.memory, planned.config.threads, products)
        self.stages = Stages(planned, self.memory, bound, silent, stop, timed=False)
        self.emit, self.stop = emit, stop

    def evaluate(self, step: int) -> dict[str, Any]:
        """Loss and accuracy after so many steps. Raises NotFinite; Cancelled after a batch, if the run shall stop."""
        dispatch.run_once(self.program, self.memory, self.products)  # from the present weights
        batch, losses, right = len(self.order), self.memory.view(LOSS), self.memory.view(RIGHT)
        loss, found = [], 0
        for first in range(0, len(self.entries), batch):
            some = self.entries[first : first + batch]
            self.order[:] = some[0]  # the last batch repeats an image, which does not count
            self.order[: len(some)] = some
            self.memory.arrays["control"][...] = 0
            try:
                self.stages.stage(0, 1)
            except NotFinite as error:
                raise NotFinite(step, error.value, "evaluation_loss") from error
            if self.stop is not None and self.stop.is_set():
                raise Cancelled(step)
            loss += losses[: len(some)].tolist()
            found += int(right[: len(some)].sum())
        count = len(self.entries)
        evaluation = {"step": step, "loss": math.fsum(loss) / count, "accuracy": found / count}
        self.emit({"event": "evaluation", **evaluation})
        return evaluation
