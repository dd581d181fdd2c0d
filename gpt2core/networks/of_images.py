"""What networks on images share: their data, and their settings' defaults. Methods import what needs NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from gpt2core.networks.network import Network
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.data import IMAGES
from gpt2core.spec.fields import FUSIONS
from gpt2core.spec.networks import Model

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

OF_IMAGES: Mapping[str, Any] = MappingProxyType({"seq": 1, "data": "synthetic"})
OF_SGD: Mapping[str, Any] = MappingProxyType({"optimizer": "sgd", "momentum": 0.9, "weight_decay": 1e-4, "lr": 0.005})


class ImageModel(Model):
    """Sizes of a network that classifies images of `side` rows and columns into `classes`."""

    settings: ClassVar[tuple[str, ...]] = ("shuffle", "val_samples", "split", "evaluate_every")
    reads: ClassVar[str] = IMAGES
    metrics: ClassVar[tuple[str, ...]] = ("loss", "accuracy")
    unit: ClassVar[str] = "images"
    precisions: ClassVar[tuple[str, ...]] = ("fp32",)
    defaults: ClassVar[Mapping[str, Any]] = OF_IMAGES
    optimizer_defaults: ClassVar[Mapping[str, Any]] = OF_SGD

    sides: ClassVar[tuple[int, int]] = (4, 512)  # the smallest and the largest

    side: int
    classes: int
    context = 1  # without an annotation: no field
    vocab = property(lambda self: self.classes)


class ImageNetwork(Network):
    """A network whose model is an ImageModel."""

    fusions = FUSIONS
    decays_biases = False

    def data(self, config: TrainConfig) -> Mapping[str, NDArray[np.generic]]:
        from gpt2core.data import images

        model, count = config.model, config.tokens_per_step * config.steps
        assert isinstance(model, ImageModel)
        split = "train" if config.updates else config.split or "train"
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
