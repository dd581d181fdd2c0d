"""Tables of (name, shape, dtype): every tensor of a run, and so every size, known before anything is allocated.

Standard library only, so that a server can answer how much memory a run needs without loading a trainer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from gpt2core.config import ModelConfig

ALIGN = 64
ITEMSIZE = {"float32": 4, "int32": 4, "uint16": 2}


@dataclass(frozen=True)
class TensorSpec:
    """One tensor: its name, its shape (outermost first, C order) and its dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.size * ITEMSIZE[self.dtype]


@dataclass(frozen=True)
class ArenaPlan:
    """Where each tensor lies in one arena: byte offsets, each a multiple of ALIGN."""

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


def weight_specs(model: ModelConfig) -> list[TensorSpec]:
    """GPT-2's weights in llm.c's order: matrices are (out, in), each kind stacked over the L layers."""
    L, C, Vp = model.layers, model.channels, model.padded_vocab
    return [
        TensorSpec("wte", (Vp, C)),
        TensorSpec("wpe", (model.context, C)),
        TensorSpec("ln1w", (L, C)),
        TensorSpec("ln1b", (L, C)),
        TensorSpec("qkvw", (L, 3 * C, C)),
        TensorSpec("qkvb", (L, 3 * C)),
        TensorSpec("attprojw", (L, C, C)),
        TensorSpec("attprojb", (L, C)),
        TensorSpec("ln2w", (L, C)),
        TensorSpec("ln2b", (L, C)),
        TensorSpec("fcw", (L, 4 * C, C)),
        TensorSpec("fcb", (L, 4 * C)),
        TensorSpec("fcprojw", (L, C, 4 * C)),
        TensorSpec("fcprojb", (L, C)),
        TensorSpec("lnfw", (C,)),
        TensorSpec("lnfb", (C,)),
    ]
