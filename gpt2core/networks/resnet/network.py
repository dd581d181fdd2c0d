"""The ResNet as an implementation of networks/network.py."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from gpt2core.networks.convolutional import WEIGHTS_STREAM, ConvolutionalNetwork
from gpt2core.networks.resnet.tensors import PRESETS, STAGES, Resnet, model_of, tensors
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import ShapeMismatch
from gpt2core.step.tensors import TensorSpec

if TYPE_CHECKING:
    from pathlib import Path

    from gpt2core.networks.network import Weights
    from gpt2core.networks.normal import Normals
    from gpt2core.step.builder import Builder

OF_BLOCK = re.compile(r"layer([1-9])\.(0|[1-9]\d{0,2})\.conv1\.weight")


class ResnetNetwork(ConvolutionalNetwork):
    """He et al. 2016 for images of CIFAR's size, without batch norm. Methods import what needs Numba or NumPy."""

    model = Resnet
    presets = PRESETS
    first, last = "conv1.weight", "fc.weight"

    def tensors(self, config: TrainConfig) -> Mapping[str, list[TensorSpec]]:
        return tensors(config)

    def forward(self, config: TrainConfig, step: Builder) -> None:
        from gpt2core.networks.resnet import program

        program.forward(step, config)

    def initialise_dense(self, config: TrainConfig, normals: Normals, weights: Weights) -> None:  # noqa: ARG002
        """fc.weight is uniform within sqrt(6 / in), fc.bias within 1 / sqrt(in), as AWNN's."""
        import numpy as np

        features = model_of(config).features
        uniforms = np.random.Generator(np.random.PCG64([config.seed, WEIGHTS_STREAM, 1]))
        for name, limit in (("fc.weight", math.sqrt(6 / features)), ("fc.bias", 1 / math.sqrt(features))):
            out, bound = weights[name], np.float32(limit)
            uniforms.random(dtype=np.float32, out=out)
            out *= 2 * bound
            out -= bound

    def sized(self, path: str | Path, names: Collection[str], width: int, classes: int, inputs: int) -> Resnet:  # noqa: ARG002
        found = {(int(each[1]), int(each[2])) for name in names if (each := OF_BLOCK.fullmatch(name))}
        stages = max(found, default=(0,))[0]
        if stages != STAGES:
            raise ShapeMismatch(path, f"has {stages} stages of blocks; a resnet has {STAGES}")
        return Resnet(1 + max(index for _, index in found), width, classes)

    def claims(self, names: Collection[str]) -> bool:
        return self.first in names and any(name.startswith("layer1.") for name in names)


NETWORK = ResnetNetwork()
