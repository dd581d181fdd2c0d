"""What PyTorch makes of the configurations of `resnets`, from our initial weights."""

from __future__ import annotations

import numpy as np
import torch

from bench import torch_resnet
from gpt2core.networks.network import network_of
from gpt2core.networks.resnet.checkpoint import in_file
from gpt2core.networks.resnet.tensors import model_of
from gpt2core.spec.config import TrainConfig


def initial_weights(config: TrainConfig) -> dict[str, np.ndarray]:
    """A new model's weights as files have them."""
    network = network_of(config)
    weights = {spec.name: np.empty(spec.shape, np.float32) for spec in network.tensors(config)["weights"]}
    network.initialise(config, weights)
    return in_file(model_of(config), weights)


def train(
    config: TrainConfig, dtype: torch.dtype = torch.float64
) -> tuple[list[float], list[float], dict[str, np.ndarray]]:
    """Losses, accuracies and final weights."""
    model = torch_resnet.ResNet(model_of(config)).to(dtype)
    torch_resnet.load_weights(model, initial_weights(config))
    data = network_of(config).data(config)
    losses, accuracies = torch_resnet.train(model, config, data["samples"], data["order"], model_of(config).side)
    return losses, accuracies, {name: each.detach().numpy().copy() for name, each in model.named_parameters()}
