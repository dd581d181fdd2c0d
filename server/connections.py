"""Limits of a connection that apply before its caller is known: time and size of headers, size of chunks, and bytes of
bodies that are discarded.

Uvicorn has no such limits with httptools; with its other parser, h11, chunks of one byte block the event loop.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from taskloom.server.errors import ChunksTooSmall, HeadersTooLarge, HeadersTooSlow, RequestRefused, ServerError
from taskloom.server.problems import problem
from taskloom.server.settings import Settings

MOST_HEADER_BYTES = 64 << 10
FREE_CHUNKS = 256  # chunks of a body after which their average size is checked
LEAST_CHUNK_BYTES = 64


class Connection(HttpToolsProtocol):
    """One connection of a client, with the application's settings."""

    def __init__(self, config: Any, server_state: Any, app_state: Any, _loop: Any = None) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._settings: Settings = config.app.state.context.settings
        self._refusal: ServerError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._in_headers = True
        self._heads = self._header_bytes = self._chunks = self._body_bytes = self._unread_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._arm(self._settings.header_timeout_s, self._headers_too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._in_headers and self._timer is None:  # of the next request on this connection
            self._arm(self._settings.header_timeout_s, self._headers_too_slow)
        before = self._in_headers, self._heads
        super().data_received(data)
        if before == (True, self._heads):  # all bytes belong to incomplete headers
            self._header_bytes += len(data)
            if self._header_bytes > MOST_HEADER_BYTES:
                self._refuse(HeadersTooLarge(max_bytes=MOST_HEADER_BYTES))

    def on_headers_complete(self) -> None:
        self._in_headers = False
        self._heads += 1
        self._header_bytes = self._chunks = self._body_bytes = self._unread_bytes = 0
        self._disarm()
        super().on_headers_complete()

    def on_chunk_header(self) -> None:
        self._chunks += 1
        if self._chunks > FREE_CHUNKS and self._body_bytes < self._chunks * LEAST_CHUNK_BYTES:
            self._refusal = ChunksTooSmall(min_bytes=LEAST_CHUNK_BYTES)
            raise self._refusal  # the parser stops; `send_400_response` answers

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)
        if self.cycle.response_complete:
            self._unread_bytes += len(body)
            if self._unread_bytes > self._settings.max_result_bytes:
                self.transport.close()

    def on_message_complete(self) -> None:
        self._in_headers = True
        self._disarm()
        super().on_message_complete()
        if self.cycle.response_complete:  # Uvicorn's own timer ended with the rest of this body
            self._arm(self.timeout_keep_alive, self.transport.close)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete and self.cycle.more_body and not self.transport.is_closing():
            # After an early answer, the rest of the body is read and dropped for a while: if the connection closed at
            # once, a client that still sends would not read the answer.
            self._arm(self._settings.linger_s, self.transport.close)

    def send_400_response(self, msg: str) -> None:
        self._refuse(self._refusal or RequestRefused(msg))

    def _headers_too_slow(self) -> None:
        if self._header_bytes:
            self._refuse(HeadersTooSlow(f"headers take at most {self._settings.header_timeout_s:g} s"))
        else:
            self.transport.close()

    def _refuse(self, error: ServerError) -> None:
        """Answer instead of the application, unless its answer has begun, and close the connection."""
        if self.transport.is_closing():
            return
        cycle = self.cycle
        if not self.pipeline and (cycle is None or cycle.response_complete or not cycle.response_started):
            answer = problem(error, "")
            self.transport.write(
                b"".join(
                    [STATUS_LINE[answer.status_code]]
                    + [name + b": " + value + b"\r\n" for name, value in answer.raw_headers]
                    + [b"connection: close\r\n\r\n", bytes(answer.body)]
                )
            )
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        self.transport.close()

    def _arm(self, after_s: float, end: Any) -> None:
        self._disarm()
        self._timer = self.loop.call_later(after_s, end)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
