"""A ResNet in plain PyTorch: the reference of parity tests. It shares only a model's sizes with the trainer."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from gpt2core.networks.resnet.tensors import STAGES, Resnet


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
