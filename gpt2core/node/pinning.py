"""Binds threads to cores."""

from __future__ import annotations

import os

from gpt2core.node.topology import spread
from gpt2core.spec.errors import ConfigError, MachineError


def choose_cores(chosen: tuple[int, ...] | None, threads: int, oversubscribe: bool) -> tuple[int, ...]:
    """A core for each thread, of the wanted cores or of those that this process may use, in the order of `spread`.

    Raises ConfigError if a wanted core is not available here, or if there are fewer cores than threads.
    """
    allowed = sorted(os.sched_getaffinity(0))
    cores = list(spread(chosen if chosen is not None else allowed))
    missing = [core for core in cores if core not in allowed]
    if missing:
        raise ConfigError("cores", list(cores), f"cores this process may use: {allowed}")
    if threads > len(cores) and not oversubscribe:
        raise ConfigError("threads", threads, f"at most the number of cores ({len(cores)}: {cores})")
    return tuple(cores[i % len(cores)] for i in range(threads))


def pin_this_thread(core: int) -> tuple[int, ...]:
    """Bind the calling thread to a core; the affinity read back afterwards. Raises MachineError if it has no effect."""
    try:
        os.sched_setaffinity(0, {core})  # 0: the calling thread
    except OSError as error:  # a sandbox forbids it, or the core went offline
        raise MachineError(f"a thread cannot be pinned to core {core}: {error.strerror}") from error
    observed = tuple(sorted(os.sched_getaffinity(0)))
    if observed != (core,):
        raise MachineError(f"the thread was pinned to core {core}, but may run on {observed}")
    return observed
