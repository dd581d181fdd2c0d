"""The step program of a configuration, whatever its network."""

from __future__ import annotations

from collections.abc import Mapping

from gpt2core.networks.memory import plan
from gpt2core.networks.network import fusion_of
from gpt2core.networks.reverse import add_step
from gpt2core.optimizers.update import update_of
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import ConfigError
from gpt2core.step import slicing
from gpt2core.step.builder import Builder
from gpt2core.step.ops import Program
from gpt2core.step.tensors import ArenaPlan

MAX_SLICES = 512  # GPT-2 124M then has 75,000 tasks


def build(config: TrainConfig, arenas: Mapping[str, ArenaPlan] | None = None) -> Program:
    """One step of the run's mode on the tensors of the network. arenas: those of the config, whose slices are then
    decided. Raises ConfigError if it would be too large.
    """
    if arenas is None:
        config = slicing.resolve(config)
        arenas = plan(config)
    _check_slices(config)
    step = Builder(arenas, fusion_of(config))
    add_step(step, config, update_of(config))
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
