"""The toy networks in PyTorch, in float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F

from gpt2core.networks.network import network_of
from gpt2core.spec.config import TrainConfig
from tests.support.networks import cases
from tests.support.networks.convolutions import CHANNELS, SIDES

Arrays = dict[str, np.ndarray]
Weights = dict[str, torch.Tensor]


def elman(weights: Weights, data: Arrays, config: TrainConfig, step: int) -> torch.Tensor:
    """The step's mean loss."""
    rows = config.batch * config.seq
    batch = step % ((len(data["stream"]) - 1) // rows)
    tokens = torch.from_numpy(data["stream"][batch * rows : (batch + 1) * rows + 1].astype(np.int64))
    inputs = tokens[:-1].reshape(config.batch, config.seq)
    h, states = torch.zeros(config.batch, weights["wh"].shape[0], dtype=torch.float64), []
    for t in range(config.seq):
        h = torch.tanh(weights["wte"][inputs[:, t]] + h @ weights["wh"].T)
        states.append(h)
    logits = torch.stack(states, 1) @ weights["wte"].T
    return F.cross_entropy(logits.reshape(rows, -1), tokens[1:])


def convolutions(weights: Weights, data: Arrays, config: TrainConfig, step: int) -> torch.Tensor:
    """The step's mean loss."""
    images = torch.from_numpy(data["samples"]).double().reshape(-1, config.batch, SIDES[0], SIDES[0], CHANNELS[0])
    classes = torch.from_numpy(data["classes"]).long().reshape(-1, config.batch)
    x = images[step].permute(0, 3, 1, 2)
    for i, channels in enumerate(CHANNELS[:-1]):
        kernels = weights[f"w{i}"].reshape(-1, 3, 3, channels).permute(0, 3, 1, 2)
        x = F.conv2d(F.relu(x), kernels, stride=2, padding=1)
    return F.cross_entropy(x.flatten(1), classes[step])


LOSS: dict[str, Callable[[Weights, Arrays, TrainConfig, int], torch.Tensor]] = {
    "elman": elman,
    "convolutions": convolutions,
}


def train(name: str) -> tuple[list[float], Arrays]:
    """Losses and final weights after training the network's configuration."""
    config = cases.config(name)
    network = network_of(config)
    initial = {spec.name: np.empty(spec.shape, np.float32) for spec in network.tensors(config)["weights"]}
    network.initialise(config, initial)
    weights = {key: torch.from_numpy(array).double().requires_grad_() for key, array in initial.items()}
    data, losses = dict(network.data(config)), []
    adamw = torch.optim.AdamW(
        weights.values(), config.lr, (config.beta1, config.beta2), config.eps, config.weight_decay
    )
    for step in range(config.steps):
        loss = LOSS[name](weights, data, config, step)
        losses.append(float(loss.detach()))
        adamw.zero_grad()
        loss.backward()
        adamw.step()
    return losses, {key: tensor.detach().numpy() for key, tensor in weights.items()}
