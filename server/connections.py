"""Limits of a connection that apply before its caller is known: time and size of headers, framing and size of bodies,
requests that wait behind an unanswered one, and answers that nobody reads.

Uvicorn has no such limits with httptools; with its other parser, h11, chunks of one byte block the event loop.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from taskloom.server.access.bodies import Share
from taskloom.server.context import Context
from taskloom.server.errors import (
    BodyTooLarge,
    ChunksTooSmall,
    HeadersTooLarge,
    HeadersTooSlow,
    RequestRefused,
    ServerBusy,
    ServerError,
)
from taskloom.server.problems import problem
from taskloom.server.unread import Unread

MOST_HEADER_BYTES = 64 << 10  # of a request's headers; of its trailers and chunk extensions
MOST_HEADERS = 256
MOST_WAITING = 8  # requests that were parsed behind an unanswered one
PIECE_BYTES = 4 << 10  # of a body in chunks, whose end is unknown before it is parsed
FREE_CHUNKS = 256  # chunks of a body after which their average size is checked
LEAST_CHUNK_BYTES = 64
CHUNK_FRAME_BYTES = 32  # what a chunk may have beside its content
HEAD_END = b"\n\r\n"
# Headers of which only one is read: of two, a proxy might read the other.
SINGLE = (b"authorization", b"content-encoding", b"content-type", b"host", b"idempotency-key")

# RFC 3986: an address in brackets or a name, and perhaps a port. Empty: the request's target names no host.
HOST = re.compile(rb"(\[[0-9A-Za-z:.%_~-]+\]|[0-9A-Za-z._~%!$&'()*+,;=-]*)(:[0-9]*)?")


class _Flow(FlowControl):
    """Reads nothing while bytes of the next request wait, even if a request's application is ready to read."""

    waits = False

    def resume_reading(self) -> None:
        if not self.waits:
            super().resume_reading()


class Connection(HttpToolsProtocol):
    """One connection of a client, with the application's settings. Its requests are parsed and answered one at a
    time."""

    flow: _Flow

    def __init__(self, config: Any, server_state: Any, app_state: Any, _loop: Any = None) -> None:
        super().__init__(config, server_state, app_state, _loop)
        context: Context = config.app.state.context
        self._settings = context.settings
        self._share = Share(context.in_flight)
        self._unread: Unread = context.unread
        self._refusal: ServerError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._pending = bytearray()  # received and not yet parsed
        self._in_headers = self._is_received = True  # the latest request: before its body, and with all of it
        self._feeding = False
        self._left_bytes: int | None = None  # of the body; None: it comes in chunks
        self._header_bytes = self._headers = self._unanswered_bytes = 0
        self._chunks = self._frame_bytes = self._body_bytes = self._unread_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = _Flow(transport)
        self._arm(self._settings.header_timeout_s, self._headers_too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self._unread.forget(self.transport)
        self._pending.clear()
        self._share.hold(0)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._pending += data
        self._feed()

    def _feed(self) -> None:
        """Parse until a request waits for its answer."""
        if self._feeding:
            return
        self._feeding = True
        while self._pending and not self._is_waiting() and not self.transport.is_closing():
            size = self._piece_bytes()
            if self._in_headers and self._header_bytes + size > MOST_HEADER_BYTES:
                self._refuse(HeadersTooLarge(max_bytes=MOST_HEADER_BYTES))
                break
            piece = bytes(self._pending[:size])
            del self._pending[:size]
            self._parse(piece)
        self._feeding = False
        if self.transport.is_closing():
            self._pending.clear()
        self._account()
        self.flow.waits = bool(self._pending)
        if self._pending:
            self.flow.pause_reading()
        elif self.cycle is None or len(self.cycle.body) <= HIGH_WATER_LIMIT:
            self.flow.resume_reading()

    def _is_waiting(self) -> bool:
        return self._is_received and self.cycle is not None and not self.cycle.response_complete

    def _piece_bytes(self) -> int:
        """Number of bytes that belong to the present request only, as far as can be known."""
        if self._in_headers:
            end = self._pending.find(HEAD_END)
            return len(self._pending) if end < 0 else end + len(HEAD_END)
        return min(len(self._pending), PIECE_BYTES if self._left_bytes is None else max(1, self._left_bytes))

    def _parse(self, piece: bytes) -> None:
        if self._in_headers:
            if self._timer is None:  # of the next request on this connection
                self._arm(self._settings.header_timeout_s, self._headers_too_slow)
            self._header_bytes += len(piece)
            super().data_received(piece)
            return
        body_bytes = self._body_bytes
        super().data_received(piece)
        self._frame_bytes += len(piece) - (self._body_bytes - body_bytes)
        if not self._is_received and self._frame_bytes > MOST_HEADER_BYTES + self._chunks * CHUNK_FRAME_BYTES:
            self._refuse(HeadersTooLarge("trailers or chunk extensions are too large", max_bytes=MOST_HEADER_BYTES))

    def _account(self) -> None:
        """Count what this connection has in memory as bytes in flight."""
        try:
            self._share.hold(len(self._pending) + self._unanswered_bytes)
        except ServerBusy as error:
            self._refuse(error)

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= MOST_WAITING:
            self._refusal = RequestRefused(f"at most {MOST_WAITING} requests may follow an unanswered one")
            raise self._refusal
        self._headers = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers += 1
        if self._headers > MOST_HEADERS:
            self._refusal = HeadersTooLarge(f"at most {MOST_HEADERS} headers are accepted", max_headers=MOST_HEADERS)
            raise self._refusal
        if self._in_headers:  # a trailer must not pass for a header
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_headers = self._is_received = False
        self._unanswered_bytes += self._header_bytes
        self._header_bytes = self._chunks = self._frame_bytes = self._body_bytes = self._unread_bytes = 0
        twice = [name for name in SINGLE if sum(name == each for each, _ in self.headers) > 1]
        if twice:
            self._refusal = RequestRefused(f"{twice[0].decode()} is given twice")
            raise self._refusal
        found = dict(self.headers)
        host = found.get(b"host")
        if (host is None and self.parser.get_http_version() == "1.1") or not HOST.fullmatch(host or b""):
            self._refusal = RequestRefused("a request needs the header Host, with a name and perhaps a port (RFC 9112)")
            raise self._refusal
        self._left_bytes = None if b"transfer-encoding" in found else int(found.get(b"content-length", b"0"))
        self._disarm()
        super().on_headers_complete()

    def on_chunk_header(self) -> None:
        self._chunks += 1
        if self._chunks > FREE_CHUNKS and self._body_bytes < self._chunks * LEAST_CHUNK_BYTES:
            self._refusal = ChunksTooSmall(min_bytes=LEAST_CHUNK_BYTES)
            raise self._refusal  # the parser stops; `send_400_response` answers

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._left_bytes is not None:
            self._left_bytes -= len(body)
        most_bytes = max(self._settings.max_result_bytes, self._settings.max_artifact_bytes)
        if self._body_bytes > most_bytes:
            self._refusal = BodyTooLarge(max_bytes=most_bytes)
            raise self._refusal
        super().on_body(body)
        if self.cycle.response_complete:
            self._unread_bytes += len(body)
            if self._unread_bytes > self._settings.max_result_bytes:
                self.transport.close()

    def on_message_complete(self) -> None:
        self._in_headers = self._is_received = True
        self._disarm()
        super().on_message_complete()
        if self.cycle.response_complete:  # Uvicorn's own timer ended with the rest of this body
            self._arm(self.timeout_keep_alive, self.transport.close)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._unread.expect(self.transport)
        if self.cycle.response_complete and self.cycle.more_body and not self.transport.is_closing():
            # After an early answer, the rest of the body is read and dropped for a while: if the connection closed at
            # once, a client that still sends would not read the answer.
            self._arm(self._settings.linger_s, self.transport.close)
        if not self.pipeline and self.cycle.response_complete:
            self._unanswered_bytes = 0
        self._feed()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread.expect(self.transport)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unread.forget(self.transport)
        if self.cycle is not None and self.cycle.response_complete:
            self._unread.expect(self.transport)

    def _unsupported_upgrade_warning(self) -> None:
        """A client that offers another protocol is answered in this one."""

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
        self._unread.expect(self.transport)
        self.transport.close()

    def _arm(self, after_s: float, end: Any) -> None:
        self._disarm()
        self._timer = self.loop.call_later(after_s, end)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
