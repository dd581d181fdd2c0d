"""Sizes of a VGG and tables of its tensors. No Numba and no NumPy: a server sizes runs with them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from gpt2core.layers.windows import Convolution, images, temporary
from gpt2core.networks import classes, token_rows
from gpt2core.networks.of_images import ImageModel
from gpt2core.optimizers import state
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.data import CHANNELS
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.fields import check_int
from gpt2core.step import slicing
from gpt2core.step.tensors import TensorSpec

POOL = 0  # in LAYERS: a maximum of 2x2 pixels
LAYERS = (1, POOL, 2, POOL, 4, 4, POOL, 8, 8, POOL, 8, 8, POOL)  # channels of each convolution, in widths
POOLED = 1 << LAYERS.count(POOL)  # by which the side is divided
SLICE_BYTES = 1 << 20  # of a slice's inputs and outputs of its largest layer, which stay in a core's second cache
SLICES_A_THREAD = 2  # at least, where the batch has as many images
DENSE = ("classifier.0", "classifier.3", "classifier.6")  # torchvision's names; it has ReLU and dropout between


@dataclass(frozen=True)
class Vgg(ImageModel):
    """Eight 3x3 convolutions with a ReLU each, five maxima of 2x2, the average of all pixels, and three dense layers,
    without batch norm and dropout.

    Source: Simonyan & Zisserman 2015, configuration A, with dense layers of `hidden` outputs.
    """

    network: ClassVar[str] = "vgg"

    width: int = 64
    hidden: int = 512
    classes: int = 10
    side: int = 32
    name: str = "vgg"

    def __post_init__(self) -> None:
        for size, low, high in (("width", 1, 1024), ("hidden", 1, 1 << 16), ("classes", 2, 1 << 16)):
            check_int(f"model.{size}", getattr(self, size), low, high)
        check_int("model.side", self.side, POOLED, 512)
        if not isinstance(self.name, str):
            raise ConfigError("model.name", self.name, "a string")

    def step_flop(self, samples: int, positions: int) -> int:
        """FLOP of the products: of each weight's forward pass, and of the gradients of its input and of itself."""
        dense = sum(6 * rows * columns for rows, columns in dense_shapes(self))
        return samples * positions * (sum(each.step_flop for each in convolutions(self)) + dense)

    def slices(self, batch: int, seq: int, threads: int, given: tuple[int | None, int | None]) -> tuple[int, int]:
        """As many images as fill a core's second cache with their largest layer, or, if that is more, as have layers of
        the size of a slice's share of the weights' gradients; in nearly equal slices.
        """
        count = given[0]
        if count is None:
            every = convolutions(self)
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


def convolutions(model: Vgg) -> list[Convolution]:
    return [each for each in layers(model) if isinstance(each, Convolution)]


def dense_shapes(model: Vgg) -> list[tuple[int, int]]:
    """Outputs and inputs of the dense layers."""
    inputs = (LAYERS[-2] * model.width, model.hidden, model.hidden)
    return list(zip((model.hidden, model.hidden, model.classes), inputs, strict=True))


def weight_specs(model: Vgg) -> list[TensorSpec]:
    """The weights by the names of a torch module, in the order in which they lie; those of convolutions as matrices."""
    dense = [
        TensorSpec(f"{name}.{kind}", shape)
        for name, (rows, columns) in zip(DENSE, dense_shapes(model), strict=True)
        for kind, shape in (("weight", (rows, columns)), ("bias", (rows,)))
    ]
    return [*(spec for each in convolutions(model) for spec in each.specs), *dense]


def activations(model: Vgg, B: int) -> list[TensorSpec]:
    """The outputs of all layers before the logits."""
    found, C = [], CHANNELS
    for number, layer in enumerate(layers(model)):
        if isinstance(layer, Convolution):
            C = layer.OC
        found.append(images(f"layer{number}", B, layer // 2 if isinstance(layer, int) else layer.side, C))
    pooled = TensorSpec("pooled", (B, C))
    return [*found, pooled, *(TensorSpec(f"dense{number}", (B, model.hidden)) for number in range(len(DENSE) - 1))]


def tensors(config: TrainConfig) -> dict[str, list[TensorSpec]]:
    """Every tensor by its arena's kind."""
    model, B = model_of(config), config.batch
    specs, kept = weight_specs(model), activations(model_of(config), config.batch)
    head = token_rows.head_specs(config, model.hidden, model.classes)
    accuracy = classes.specs(config)
    matrices = [(spec.shape[0], spec.shape[1]) for spec in specs if len(spec.shape) == 2]
    training = config.mode == "train"
    return {
        **state.arenas_with(state.names(config), specs, keeps_gradients=config.fused != "all"),
        "activations": [
            images("images", B, model.side, CHANNELS),
            TensorSpec("targets", (B,), "int32"),
            *kept,
            *(state.gradients(kept) if training else []),
            *head["activations"],
            *accuracy["activations"],
        ],
        "temporary": [
            *head["temporary"],
            *accuracy["temporary"],
            *temporary(convolutions(model), slicing.count(config) if training else 0),
            *_for_update(config, matrices),
        ],
    }


def _for_update(config: TrainConfig, matrices: Sequence[tuple[int, int]]) -> list[TensorSpec]:
    blocks = [slicing.block_rows(rows, columns) * (columns + 1) for rows, columns in matrices]
    parts = sum(slicing.block_count(rows, columns) for rows, columns in matrices)
    return [
        *([TensorSpec("gradient", (config.threads, max(blocks)))] if config.fused == "all" else []),
        *(state.clipping(config.steps, parts) if config.grad_clip else []),
    ]


PRESETS = {"vgg11-cifar": Vgg(name="vgg11-cifar")}
