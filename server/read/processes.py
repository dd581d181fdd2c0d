"""Functions run in kept processes, which end when their caller is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from anyio import BrokenWorkerProcess, CancelScope, CapacityLimiter, to_process

from taskloom.server.errors import OutOfResources

T = TypeVar("T")
_idle: WeakKeyDictionary[asyncio.AbstractEventLoop, int] = WeakKeyDictionary()  # kept processes that compute nothing


async def in_process(function: Callable[..., T], *args: Any) -> T:
    """`function(*args)`, computed in another process, which is killed if the caller is cancelled. Callers bound their
    number. Raises the errors of `function`, and OutOfResources.
    """
    loop = asyncio.get_running_loop()
    if _idle.get(loop, 0):
        _idle[loop] -= 1
    else:
        await _start()
    kept = True
    try:
        return await to_process.run_sync(function, *args, cancellable=True, limiter=CapacityLimiter(1))
    except asyncio.CancelledError:
        kept = False
        raise
    except BrokenWorkerProcess as error:
        kept = False
        raise OutOfResources from error
    finally:
        _idle[loop] = _idle.get(loop, 0) + kept


async def _start() -> None:
    """Start a process. Whoever is cancelled waits for it: anyio leaves a process behind whose start is cancelled, by a
    scope or by its task. Raises OutOfResources."""
    with CancelScope(shield=True):
        starting = asyncio.ensure_future(to_process.run_sync(_nothing, limiter=CapacityLimiter(1)))
        try:
            await asyncio.shield(starting)
        except (BrokenWorkerProcess, OSError) as error:  # OSError: processes, files or memory have run out
            raise OutOfResources from error
        finally:
            await asyncio.wait([starting])


def _nothing() -> None:
    """What a process computes that is only started."""
