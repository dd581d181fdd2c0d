"""The VGG as an implementation of networks/network.py."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from gpt2core.networks.of_images import ImageNetwork
from gpt2core.networks.vgg.tensors import PRESETS, Vgg, model_of, tensors
from gpt2core.spec.config import TrainConfig
from gpt2core.step.tensors import TensorSpec

if TYPE_CHECKING:
    from gpt2core.networks.network import Weights
    from gpt2core.step.builder import Builder


class VggNetwork(ImageNetwork):
    """Simonyan & Zisserman 2015 for images of CIFAR's size. Methods import what needs Numba or NumPy."""

    model = Vgg
    presets = PRESETS
    files = "gpt2core.networks.vgg.checkpoint"

    def tensors(self, config: TrainConfig) -> Mapping[str, list[TensorSpec]]:
        return tensors(config)

    def forward(self, config: TrainConfig, step: Builder) -> None:
        from gpt2core.networks.vgg import program

        program.forward(step, config)

    def initialise(self, config: TrainConfig, weights: Weights) -> None:
        from gpt2core.networks.vgg import initial

        initial.initial_weights(model_of(config), config.seed, weights)

    def claims(self, names: Collection[str]) -> bool:
        return {"features.0.weight", "classifier.0.weight"} <= set(names)


NETWORK = VggNetwork()
