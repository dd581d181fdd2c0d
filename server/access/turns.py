"""Handles only a few readers at once, so that the event loop can handle claims and heartbeats between them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


class Turns:
    """A fixed number of turns, given in the order in which readers arrived.

    A reader that takes longer than `longest_s` waits for something other than the event loop, such as an analysis. Its
    turn then ends, and the next reader gets one.
    """

    def __init__(self, most: int, longest_s: float) -> None:
        self._free = asyncio.BoundedSemaphore(most)  # a turn given back twice is an error
        self._longest_s = longest_s

    @contextlib.asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Wait for a turn. It ends with the block, or after `longest_s` if that is earlier."""
        await self._free.acquire()
        with contextlib.ExitStack() as turn:
            turn.callback(self._free.release)
            timer = asyncio.get_running_loop().call_later(self._longest_s, turn.close)
            turn.callback(timer.cancel)
            yield
