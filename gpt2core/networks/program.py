"""The step program of a configuration, whatever its network."""

from __future__ import annotations

from gpt2core.networks.memory import plan
from gpt2core.networks.network import network_of
from gpt2core.spec.config import TrainConfig
from gpt2core.step import slicing
from gpt2core.step.builder import Builder
from gpt2core.step.ops import Program


def build(config: TrainConfig) -> Program:
    """One training step on the tensors of the network. Raises ConfigError if it would be too large."""
    config = slicing.resolve(config)
    step = Builder(plan(config))
    network_of(config).step(config, step)
    return step.build()
