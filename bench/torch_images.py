"""Networks on images in plain PyTorch: their data, optimizer and training. They share only a model's sizes with the
trainer."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from safetensors.torch import load_model
from torch import Tensor, nn
from torch.nn import functional as F

from bench.torch_resnet import ResNet
from bench.torch_vgg import VGG
from gpt2core.networks import convolutional
from gpt2core.networks.network import network_of
from gpt2core.networks.resnet.tensors import Resnet
from gpt2core.networks.vgg.tensors import Vgg
from gpt2core.spec.config import TrainConfig

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)


def batch_of(
    data: Mapping[str, np.ndarray], config: TrainConfig, number: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Images and classes of batch `number` of a run's data."""
    samples, order, B, side = data["samples"], data["order"], config.batch, convolutional.model_of(config).side
    at = order[(number * B + np.arange(B)) % len(order)]
    pixels = samples[at[:, None] + 1 + np.arange(3 * side * side)].reshape(B, 3, side, side) / 255
    scaled = (pixels - np.reshape(MEAN, (3, 1, 1))) / np.reshape(STD, (3, 1, 1))
    return torch.from_numpy(scaled).to(dtype), torch.from_numpy(samples[at].astype(np.int64))


def new_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """The configuration's SGD. Weights decay, biases do not."""
    biases = [parameter for parameter in model.parameters() if parameter.ndim == 1]
    weights = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    groups = [{"params": weights, "weight_decay": config.weight_decay}, {"params": biases, "weight_decay": 0.0}]
    return torch.optim.SGD(groups, config.lr, config.momentum, nesterov=config.nesterov)


def train(
    model: ResNet | VGG, config: TrainConfig, data: Mapping[str, np.ndarray]
) -> tuple[list[float], list[float]]:
    """Train in place for config.steps; losses, and the share of images whose class is the most likely one."""
    optimizer, losses, accuracies = new_optimizer(model, config), [], []
    dtype = next(model.parameters()).dtype
    for step in range(config.steps):
        loss, right = 0.0, 0
        for micro in range(config.grad_accum):
            x, targets = batch_of(data, config, step * config.grad_accum + micro, dtype)
            logits = model.logits(x)
            share = F.cross_entropy(logits, targets) / config.grad_accum
            share.backward()
            loss += float(share.detach())
            right += int((logits.argmax(1) == targets).sum())
        if config.grad_clip:
            nn.utils.clip_grad_norm_(model.parameters(), config.grad_clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss)
        accuracies.append(right / (config.grad_accum * config.batch))
    return losses, accuracies


def load_weights(model: nn.Module, weights: Mapping[str, np.ndarray]) -> None:
    """Set the weights from arrays as files have them, in the model's own number format."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(np.array(weights[name])))


def new_model(config: TrainConfig) -> ResNet | VGG:
    """A module of the configuration's model, with PyTorch's initial weights."""
    if isinstance(config.model, Vgg):
        return VGG(config.model)
    assert isinstance(config.model, Resnet)
    return ResNet(config.model)


def prepared(
    config: TrainConfig, channels_last: bool
) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], tuple[Tensor, Tensor]]]:
    """The model of the checkpoint, its optimizer, and what gives a batch by its number, converted beforehand."""
    layout = torch.channels_last if channels_last else torch.contiguous_format
    module = new_model(config)
    load_model(module, str(config.checkpoint))
    model = module.to(memory_format=layout)
    data, batches = network_of(config).data(config), []
    for number in range(config.steps * config.grad_accum):
        x, targets = batch_of(data, config, number, torch.float32)
        batches.append((x.contiguous(memory_format=layout), targets))
    return model, new_optimizer(model, config), batches.__getitem__
