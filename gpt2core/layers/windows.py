"""Sizes of convolutions and tables of the tensors that they need. No Numba, because servers size runs with them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

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
    """A convolution without bias of C to OC channels, of images of `side` rows: its window's size (1 or 3) and stride
    (1 or 2). `weight` names its weight's tensor.
    """

    weight: str
    C: int
    OC: int
    side: int
    size: int = 3
    stride: int = 1
    needs_dinp: bool = True

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


def temporary(convolutions: Iterable[Convolution], slices: int) -> list[TensorSpec]:
    """Packed weights, and the slices' shares of the weights' gradients."""
    found = []
    for each in convolutions:
        found.append(TensorSpec(f"packed.{each.weight}", (each.K * padded(each.OC),)))
        if each.needs_dinp:
            found.append(TensorSpec(f"turned.{each.weight}", (each.size**2 * each.OC * padded(each.C),)))
        found.append(TensorSpec(f"shares.{each.weight}", (slices * each.OC, each.K)))
    return found
