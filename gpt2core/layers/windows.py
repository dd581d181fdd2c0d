"""Sizes of convolutions and tables of the tensors that they need. No Numba, because servers size runs with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gpt2core.gemm.sizes import LANES
from gpt2core.step.tensors import TensorSpec

BORDER = 2  # pixels that a halo adds to each side's length


def images(name: str, count: int, side: int, channels: int, *outer: int) -> TensorSpec:
    """Images with a halo, of `outer` layers."""
    return TensorSpec(name, (*outer, count, side + BORDER, side + BORDER, channels))


def padded(channels: int) -> int:
    """Channels of whole panels of packed weights."""
    return -(-channels // LANES) * LANES


@dataclass(frozen=True)
class Convolution:
    """A convolution of C to OC channels, of images of `side` rows: its window's size (1 or 3) and stride (1 or 2).
    `weight` and `bias` name their tensors; "": no bias.
    """

    weight: str
    C: int
    OC: int
    side: int
    size: int = 3
    stride: int = 1
    needs_dinp: bool = True
    bias: str = ""

    @property
    def out_side(self) -> int:
        return -(-self.side // self.stride)

    @property
    def K(self) -> int:
        """Columns of its weight's matrix."""
        return self.size**2 * self.C

    @property
    def flop(self) -> int:
        """FLOP of an image's forward pass."""
        return 2 * self.out_side**2 * self.K * self.OC

    @property
    def step_flop(self) -> int:
        """FLOP of an image's training."""
        return (3 if self.needs_dinp else 2) * self.flop

    @property
    def spec(self) -> TensorSpec:
        return TensorSpec(self.weight, (self.OC, self.K))

    @property
    def specs(self) -> list[TensorSpec]:
        """Its weight and its bias."""
        return [self.spec, *([TensorSpec(self.bias, (self.OC,))] if self.bias else [])]


@dataclass(frozen=True)
class Block:
    """A basic block: two convolutions, and one for its shortcut if its output has another shape than its input."""

    first: Convolution
    second: Convolution
    shortcut: Convolution | None = None

    @property
    def every(self) -> list[Convolution]:
        return [each for each in (self.first, self.second, self.shortcut) if each]


class Packed(NamedTuple):
    """Where a weight lies in the packed ones, in elements: for products with windows, and turned."""

    at: int
    turned_at: int
    end: int


def packed_places(convolutions: Iterable[Convolution], trains: bool) -> dict[str, Packed]:
    """The places of packed weights by the weights' names. Only training turns weights."""
    found, end = {}, 0
    for each in convolutions:
        turned_at = end + each.K * padded(each.OC)
        last = turned_at + (each.size**2 * each.OC * padded(each.C) if trains and each.needs_dinp else 0)
        found[each.weight], end = Packed(end, turned_at, last), last
    return found


def temporary(convolutions: Sequence[Convolution], slices: int) -> list[TensorSpec]:
    """Packed weights, and the shares of the weights' gradients of some slices, if there are any."""
    packed = list(packed_places(convolutions, slices > 0).values())[-1].end
    trained = convolutions if slices else ()
    shares = [TensorSpec(f"shares.{each.weight}", (slices * each.OC, each.K)) for each in trained]
    of_biases = [TensorSpec(f"shares.{each.bias}", (slices * each.OC,)) for each in trained if each.bias]
    return [TensorSpec("packed", (packed,), constant=not slices), *shares, *of_biases]
