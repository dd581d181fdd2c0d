"""The memory of a run: one arena a kind, allocated whole, with a view for each tensor."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpt2core.node import host, memory
from gpt2core.spec.config import AUTO, PRESETS, TrainConfig
from gpt2core.spec.errors import NotEnoughMemory
from gpt2core.step.ops import Arena, InMemory, Own, Tensor
from gpt2core.step.tensors import ArenaPlan, memory_bytes, plan

RESERVE_BYTES = 256 << 20  # for the interpreter, the compiled code and the BLAS library's buffers


class Memory:
    """The arenas of one run. `arrays` maps tensor names to views; `operand` gives what a kernel is called with."""

    def __init__(self, plans: Mapping[str, ArenaPlan]) -> None:
        self.arenas: dict[str, NDArray[np.uint8]] = {}
        self.arrays: dict[str, NDArray[np.generic]] = {}
        for kind, arena in plans.items():
            block = np.frombuffer(memory.reserve(arena.bytes), dtype=np.uint8)[: arena.bytes]
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

    def weights(self, config: TrainConfig) -> dict[str, NDArray[np.float32]]:
        """The weights' views by name."""
        names = [spec.name for spec in plan(config)["weights"].specs]
        return {name: self.arrays[name].view(np.float32) for name in names}


def check_fits(config: TrainConfig) -> None:
    """Raise NotEnoughMemory, with what would fit, if the run's arenas exceed what this process may use."""
    needed = sum(memory_bytes(config).values()) + RESERVE_BYTES
    available = host.available_memory_bytes()
    if needed > available:
        raise NotEnoughMemory(needed, available, what_fits(config, available - RESERVE_BYTES))


def what_fits(config: TrainConfig, available: int) -> str:
    """The largest batch of this model that fits, else the longest sequence, else the largest preset; in words."""

    def fits(**change: Any) -> bool:
        small = dataclasses.replace(config, batch_slice=AUTO, token_slice=AUTO, **change)
        return sum(memory_bytes(small).values()) <= available

    low, high = 0, config.batch
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(batch=middle) else (low, middle - 1)
    if low:
        return f"batch {low} with seq {config.seq} would fit"
    for seq in (config.seq >> shift for shift in range(1, config.seq.bit_length())):
        if fits(batch=1, seq=seq):
            return f"batch 1 with seq {seq} would fit"
    by_size = sorted(PRESETS.values(), key=lambda model: -model.layers * model.channels**2)
    for model in by_size:
        if fits(batch=1, seq=min(config.seq, model.context), model=model):
            return f"no batch of this model fits; {model.name} with batch 1 would"
    return "no batch of this model fits, nor any preset"


__all__ = ["Memory", "Tensor", "check_fits"]
