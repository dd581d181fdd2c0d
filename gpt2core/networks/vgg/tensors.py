"""Sizes of a VGG and shapes of its tensors; places follow from lifetimes (networks/lifetimes.py).
No Numba and no NumPy: a server sizes runs with them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from gpt2core.layers.windows import Convolution, images
from gpt2core.networks import convolutional
from gpt2core.networks.convolutional import ConvolutionalModel
from gpt2core.networks.of_images import ImageModel
from gpt2core.optimizers import state
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.data import CHANNELS
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.fields import check_int
from gpt2core.step.tensors import TensorSpec

POOL = 0  # in LAYERS: a maximum of 2x2 pixels
LAYERS = (1, POOL, 2, POOL, 4, 4, POOL, 8, 8, POOL, 8, 8, POOL)  # channels of each convolution, in widths
POOLED = 1 << LAYERS.count(POOL)  # by which the side is divided
SLICE_BYTES = 1 << 20  # of a slice's inputs and outputs of its largest layer, which stay in a core's second cache
SLICES_A_THREAD = 2  # at least, where the batch has as many images
DENSE = ("classifier.0", "classifier.3", "classifier.6")  # torchvision's names; it has ReLU and dropout between
# The dimension of each weight that ranks divide: outputs of the first dense layer, and what the second one multiplies.
DIVIDED = {f"{DENSE[0]}.weight": 0, f"{DENSE[0]}.bias": 0, f"{DENSE[1]}.weight": 1}


@dataclass(frozen=True)
class Vgg(ConvolutionalModel):
    """Eight 3x3 convolutions with a ReLU each, five maxima of 2x2, the average of all pixels, and three dense layers,
    without batch norm and dropout.

    Source: Simonyan & Zisserman 2015, configuration A, with dense layers of `hidden` outputs.
    """

    network: ClassVar[str] = "vgg"
    sides: ClassVar[tuple[int, int]] = (POOLED, 512)
    settings: ClassVar[tuple[str, ...]] = (*ImageModel.settings, "parallel")
    parallels: ClassVar[tuple[str, ...]] = ("data", "hybrid")

    width: int = 64
    hidden: int = 512
    classes: int = 10
    side: int = 32
    name: str = "vgg"

    def __post_init__(self) -> None:
        limits = {"width": (1, 1024), "hidden": (1, 1 << 16), "classes": (2, 1 << 16), "side": self.sides}
        for size, (low, high) in limits.items():
            check_int(f"model.{size}", getattr(self, size), low, high)
        if not isinstance(self.name, str):
            raise ConfigError("model.name", self.name, "a string")

    def conflicts(self, config: TrainConfig) -> Iterator[ConfigError]:
        ranks = config.matrix_ranks
        if self.hidden % ranks:
            yield ConfigError("ranks", ranks, f"with parallel hybrid a divisor of the model's hidden ({self.hidden})")
        if ranks > 1 and config.evaluate_every:
            accepted = "the default 0 with parallel hybrid, since no rank has all weights"
            yield ConfigError("evaluate_every", config.evaluate_every, accepted)

    @property
    def convolutions(self) -> list[Convolution]:
        return [each for each in layers(self) if isinstance(each, Convolution)]

    @property
    def dense(self) -> dict[str, tuple[int, int]]:
        hidden, inputs = self.hidden, LAYERS[-2] * self.width
        return dict(zip(DENSE, ((hidden, inputs), (hidden, hidden), (self.classes, hidden)), strict=True))

    def slices(self, batch: int, seq: int, threads: int, given: tuple[int | None, int | None]) -> tuple[int, int]:
        """As many images as fill a core's second cache with their largest layer, or, if that is more, as have layers of
        the size of a slice's share of the weights' gradients; in nearly equal slices.
        """
        count = given[0]
        if count is None:
            every = self.convolutions
            layers_bytes = [4 * each.side**2 * (each.C + each.OC) for each in every]
            share_bytes = sum(4 * each.OC * each.K for each in every)
            most = max(SLICE_BYTES // max(layers_bytes), share_bytes // sum(layers_bytes))
            most = max(1, min(most, batch // (SLICES_A_THREAD * threads)))
            count = -(-batch // -(-batch // most))
        return count, given[1] or seq


def model_of(config: TrainConfig) -> Vgg:
    """The model of a VGG's configuration."""
    if not isinstance(config.model, Vgg):
        raise ConfigError("model.network", config.model.network, "vgg")
    return config.model


@functools.lru_cache(maxsize=256)
def layers(model: Vgg) -> tuple[Convolution | int, ...]:
    """The convolutions, and the sides of the inputs of the pooling between them."""
    found: list[Convolution | int] = []
    C, side, at = CHANNELS, model.side, 0  # at: index in torchvision's list, where a ReLU follows each convolution
    for wide in LAYERS:
        if wide == POOL:
            found.append(side)
            side, at = side // 2, at + 1
        else:
            name, OC = f"features.{at}", wide * model.width
            found.append(Convolution(f"{name}.weight", C, OC, side, needs_dinp=bool(found), bias=f"{name}.bias"))
            C, at = OC, at + 2
    return tuple(found)


def weight_specs(model: Vgg, ranks: int = 1) -> list[TensorSpec]:
    """The weights; those of one of several ranks that divide the dense layers' (DIVIDED)."""
    return [spec.part(DIVIDED, ranks) for spec in model.weights]


def activations(config: TrainConfig) -> list[TensorSpec]:
    """The outputs of all layers before the logits. Ranks that divide matrices have a part of the images, but all rows
    in the dense layers, of the first one some columns."""
    model, ranks, B, N = model_of(config), config.matrix_ranks, config.batch_part.batch, config.batch
    found, C = [], CHANNELS
    for number, layer in enumerate(layers(model)):
        if isinstance(layer, Convolution):
            C = layer.OC
        found.append(images(f"layer{number}", B, layer // 2 if isinstance(layer, int) else layer.side, C))
    return [
        *found,
        TensorSpec("pooled", (B, C)),
        *([TensorSpec("gathered", (N, C))] if ranks > 1 else []),
        TensorSpec("dense0", (N, model.hidden // ranks)),
        TensorSpec("dense1", (N, model.hidden)),
    ]


def rows_of_ranks(config: TrainConfig) -> list[TensorSpec]:
    """What ranks that divide matrices exchange: parts of the sums of all rows, and others' parts of a rank's own rows.
    """
    others, model = config.matrix_ranks - 1, model_of(config)
    sums = [TensorSpec(name, (count * config.batch, model.hidden))
            for name, count in (("own_sums", 1), ("other_sums", others))]  # fmt: skip
    rows = others * config.batch_part.batch
    return [*sums, TensorSpec("other_rows", (rows, LAYERS[-2] * model.width))] if others else []


def tensors(config: TrainConfig) -> dict[str, list[TensorSpec]]:
    """Every tensor by its arena's kind."""
    kept, weights = activations(config), weight_specs(model_of(config), config.matrix_ranks)
    kept += state.gradients(kept) if config.has_gradients else []
    found = convolutional.tensors(config, kept=kept, weights=weights)
    return {**found, "temporary": [*found["temporary"], *rows_of_ranks(config)]}


PRESETS = {"vgg11-cifar": Vgg(name="vgg11-cifar")}
