"""The memory of a run: whether it fits, and who touches it first."""

from __future__ import annotations

import dataclasses
from typing import Any

from gpt2core.compile.jit import kernel, pointer_i64
from gpt2core.networks.memory import memory_bytes
from gpt2core.networks.network import network_of
from gpt2core.node import host
from gpt2core.schedulers.team import Team
from gpt2core.spec.config import AUTO, TrainConfig
from gpt2core.spec.errors import NotEnoughMemory
from gpt2core.step.memory import Memory

RESERVE_BYTES = 256 << 20  # for the interpreter, the compiled code and the BLAS library's buffers
PAGE_INT64 = 512  # of a 4 KiB page


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
    for model in reversed(list(network_of(config).presets.values())):
        if fits(batch=1, seq=min(config.seq, model.context), model=model):
            return f"no batch of this model fits; {model.name} with batch 1 would"
    return "no batch of this model fits, nor any preset"


def first_touch(team: Team, arenas: Memory) -> None:
    """Let each thread of the team touch its share of every arena first, so that it comes to lie near its core."""
    threads = len(team.cores)
    pieces = [(int(block.ctypes.data), block.size) for block in arenas.arenas.values()]

    def share(thread: int) -> None:
        for address, size in pieces:
            touch(address, size * thread // threads, size * (thread + 1) // threads)

    team.run(share, ())


@kernel
def touch(address, begin, end):
    """Write a zero into each page of the bytes [begin, end) after an address: they come to lie near this thread."""
    cells = pointer_i64(address)
    for i in range(begin // 8, end // 8, PAGE_INT64):
        cells[i] = 0
