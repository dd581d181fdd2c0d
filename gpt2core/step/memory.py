"""The memory of a run: one arena for each kind, allocated as a whole, with a view for each tensor."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpt2core.node import pages
from gpt2core.step.ops import Arena, Outside, Own, Tensor
from gpt2core.step.tensors import ArenaPlan


class Memory:
    """The arenas of one run. `arrays` maps tensor names to views; `view` returns the array of an operand."""

    def __init__(self, plans: Mapping[str, ArenaPlan], blocks: Mapping[str, NDArray[np.uint8]] | None = None) -> None:
        """blocks: memory for the arenas, by their kinds; None: it is allocated."""
        self.plans = plans
        self.arenas: dict[str, NDArray[np.uint8]] = {}
        self.arrays: dict[str, NDArray[Any]] = {}
        for kind, arena in plans.items():
            found = np.frombuffer(pages.reserve(arena.bytes), dtype=np.uint8) if blocks is None else blocks[kind]
            block = found[: arena.bytes]
            self.arenas[kind] = block
            for spec, offset in zip(arena.specs, arena.offsets, strict=True):
                view = block[offset : offset + spec.bytes].view(spec.dtype)
                self.arrays[spec.name] = view.reshape(spec.shape)

    def view(self, operand: Tensor | Arena | Own | Outside) -> NDArray[Any]:
        """The array that an operand names; thread 0's part if each thread has its own."""
        if isinstance(operand, Arena):
            return self.arenas[operand.kind].view(np.float32)
        if str(operand) in self.arrays:  # also a layer that lies apart from the others
            return self.arrays[str(operand)]
        array: NDArray[Any] = self.arrays[operand.name]
        if isinstance(operand, Own):
            shape = operand.shape or array.shape[1:]
            flat = array.reshape(len(array), -1)[0, operand.offset : operand.offset + math.prod(shape)]
            return flat.reshape(shape)
        if isinstance(operand, Tensor) and operand.layer is not None:
            array = array[operand.layer]
        return array

    def own_stride(self, operand: Tensor | Arena | Own | Outside) -> int:
        """Bytes between two threads' parts of an operand; 0 for shared memory."""
        return self.arrays[operand.name].strides[0] if isinstance(operand, Own) else 0

    @property
    def weights(self) -> dict[str, NDArray[Any]]:
        """The weights' views by name, in the order in which they lie: float32, or the bits of bfloat16."""
        return {spec.name: self.arrays[spec.name] for spec in self.plans["weights"].specs}
