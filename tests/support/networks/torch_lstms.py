"""What PyTorch makes of the configurations of `lstms`, from our initial weights."""

from __future__ import annotations

import numpy as np
import torch

from bench.torch_gpt2 import train_with_norms
from bench.torch_lstm import LSTM, load_weights, weights_of
from gpt2core.data.sources import open_tokens
from gpt2core.networks.lstm.tensors import model_of
from gpt2core.networks.network import network_of
from gpt2core.spec.config import TrainConfig


def initial_weights(config: TrainConfig) -> dict[str, np.ndarray]:
    """A new model's weights."""
    network = network_of(config)
    weights = {spec.name: np.empty(spec.shape, np.float32) for spec in network.tensors(config)["weights"]}
    network.initialise(config, weights)
    return weights


def train(config: TrainConfig, dtype: torch.dtype = torch.float64) -> tuple[list[float], dict[str, np.ndarray]]:
    """Losses and final weights."""
    model = LSTM(model_of(config), config.carry_state).to(dtype)
    load_weights(model, initial_weights(config))
    losses, _ = train_with_norms(model, config, open_tokens(config))
    return losses, weights_of(model)
