"""Threads reserved for one purpose."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    """Runs at most `most` calls at once; later ones wait."""

    def __init__(self, most: int) -> None:
        self._limiter = CapacityLimiter(most)

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work` on one of the threads and return its result."""
        return await to_thread.run_sync(functools.partial(work, *args, **kwargs), limiter=self._limiter)
