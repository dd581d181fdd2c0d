"""Binds threads to cores."""

from __future__ import annotations

import os

from gpt2core.spec.errors import MachineError


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
