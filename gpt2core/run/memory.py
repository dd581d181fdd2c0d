"""Checks that the memory of a run fits."""

from __future__ import annotations

import dataclasses
from typing import Any

from gpt2core.networks.memory import memory_bytes
from gpt2core.networks.network import network_of
from gpt2core.node import host
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import ConfigError, NotEnoughMemory
from gpt2core.spec.fields import AUTO

RESERVE_BYTES = 256 << 20  # for the interpreter, the compiled code and the BLAS library's buffers


def check_fits(config: TrainConfig, needed: int, ranks: int) -> None:
    """Raise NotEnoughMemory, with a size that would fit, if the bytes of this node's ranks exceed the memory of this
    process."""
    available = host.available_memory_bytes()
    if needed > available:
        raise NotEnoughMemory(needed, available, what_fits(config, available // ranks - RESERVE_BYTES))


def what_fits(config: TrainConfig, available: int) -> str:
    """The largest batch of this model that fits, else the longest sequence, else the largest preset; in words.
    available: to each rank. Those that divide the batch have a part of it."""
    ranks = config.batch_ranks

    def fits(**change: Any) -> bool:
        try:
            small = dataclasses.replace(config, batch_slice=AUTO, token_slice=AUTO, **change)
        except ConfigError:  # such as a size that the network refuses, or too many blocks of units
            return False
        return sum(memory_bytes(small).values()) <= available

    low, high = 0, config.batch // ranks
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(batch=middle * ranks) else (low, middle - 1)
    if low:
        return f"batch {low * ranks} with seq {config.seq} would fit"
    for seq in (config.seq >> shift for shift in range(1, config.seq.bit_length())):
        if fits(batch=ranks, seq=seq):
            return f"batch {ranks} with seq {seq} would fit"
    for model in reversed(dict.fromkeys(network_of(config).presets.values())):  # a model with two names is tried once
        if fits(batch=ranks, seq=min(config.seq, model.context), model=model):
            return f"no batch of this model fits; {model.name} with batch {ranks} would"
    return f"neither this model nor a preset fits with batch {ranks}"
