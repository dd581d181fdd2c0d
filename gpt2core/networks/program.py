"""The step program of a configuration, whatever its network."""

from __future__ import annotations

from gpt2core.networks.memory import plan
from gpt2core.networks.network import fusion_of, network_of
from gpt2core.networks.reverse import Training
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import ConfigError
from gpt2core.step import slicing
from gpt2core.step.builder import Builder
from gpt2core.step.ops import Program
from gpt2core.step.tape import Tape

MAX_SLICES = 512  # GPT-2 124M then has 75,000 tasks


def build(config: TrainConfig) -> Program:
    """One step of the run's mode on the tensors of the network. Raises ConfigError if it would be too large."""
    config = slicing.resolve(config)
    _check_slices(config)
    network = network_of(config)
    step = Builder(plan(config), network.places(config), fusion_of(config))
    if config.mode == "train":
        Training(step, config).add(network)
    else:
        network.forward(config, step)
        step.tape = Tape()  # a used one refers to the step, whose memory a large graph needs
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
