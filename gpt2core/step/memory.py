"""The memory of a run: one arena a kind, allocated whole, with a view for each tensor."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from gpt2core.node import pages
from gpt2core.step.ops import Arena, InMemory, Own
from gpt2core.step.tensors import ArenaPlan


class Memory:
    """The arenas of one run. `arrays` maps tensor names to views; `operand` gives what a kernel is called with."""

    def __init__(self, plans: Mapping[str, ArenaPlan]) -> None:
        self.plans = plans
        self.arenas: dict[str, NDArray[np.uint8]] = {}
        self.arrays: dict[str, NDArray[np.generic]] = {}
        for kind, arena in plans.items():
            block = np.frombuffer(pages.reserve(arena.bytes), dtype=np.uint8)[: arena.bytes]
            self.arenas[kind] = block
            for spec, offset in zip(arena.specs, arena.offsets, strict=True):
                view = block[offset : offset + spec.bytes].view(spec.dtype)
                self.arrays[spec.name] = view.reshape(spec.shape)

    def operand(self, operand: InMemory) -> tuple[int, int, int, int]:
        """(address, two dimensions, bytes from a thread's part to the next) of a tensor, or (value, 0, 0, 0)."""
        if isinstance(operand, int):
            return (operand, 0, 0, 0)
        if isinstance(operand, Own):
            whole = self.arrays[operand.name]
            shape = operand.shape or whole.shape[1:]
            address = whole.ctypes.data + operand.offset * whole.itemsize
            return (int(address), *(*shape, 0)[:2], whole.strides[0])
        if isinstance(operand, Arena):
            array: NDArray[np.generic] = self.arenas[operand.kind].view(np.float32)
        elif not operand.name:
            return (0, 0, 0, 0)
        else:
            array = self.arrays[operand.name]
            if operand.index is not None:
                array = array[operand.index]
        first, second = (*array.shape, 0, 0)[:2]
        return (int(array.ctypes.data), first, second, 0)

    @property
    def weights(self) -> dict[str, NDArray[np.float32]]:
        """The weights' views by name, in the order in which they lie."""
        return {spec.name: self.arrays[spec.name].view(np.float32) for spec in self.plans["weights"].specs}
