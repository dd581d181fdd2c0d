"""Answers that clients do not read: each ends after a while, and all together take a bounded amount of memory."""

from __future__ import annotations

import asyncio

LEAST_SENT_BYTES = 32 << 10  # of an answer, within `timeout_s`


class Unread:
    """Connections whose answers wait in memory; used only from the event loop."""

    def __init__(self, timeout_s: float, most_bytes: int) -> None:
        self._timeout_s, self._most_bytes = timeout_s, most_bytes
        self._timers: dict[asyncio.Transport, asyncio.TimerHandle] = {}  # the longest unread first

    def expect(self, transport: asyncio.Transport) -> None:
        """Expect that the client reads. If there is too much to read, the answer that has waited longest ends."""
        if transport in self._timers or not transport.get_write_buffer_size():
            return
        self._arm(transport)
        while len(self._timers) > 1 and self._held_bytes() > self._most_bytes:
            self._end(next(iter(self._timers)))

    def forget(self, transport: asyncio.Transport) -> None:
        """The client has read enough, or is gone."""
        timer = self._timers.pop(transport, None)
        if timer is not None:
            timer.cancel()

    def _held_bytes(self) -> int:
        return sum(transport.get_write_buffer_size() for transport in self._timers)

    def _arm(self, transport: asyncio.Transport) -> None:
        size = transport.get_write_buffer_size()
        loop = asyncio.get_running_loop()
        self._timers[transport] = loop.call_later(self._timeout_s, self._check, transport, size)

    def _check(self, transport: asyncio.Transport, before_bytes: int) -> None:
        size = transport.get_write_buffer_size()
        if size > max(0, before_bytes - LEAST_SENT_BYTES):
            self._end(transport)
        elif size:
            self._arm(transport)
        else:
            self.forget(transport)

    def _end(self, transport: asyncio.Transport) -> None:
        self.forget(transport)
        transport.abort()
