"""Tensors and their layout in an arena: every size is known before anything is allocated.

Standard library only, so that a server can answer how much memory a run needs without loading a trainer.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

ALIGN = 64
HALF = "uint16"  # the bits of a bfloat16, which NumPy lacks
ITEMSIZE = {"float32": 4, "float64": 8, "int32": 4, "int64": 8, HALF: 2, "uint8": 1}
SCRATCH = "words"  # the tensor of each thread's scratch for matrix products, a row a thread
KINDS = ("weights", "gradients", "optimizer", "activations", "temporary")


@dataclass(frozen=True)
class TensorSpec:
    """One tensor: its name, its shape (outermost first, C order) and its dtype. `constant`: it is filled before the
    first step, and no task writes it.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    constant: bool = False

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @functools.cached_property
    def bytes(self) -> int:
        return self.size * ITEMSIZE[self.dtype]

    def part(self, dimensions: Mapping[str, int], ranks: int) -> TensorSpec:
        """What one of several ranks has of a tensor, which they divide if `dimensions` has its name."""
        if self.name not in dimensions:
            return self
        divided = [size // (ranks if at == dimensions[self.name] else 1) for at, size in enumerate(self.shape)]
        return TensorSpec(self.name, tuple(divided))


@dataclass(frozen=True)
class ArenaPlan:
    """Byte offsets of each tensor in one arena, multiples of ALIGN and in ascending order. Tensors may overlap; the
    layers of a tensor that lie apart have names such as qkv[3].
    """

    specs: tuple[TensorSpec, ...]
    offsets: tuple[int, ...]
    bytes: int


def plan_arena(specs: Iterable[TensorSpec]) -> ArenaPlan:
    """Lay tensors one after the other, each aligned."""
    specs, offsets, end = tuple(specs), [], 0
    for spec in specs:
        offsets.append(end)
        end += -(-spec.bytes // ALIGN) * ALIGN
    return ArenaPlan(specs, tuple(offsets), end)


def sharing(plan: ArenaPlan) -> dict[str, list[str]]:
    """The tensors that share memory with others, by name, and these."""
    found: dict[str, list[str]] = defaultdict(list)
    before: list[tuple[int, str]] = []  # tensors that may reach to the next one, and their ends
    for spec, offset in zip(plan.specs, plan.offsets, strict=True):
        before = [each for each in before if each[0] > offset]
        for _, name in before:
            found[name].append(spec.name)
            found[spec.name].append(name)
        before.append((offset + spec.bytes, spec.name))
    return found
