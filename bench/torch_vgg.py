"""A VGG in plain PyTorch: the reference of parity tests. It shares only a model's sizes with the trainer."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from gpt2core.networks.vgg.tensors import Vgg

CHANNELS = (1, "M", 2, "M", 4, 4, "M", 8, 8, "M", 8, 8, "M")  # in widths; M: a maximum


class VGG(nn.Module):
    """The mean loss of images (B, 3, side, side) and their classes. Its names are torchvision's, and our files'."""

    def __init__(self, sizes: Vgg) -> None:
        super().__init__()
        features: list[nn.Module] = []
        channels = 3
        for each in CHANNELS:
            if isinstance(each, str):
                features.append(nn.MaxPool2d(2))
            else:
                features += [nn.Conv2d(channels, each * sizes.width, 3, padding=1), nn.ReLU()]
                channels = each * sizes.width
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(
            nn.Linear(channels, sizes.hidden), nn.ReLU(), nn.Dropout(0.0),
            nn.Linear(sizes.hidden, sizes.hidden), nn.ReLU(), nn.Dropout(0.0),
            nn.Linear(sizes.hidden, sizes.classes),
        )  # fmt: skip

    def logits(self, x: Tensor) -> Tensor:
        found: Tensor = self.classifier(self.features(x).mean((2, 3)))
        return found

    def forward(self, x: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(self.logits(x), targets)
