"""Functions run in kept processes, which end when their caller is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from anyio import CancelScope, CapacityLimiter, to_process

T = TypeVar("T")


async def in_process(function: Callable[..., T], *args: Any) -> T:
    """`function(*args)`, computed in another process, which is killed if the caller is cancelled. Callers bound their
    number. Raises the errors of `function`, and anyio's BrokenWorkerProcess.
    """
    with CancelScope(shield=True):  # anyio leaves a process behind whose start is cancelled, by a scope or by its task
        starting = asyncio.ensure_future(to_process.run_sync(_start, limiter=CapacityLimiter(1)))
        try:
            await asyncio.shield(starting)
        finally:
            await asyncio.wait([starting])
    return await to_process.run_sync(function, *args, cancellable=True, limiter=CapacityLimiter(1))


def _start() -> None:
    """Does nothing, in a process that is started for it if none is idle."""
