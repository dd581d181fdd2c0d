"""Workers that wait for a run, as coroutines in one event loop.

A claim that found no run waits until runs are queued. If a claim found the queue empty, no other claim queries it
before the next change, so five hundred idle workers cause one query.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


class Empty:
    """The queue is empty."""


class WaitingRoom:
    """Waiting claims of one server. `wake` and `close_soon` may be called from any thread, `changed` from any thread
    but that of the event loop, and the others only from the event loop."""

    def __init__(self, at_once: int = 4, tell_others: Callable[[], None] = lambda: None) -> None:
        self._tell_others = tell_others
        self._generation = 0
        self._empty_at = -1
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turns = asyncio.Semaphore(at_once)
        self._change = asyncio.Event()
        self._end = asyncio.Event()

    def open(self) -> None:
        self._loop = asyncio.get_running_loop()

    def changed(self) -> None:
        """Wake waiting claims after runs were queued by this server, and notify other servers. It blocks."""
        self.wake()
        self._tell_others()

    def wake(self) -> None:
        """Wake waiting claims after any server has queued runs."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._advance)

    def close(self) -> None:
        """Answer all waiting claims; later ones do not wait."""
        self._closed = True
        self._end.set()
        self._advance()

    def close_soon(self) -> None:
        """`close`, from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.close)

    def _advance(self) -> None:
        self._generation += 1
        self._change.set()
        self._change = asyncio.Event()

    @property
    def is_open(self) -> bool:
        return not self._closed

    async def rest(self, wait_s: float) -> bool:
        """Wait for a time; return False as soon as the room closes."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._end.wait(), wait_s)
        return not self._closed

    async def wait_for(self, claim: Callable[[], Awaitable[T | Empty | None]], wait_s: float) -> T | None:
        """Claim, and retry after each change. None: `wait_s` has passed or the server stops."""
        until = time.monotonic() + wait_s
        first = True
        while True:
            generation, change = self._generation, self._change
            if not self._closed:
                async with self._turns:
                    if first or self._empty_at != generation:
                        first = False
                        found = await claim()
                        if isinstance(found, Empty):
                            self._empty_at = generation
                        elif found is not None:
                            return found
            remaining_s = until - time.monotonic()
            if self._closed or remaining_s <= 0:
                return None
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(change.wait(), remaining_s)
