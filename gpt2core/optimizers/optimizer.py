"""Interface of an optimizer. An optimizer is a module here and a line in gpt2core/spec/optimizers.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from gpt2core.step.builder import Builder
from gpt2core.step.ops import Arena, Own, Tensor
from gpt2core.step.parameters import Parameter


class Optimizer(Protocol):
    """A module with one function."""

    def update(
        self, step: Builder, parameters: Sequence[Parameter], layer: int | None, *,
        gradients: Arena | Own, settings: Tensor, rates: Tensor | None, clipping: Tensor | None,
        state: Mapping[str, Tensor],
    ) -> None:  # fmt: skip
        """Add the update of parameters as one op, a tile for each.

        settings: float64, in the registry's order; the last but one is the weight decay of a parameter's second span (a
        bias). rates: the learning rate of each step, float64; without it, the setting `lr` holds. clipping: the factor
        of the gradients, float64; without it, 1. state: the optimizer's tensors in this run, 0 before the first
        step. The elements KEPT of each belong to a parameter; without ranks they lie as the weights do.
        """
