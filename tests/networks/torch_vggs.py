"""What PyTorch makes of the configurations of `vggs`, from our initial weights."""

from __future__ import annotations

import numpy as np
import torch

from bench import torch_resnet, torch_vgg
from gpt2core.networks.network import network_of
from gpt2core.networks.vgg.checkpoint import in_file
from gpt2core.networks.vgg.tensors import model_of
from gpt2core.spec.config import TrainConfig


def train(
    config: TrainConfig, dtype: torch.dtype = torch.float64
) -> tuple[list[float], list[float], dict[str, np.ndarray]]:
    """Losses, accuracies and final weights."""
    network, sizes = network_of(config), model_of(config)
    weights = {spec.name: np.empty(spec.shape, np.float32) for spec in network.tensors(config)["weights"]}
    network.initialise(config, weights)
    model = torch_vgg.VGG(sizes).to(dtype)
    torch_resnet.load_weights(model, in_file(sizes, weights))
    data = network.data(config)
    losses, accuracies = torch_resnet.train(model, config, data["samples"], data["order"], sizes.side)
    return losses, accuracies, {name: each.detach().numpy().copy() for name, each in model.named_parameters()}
