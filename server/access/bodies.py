"""Limits of request bodies: size, rate, and total bytes in memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from starlette.types import Message, Receive

from taskloom.server.errors import BodyTooLarge, BodyTooSlow, ServerBusy, UnknownMediaType

STREAM_BYTES = 1 << 20  # of a streamed body in memory


class InFlight:
    """Bytes of requests in this process; used only from its event loop."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes, self._held_bytes = most_bytes, 0

    @contextlib.contextmanager
    def share(self) -> Iterator[Share]:
        """Account for the bytes of one request until it is answered."""
        share = Share(self)
        try:
            yield share
        finally:
            self._held_bytes -= share.held_bytes

    def take(self, size_bytes: int) -> None:
        """Account for more bytes. Raises ServerBusy."""
        if size_bytes > 0 and self._held_bytes + size_bytes > self._most_bytes:
            refusal = ServerBusy(
                f"at most {self._most_bytes} bytes of requests may be in memory at once", max_bytes=self._most_bytes
            )
            refusal.headers["Retry-After"] = "1"
            raise refusal
        self._held_bytes += size_bytes


class Share:
    """The bytes of one request."""

    def __init__(self, of: InFlight) -> None:
        self._of, self.held_bytes = of, 0

    def take(self, size_bytes: int) -> None:
        """Account for more bytes. Raises ServerBusy."""
        self._of.take(size_bytes)
        self.held_bytes += size_bytes

    def hold(self, size_bytes: int) -> None:
        """Account for this many bytes in all. Raises ServerBusy."""
        self.take(size_bytes - self.held_bytes)


def check_declared(content_length: str | None, limit_bytes: int) -> None:
    """Check the declared length before the body is read. Raises BodyTooLarge."""
    if content_length is not None and content_length.isdecimal() and int(content_length[:20]) > limit_bytes:
        raise _too_large(limit_bytes)


def check_coding(content_encoding: str | None) -> None:
    """Check that a JSON body is not compressed, before it is read. Raises UnknownMediaType."""
    if content_encoding is not None and content_encoding.strip().lower() not in ("", "identity"):
        raise UnknownMediaType("a body is not compressed: send no Content-Encoding", accepted=["application/json"])


async def read(receive: Receive, limit_bytes: int, share: Share) -> bytes:
    """Read the whole body. Raises BodyTooLarge or ServerBusy as soon as a limit is exceeded."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return b"".join(parts)
        part = message.get("body", b"")
        size += len(part)
        if size > limit_bytes:
            raise _too_large(limit_bytes)
        share.take(len(part))
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def paced(receive: Receive, timeout_s: float, least_bytes_per_s: float) -> Receive:
    """A `receive` that requires a minimum rate of the body, which may fall behind by `timeout_s`. It raises
    BodyTooSlow."""
    loop = asyncio.get_running_loop()
    until = loop.time() + timeout_s

    async def receive_in_time() -> Message:
        nonlocal until
        try:
            async with asyncio.timeout_at(until):
                message = await receive()
        except TimeoutError:
            raise BodyTooSlow(
                f"a body must arrive at {least_bytes_per_s:g} bytes per second or more; it may fall behind by at most "
                f"{timeout_s:g} s"
            ) from None
        until = min(until + len(message.get("body", b"")) / least_bytes_per_s, loop.time() + timeout_s)
        return message

    return receive_in_time


def _too_large(limit_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(f"at most {limit_bytes} bytes are accepted here", max_bytes=limit_bytes)
