"""The step program of a configuration, whatever its network."""

from __future__ import annotations

from gpt2core.networks.memory import plan
from gpt2core.networks.network import fusion_of
from gpt2core.networks.reverse import add_step
from gpt2core.optimizers.update import update
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import ConfigError
from gpt2core.step import slicing
from gpt2core.step.builder import Builder
from gpt2core.step.ops import Program

MAX_SLICES = 512  # GPT-2 124M then has 75,000 tasks


def build(config: TrainConfig) -> Program:
    """One step of the run's mode on the tensors of the network. Raises ConfigError if it would be too large."""
    config = slicing.resolve(config)
    _check_slices(config)
    step = Builder(plan(config), fusion_of(config))
    add_step(step, config, update)
    return step.build(config.phases)


def _check_slices(config: TrainConfig) -> None:
    """Raise ConfigError if slices are so small that the graph would be too large to build and prove."""
    slices = slicing.count(config)
    if slices > MAX_SLICES:
        accepted = f"a size that cuts the batch into at most {MAX_SLICES} slices, not {slices}"
        raise ConfigError("token_slice", slicing.sizes(config)[1], accepted)
    if config.grad_accum * slices > MAX_SLICES:
        raise ConfigError(
            "grad_accum", config.grad_accum, f"at most {MAX_SLICES // slices} micro-batches of {slices} slices"
        )
