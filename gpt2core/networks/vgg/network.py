"""The VGG as an implementation of networks/network.py."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from gpt2core.networks.convolutional import ConvolutionalNetwork
from gpt2core.networks.vgg.tensors import DENSE, PRESETS, Vgg, model_of, tensors
from gpt2core.spec.config import TrainConfig
from gpt2core.step.tensors import TensorSpec

if TYPE_CHECKING:
    from pathlib import Path

    from gpt2core.networks.network import Weights
    from gpt2core.networks.normal import Normals
    from gpt2core.step.builder import Builder


class VggNetwork(ConvolutionalNetwork):
    """Simonyan & Zisserman 2015 for images of CIFAR's size. Methods import what needs Numba or NumPy."""

    model = Vgg
    presets = PRESETS
    first, last = "features.0.weight", f"{DENSE[-1]}.weight"

    def tensors(self, config: TrainConfig) -> Mapping[str, list[TensorSpec]]:
        return tensors(config)

    def forward(self, config: TrainConfig, step: Builder) -> None:
        from gpt2core.networks.vgg import program

        program.forward(step, config)

    def initialise_dense(self, config: TrainConfig, normals: Normals, weights: Weights) -> None:
        """Weights are normal with variance 2 / fan in, and biases are 0 (He et al. 2015)."""
        for name, (_, inputs) in model_of(config).dense.items():
            normals.fill(weights[f"{name}.weight"], math.sqrt(2 / inputs))
            weights[f"{name}.bias"][:] = 0

    def sized(self, path: str | Path, names: Collection[str], width: int, classes: int, inputs: int) -> Vgg:  # noqa: ARG002
        return Vgg(width, inputs, classes)

    def claims(self, names: Collection[str]) -> bool:
        return {self.first, f"{DENSE[0]}.weight"} <= set(names)


NETWORK = VggNetwork()
