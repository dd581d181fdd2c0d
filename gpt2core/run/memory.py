"""The memory of a run: checks that it fits, and lets its owners touch it first."""

from __future__ import annotations

import dataclasses
from typing import Any

from gpt2core.compile.jit import kernel, pointer_i64
from gpt2core.networks.memory import memory_bytes
from gpt2core.networks.network import network_of
from gpt2core.node import host
from gpt2core.schedulers.team import Team
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import ConfigError, NotEnoughMemory
from gpt2core.spec.fields import AUTO
from gpt2core.step import graph
from gpt2core.step.memory import Memory
from gpt2core.step.ops import Program
from gpt2core.step.owners import owners

RESERVE_BYTES = 256 << 20  # for the interpreter, the compiled code and the BLAS library's buffers
PAGE_BYTES = 4096


def check_fits(config: TrainConfig, needed: int, ranks: int) -> None:
    """Raise NotEnoughMemory, with a size that would fit, if the bytes of this node's ranks exceed the memory of this
    process."""
    available = host.available_memory_bytes()
    if needed > available:
        raise NotEnoughMemory(needed, available, what_fits(config, available // ranks - RESERVE_BYTES))


def check_plan_fits(program: Program, run: int) -> None:
    """Raise NotEnoughMemory if the program's graph and its proof, together with the run's bytes, exceed the memory of
    this process."""
    needed, available = graph.planning_bytes(program) + run, host.available_memory_bytes()
    if needed > available:
        count = len(program.tasks)
        fits = f"its graph has {count} tasks; larger slices or a smaller batch give fewer"
        raise NotEnoughMemory(needed, available, fits)


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


def first_touch(team: Team, arenas: Memory, program: Program) -> None:
    """Let each thread of the team touch its own memory first, so that it is placed near its core."""
    mine = owners(program, arenas.plans, len(team.cores))
    start = {arena: int(block.ctypes.data) for arena, block in arenas.arenas.items()}

    def share(thread: int) -> None:
        for span in mine[thread]:
            touch(start[span.arena] + span.begin, start[span.arena] + span.end)

    team.run(share, ())


@kernel
def touch(begin, end):
    """Write a zero into each page that begins in the bytes [begin, end), so that it is placed near this thread.

    Arenas begin on a page, so every page of theirs begins in the bytes of one owner.
    """
    for page in range((begin + PAGE_BYTES - 1) // PAGE_BYTES * PAGE_BYTES, end, PAGE_BYTES):
        pointer_i64(page)[0] = 0
