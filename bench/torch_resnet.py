"""A ResNet in plain PyTorch: the reference of parity tests. It shares only a model's sizes with the trainer."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from safetensors.torch import load_model
from torch import Tensor, nn
from torch.nn import functional as F

from bench.torch_vgg import VGG
from gpt2core.networks.network import network_of
from gpt2core.networks.resnet.tensors import STAGES, Resnet, model_of
from gpt2core.spec.config import TrainConfig

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)


class Block(nn.Module):
    """y = ReLU(conv(ReLU(conv(x))) + s(x))."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.downsample = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False)) if stride > 1 else None

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        return F.relu(self.conv2(F.relu(self.conv1(x))) + shortcut)


class ResNet(nn.Module):
    """The mean loss of images (B, 3, side, side) and their classes. Its names are those of our files."""

    def __init__(self, sizes: Resnet) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, sizes.width, 3, 1, 1, bias=False)
        channels = sizes.width
        for stage in range(STAGES):
            blocks = []
            for index in range(sizes.blocks):
                outer = sizes.width << stage
                blocks.append(Block(channels, outer, 2 if stage and not index else 1))
                channels = outer
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(channels, sizes.classes)

    def logits(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv1(x))
        for stage in range(STAGES):
            x = getattr(self, f"layer{stage + 1}")(x)
        found: Tensor = self.fc(x.mean((2, 3)))
        return found

    def forward(self, x: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(self.logits(x), targets)


def batch_of(
    samples: np.ndarray, order: np.ndarray, batch: int, B: int, side: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Images and classes of batch number `batch`."""
    at = order[(batch * B + np.arange(B)) % len(order)]
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
    model: ResNet | VGG, config: TrainConfig, samples: np.ndarray, order: np.ndarray, side: int
) -> tuple[list[float], list[float]]:
    """Train in place for config.steps; losses, and the share of images whose class is the most likely one."""
    optimizer, losses, accuracies = new_optimizer(model, config), [], []
    dtype = next(model.parameters()).dtype
    for step in range(config.steps):
        loss, right = 0.0, 0
        for micro in range(config.grad_accum):
            x, targets = batch_of(samples, order, step * config.grad_accum + micro, config.batch, side, dtype)
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


def prepared(
    config: TrainConfig, channels_last: bool
) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[int], tuple[Tensor, Tensor]]]:
    """The model of the checkpoint, its optimizer, and what gives a batch by its number, converted beforehand."""
    sizes, layout = model_of(config), torch.channels_last if channels_last else torch.contiguous_format
    model = ResNet(sizes)
    load_model(model, str(config.checkpoint))
    model = model.to(memory_format=layout)
    data, batches = network_of(config).data(config), []
    for number in range(config.steps * config.grad_accum):
        x, targets = batch_of(data["samples"], data["order"], number, config.batch, sizes.side, torch.float32)
        batches.append((x.contiguous(memory_format=layout), targets))
    return model, new_optimizer(model, config), batches.__getitem__
