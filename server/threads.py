"""Threads reserved for one purpose."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread

from taskloom.server.clock import ClockJumped

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    """Runs at most `most` calls at once; later ones wait. If the database's clock jumps during one, it is repeated
    after `settle`."""

    def __init__(self, most: int, settle: Callable[[], None] = lambda: None) -> None:
        self._limiter, self._settle = CapacityLimiter(most), settle

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work` on one of the threads and return its result."""
        call = functools.partial(work, *args, **kwargs)
        try:
            return await to_thread.run_sync(call, limiter=self._limiter)
        except ClockJumped:
            await to_thread.run_sync(self._settle, limiter=self._limiter)
            return await to_thread.run_sync(call, limiter=self._limiter)
