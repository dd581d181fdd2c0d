"""What PyTorch makes of the configurations of `resnets` and `vggs`, from our initial weights."""

from __future__ import annotations

import numpy as np

from bench import torch_images
from gpt2core.networks import convolutional, image_files
from gpt2core.networks.network import network_of
from gpt2core.spec.config import TrainConfig


def train(config: TrainConfig) -> tuple[list[float], list[float], dict[str, np.ndarray]]:
    """Losses, accuracies and final weights, in float64."""
    network, sizes = network_of(config), convolutional.model_of(config)
    weights = {spec.name: np.empty(spec.shape, np.float32) for spec in sizes.weights}
    network.initialise(config, weights)
    model = torch_images.new_model(config).double()
    torch_images.load_weights(model, image_files.in_file(sizes, weights))
    losses, accuracies = torch_images.train(model, config, network.data(config))
    return losses, accuracies, {name: each.detach().numpy().copy() for name, each in model.named_parameters()}
