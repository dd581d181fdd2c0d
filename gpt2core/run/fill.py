"""Fills the memory of a run."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from gpt2core.networks.network import network_of
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.optimizers import learning_rates, optimizer_of
from gpt2core.step.memory import Memory


def fill(arenas: Memory, config: TrainConfig, data: Mapping[str, NDArray[np.generic]], rank: int = 0) -> None:
    """Write a rank's weights from the checkpoint or the seed, the network's data, and the optimizer's settings."""
    network = network_of(config)
    network.fill(config, rank, arenas.weights)
    if "settings" in arenas.arrays:
        settings = optimizer_of(config).settings
        of_biases = config.weight_decay if network.decays_biases else 0.0
        arenas.arrays["settings"][:] = [*(getattr(config, name) for name in settings), of_biases, config.grad_clip]
    if rates := learning_rates(config):
        arenas.arrays["rates"][:] = rates
    if config.stop_at is not None:
        arenas.arrays["goal"][:] = list(config.stop_at.values())
    for name, array in data.items():
        if name in arenas.arrays:
            arenas.arrays[name][...] = array
        else:
            arenas.arrays[name] = array
