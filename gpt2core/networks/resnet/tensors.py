"""Sizes of a ResNet and shapes of its tensors; places follow from lifetimes (networks/lifetimes.py).
No Numba and no NumPy: a server sizes runs with them.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import ClassVar

from gpt2core.layers.windows import Block, Convolution, images
from gpt2core.networks import convolutional
from gpt2core.networks.convolutional import ConvolutionalModel
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.data import CHANNELS
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.fields import check_int
from gpt2core.step.tensors import TensorSpec

STAGES = 3
SLICE_BYTES = 1 << 20  # of a slice's activations of a block, which stay in a core's second cache
SLICES_A_THREAD = 2  # at least, where the batch has as many images


@dataclass(frozen=True)
class Resnet(ConvolutionalModel):
    """Three stages of `blocks` basic blocks with `width`, 2 and 4 times as many channels, without batch norm, for
    images of `side` rows and columns.

    Source: He et al. 2016, section 4.2, with projections; the case "no normalisation" of AWNN.
    """

    network: ClassVar[str] = "resnet"

    blocks: int = 2
    width: int = 16
    classes: int = 10
    side: int = 32
    name: str = "resnet"

    def __post_init__(self) -> None:
        for size, low, high in (("blocks", 1, 100), ("width", 1, 1024), ("classes", 2, 1 << 16), ("side", *self.sides)):
            check_int(f"model.{size}", getattr(self, size), low, high)
        if not isinstance(self.name, str):
            raise ConfigError("model.name", self.name, "a string")

    @property
    def convolutions(self) -> tuple[Convolution, ...]:
        return (first_of(self), *(each for stage in stages(self) for block in stage for each in block.every))

    @property
    def dense(self) -> dict[str, tuple[int, int]]:
        return {"fc": (self.classes, self.features)}

    @property
    def features(self) -> int:
        """Channels of the last stage."""
        return self.width << (STAGES - 1)

    def slices(self, batch: int, seq: int, threads: int, given: tuple[int | None, int | None]) -> tuple[int, int]:
        """As many images as their activations of a block fit into a core's second cache, in nearly equal slices."""
        images_ = given[0]
        if images_ is None:
            block_bytes = 3 * 4 * self.side**2 * self.width  # its input, what is between its convolutions, its output
            most = max(1, min(SLICE_BYTES // block_bytes, batch // (SLICES_A_THREAD * threads)))
            images_ = -(-batch // -(-batch // most))
        return images_, given[1] or seq


def model_of(config: TrainConfig) -> Resnet:
    """The model of a ResNet's configuration."""
    if not isinstance(config.model, Resnet):
        raise ConfigError("model.network", config.model.network, "resnet")
    return config.model


def first_of(model: Resnet) -> Convolution:
    """The first convolution. Images need no gradient."""
    return Convolution("conv1.weight", CHANNELS, model.width, model.side, needs_dinp=False)


@functools.lru_cache(maxsize=256)
def stages(model: Resnet) -> tuple[tuple[Block, ...], ...]:
    """The basic blocks of each stage."""
    found, side, C = [], model.side, model.width
    for stage in range(STAGES):
        blocks, OC = [], model.width << stage
        for index in range(model.blocks):
            name, stride = f"layer{stage + 1}.{index}", 2 if stage and not index else 1
            first = Convolution(f"{name}.conv1.weight", C, OC, side, stride=stride)
            second = Convolution(f"{name}.conv2.weight", OC, OC, first.out_side)
            shortcut = Convolution(f"{name}.downsample.0.weight", C, OC, side, 1, stride) if stride > 1 else None
            blocks.append(Block(first, second, shortcut))
            side, C = first.out_side, OC
        found.append(tuple(blocks))
    return tuple(found)


def tensors(config: TrainConfig) -> dict[str, list[TensorSpec]]:
    """Every tensor by its arena's kind. A stage's blocks share the memory of their gradients."""
    model, B = model_of(config), config.batch
    of_stage = [(s, stage[0].second.side, stage[0].second.OC) for s, stage in enumerate(stages(model), start=1)]
    kept = [images(f"{kind}{s}", B, side, C, model.blocks) for s, side, C in of_stage for kind in ("inner", "out")]
    reverse = [images(f"{kind}{s}", B, side, C) for s, side, C in of_stage for kind in ("dinner", "dout")]
    return convolutional.tensors(
        config,
        kept=[images("stem", B, model.side, model.width), *kept, TensorSpec("pooled", (B, model.features))],
        reverse=[*reverse, TensorSpec("dpooled", (B, model.features))],
    )


def _presets() -> dict[str, Resnet]:
    depths = {"resnet14-cifar": 2, "resnet20": 3, "resnet32": 5, "resnet56": 9}
    return {name: Resnet(blocks, name=name) for name, blocks in depths.items()}


PRESETS = _presets()
