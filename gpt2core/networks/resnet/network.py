"""The ResNet as an implementation of networks/network.py."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from gpt2core.networks.network import InFiles
from gpt2core.networks.resnet.tensors import PRESETS, Resnet, model_of, tensors
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.fields import FUSIONS
from gpt2core.step.tensors import TensorSpec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpt2core.networks.network import Weights
    from gpt2core.step.builder import Builder


class ResnetNetwork(InFiles):
    """He et al. 2016 for images of CIFAR's size, without batch norm. Methods import what needs Numba or NumPy."""

    model = Resnet
    presets = PRESETS
    fusions = FUSIONS
    files = "gpt2core.networks.resnet.checkpoint"
    decays_biases = False

    def tensors(self, config: TrainConfig) -> Mapping[str, list[TensorSpec]]:
        return tensors(config)

    def forward(self, config: TrainConfig, step: Builder) -> None:
        from gpt2core.networks.resnet import program

        program.forward(step, config)

    def data(self, config: TrainConfig) -> Mapping[str, NDArray[np.generic]]:
        from gpt2core.data import images

        model, count = model_of(config), config.tokens_per_step * config.steps
        split = config.split or "train" if config.mode == "infer" else "train"
        found = images.open_images(
            config.data, batch=config.batch, side=model.side, classes=model.classes, val_samples=config.val_samples,
            seed=config.seed, split=split,
        )  # fmt: skip
        order = images.order(found.of(split), count, config.shuffle, config.seed)
        data: dict[str, NDArray[np.generic]] = {"samples": found.samples, "order": order}
        if config.evaluate_every:
            data["evaluated"] = images.evaluated(config.data, found, config.read_split or "val")
        return data

    def checksums(self, config: TrainConfig) -> Mapping[str, str]:
        from gpt2core.data import images

        return images.checksums(config.data)

    def initialise(self, config: TrainConfig, weights: Weights) -> None:
        from gpt2core.networks.resnet import initial

        initial.initial_weights(model_of(config), config.seed, weights)

    def claims(self, names: Collection[str]) -> bool:
        return "conv1.weight" in names and any(name.startswith("layer1.") for name in names)


NETWORK = ResnetNetwork()
