"""Server-sent events: the state as it is, again whenever it has changed, until it has ended."""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncIterator, Callable

from anyio import to_thread
from pydantic import BaseModel
from starlette.responses import StreamingResponse

from server.attempts.waiting import WaitingRoom
from server.errors import TooManyStreams

MEDIA_TYPE = "text/event-stream"
ALIVE_EVERY_S = 15.0
Look = Callable[[], tuple[BaseModel, bool]]


def identity(text: str) -> str:
    """The id of an event: the same state has the same, at whichever server and whenever."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Streams:
    """The streams that one server keeps open; used from its event loop only."""

    def __init__(self, room: WaitingRoom, every_s: float, longest_s: float, most: int) -> None:
        self._room, self._every_s, self._longest_s, self._most = room, every_s, longest_s, most
        self._open = 0

    async def answer(self, look: Look, last_event_id: str | None) -> StreamingResponse:
        """The stream after the event `last_event_id`. What `look` raises at first becomes the answer.

        Raises TooManyStreams.
        """
        first = await to_thread.run_sync(look)
        if self._open >= self._most:
            refusal = TooManyStreams(f"at most {self._most} event streams are kept open", max_streams=self._most)
            refusal.headers["Retry-After"] = "5"
            raise refusal
        events = self._counted(self._events(look, first, last_event_id))
        return StreamingResponse(events, media_type=MEDIA_TYPE, headers={"X-Accel-Buffering": "no"})

    async def _counted(self, events: AsyncIterator[str]) -> AsyncIterator[str]:
        self._open += 1
        try:
            async for event in events:
                yield event
        finally:
            self._open -= 1

    async def _events(
        self, look: Look, first: tuple[BaseModel, bool], last_event_id: str | None
    ) -> AsyncIterator[str]:
        state, ended = first
        known, told_at = last_event_id, time.monotonic()
        until = told_at + self._longest_s  # then the client comes again, with a key that may be revoked by then
        yield "retry: 1000\n\n"
        while True:
            text = state.model_dump_json()
            if identity(text) != known:
                known, told_at = identity(text), time.monotonic()
                yield f"id: {known}\nevent: changed\ndata: {text}\n\n"
            if ended:
                yield f"event: ended\ndata: {text}\n\n"
                return
            if time.monotonic() >= told_at + ALIVE_EVERY_S:
                told_at = time.monotonic()
                yield ": still here\n\n"
            if time.monotonic() >= until or not await self._room.rest(self._every_s):
                return
            state, ended = await to_thread.run_sync(look)
