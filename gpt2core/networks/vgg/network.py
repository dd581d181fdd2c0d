"""The VGG as an implementation of networks/network.py."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from gpt2core.networks.convolutional import ConvolutionalNetwork
from gpt2core.networks.vgg.tensors import DENSE, DIVIDED, PRESETS, Vgg, model_of, tensors, weight_specs
from gpt2core.spec.config import TrainConfig
from gpt2core.step.tensors import TensorSpec

if TYPE_CHECKING:
    from pathlib import Path

    from gpt2core.networks.network import AtFirst, Weights
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

    def fill(self, config: TrainConfig, rank: int, weights: Weights) -> None:
        if config.matrix_ranks == 1:
            super().fill(config, rank, weights)
            return
        import numpy as np

        whole = {spec.name: np.empty(spec.shape, np.float32) for spec in weight_specs(model_of(config))}
        super().fill(config, rank, whole)
        for name, part in weights.items():
            parts = np.split(whole[name], config.matrix_ranks, DIVIDED[name]) if name in DIVIDED else None
            part[...] = whole[name] if parts is None else parts[rank]

    def whole(self, config: TrainConfig, weights: Weights, at_first: AtFirst) -> Weights:
        if config.matrix_ranks == 1:
            return super().whole(config, weights, at_first)
        import numpy as np

        parts = {name: at_first(weights[name]) for name in DIVIDED}
        found = {name: np.concatenate(each, DIVIDED[name]) for name, each in parts.items() if each}
        return {name: found.get(name, mine) for name, mine in weights.items()}

    def sized(self, path: str | Path, names: Collection[str], width: int, classes: int, inputs: int) -> Vgg:  # noqa: ARG002
        return Vgg(width, inputs, classes)

    def claims(self, names: Collection[str]) -> bool:
        return {self.first, f"{DENSE[0]}.weight"} <= set(names)


NETWORK = VggNetwork()
