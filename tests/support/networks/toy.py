"""Base of the toy networks: weights are matrices, drawn by the seed and updated by AdamW."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpt2core.networks import token_rows
from gpt2core.networks.network import Network
from gpt2core.optimizers import state
from gpt2core.spec.networks import Model
from gpt2core.step.tensors import TensorSpec


def sizes(network: str, vocab: int, context: int) -> type[Model]:
    """Class of the models of a toy network, which have one size."""
    flop = {"step_flop": lambda self, samples, positions: samples * positions}  # noqa: ARG005
    return dataclass(frozen=True)(
        type(network, (Model,), {"network": network, "vocab": vocab, "context": context, "name": network, **flop})
    )


class ToyNetwork(Network):
    """A toy network. Subclasses add the forward pass."""

    def __init__(self, model, weights, rows):
        """weights: shapes of matrices by name. rows: shapes by name; the first number is that of rows per position."""
        self.model, self.weights, self.rows = model, weights, rows

    def check(self, config):
        """Accept every setting."""

    def tensors(self, config):
        count = config.batch * config.seq
        rows = [TensorSpec(name, (count * first, *rest)) for name, (first, *rest) in self.rows.items()]
        weights = [TensorSpec(name, shape) for name, shape in self.weights.items()]
        return {**state.arenas(config, weights), "activations": [*token_rows.specs(config), *rows]}

    def data(self, config):
        return token_rows.data(config)

    def initialise(self, config, weights):
        rng = np.random.default_rng(config.seed)
        for array in weights.values():
            array[...] = rng.normal(0, 0.3, array.shape)

    def write(self, config, weights):
        np.savez(config.save, **weights)
