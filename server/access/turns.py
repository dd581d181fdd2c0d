"""Readers are handled a few at a time, so that claims and heartbeats find the event loop free between them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


class Turns:
    """A fixed number of turns, given in the order in which readers came.

    A reader that takes longer than `longest_s` waits for something other than the event loop, such as an analysis. It
    no longer counts, and the next one gets its turn.
    """

    def __init__(self, most: int, longest_s: float) -> None:
        self._free = asyncio.BoundedSemaphore(most)  # a turn given back twice is an error
        self._longest_s = longest_s

    @contextlib.asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Wait for a turn; it ends with the block, or before it after the longest time."""
        await self._free.acquire()
        with contextlib.ExitStack() as turn:
            turn.callback(self._free.release)
            timer = asyncio.get_running_loop().call_later(self._longest_s, turn.close)
            turn.callback(timer.cancel)
            yield
