"""The ResNet as an implementation of networks/network.py."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from gpt2core.networks.of_images import ImageNetwork
from gpt2core.networks.resnet.tensors import PRESETS, Resnet, model_of, tensors
from gpt2core.spec.config import TrainConfig
from gpt2core.step.tensors import TensorSpec

if TYPE_CHECKING:
    from gpt2core.networks.network import Weights
    from gpt2core.step.builder import Builder


class ResnetNetwork(ImageNetwork):
    """He et al. 2016 for images of CIFAR's size, without batch norm. Methods import what needs Numba or NumPy."""

    model = Resnet
    presets = PRESETS
    files = "gpt2core.networks.resnet.checkpoint"

    def tensors(self, config: TrainConfig) -> Mapping[str, list[TensorSpec]]:
        return tensors(config)

    def forward(self, config: TrainConfig, step: Builder) -> None:
        from gpt2core.networks.resnet import program

        program.forward(step, config)

    def initialise(self, config: TrainConfig, weights: Weights) -> None:
        from gpt2core.networks.resnet import initial

        initial.initial_weights(model_of(config), config.seed, weights)

    def claims(self, names: Collection[str]) -> bool:
        return "conv1.weight" in names and any(name.startswith("layer1.") for name in names)


NETWORK = ResnetNetwork()
