"""Server-sent events: the state as it is, again whenever it has changed, and lines as they come, until it has ended."""

from __future__ import annotations

import functools
import hashlib
import re
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from anyio import to_thread
from pydantic import BaseModel
from starlette.responses import StreamingResponse

from taskloom.contract.runs import LogLine
from taskloom.server.errors import TooManyStreams
from taskloom.server.queue.attempts.waiting import WaitingRoom

MEDIA_TYPE = "text/event-stream"
ALIVE_EVERY_S = 15.0
ID = re.compile(r"([0-9a-f]{16})\.([0-9]{1,9})")


@dataclass(frozen=True)
class Seen:
    """What there is to tell at this moment: the state, and lines with their ids."""

    state: BaseModel
    ended: bool
    lines: list[tuple[int, LogLine]] = field(default_factory=list)


Look = Callable[[int], Seen]  # at what came after the line of this id


@dataclass(frozen=True)
class Heard:
    """How far a listener has come. The id of an event: at any server and whenever, the same state has the same."""

    state: str = ""
    line: int = 0

    @classmethod
    def parse(cls, text: str | None) -> Heard:
        """From Last-Event-ID; what was never an id is as if nothing was heard."""
        found = ID.fullmatch(text or "")
        return cls(found[1], int(found[2])) if found else cls()

    def __str__(self) -> str:
        return f"{self.state}.{self.line}"


def _identity(text: str) -> str:
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
        heard = Heard.parse(last_event_id)
        first = await to_thread.run_sync(look, heard.line)
        if self._open >= self._most:
            refusal = TooManyStreams(f"at most {self._most} event streams are kept open", max_streams=self._most)
            refusal.headers["Retry-After"] = "5"
            raise refusal
        events = self._counted(self._events(look, first, heard))
        return StreamingResponse(events, media_type=MEDIA_TYPE, headers={"X-Accel-Buffering": "no"})

    async def _counted(self, events: AsyncIterator[str]) -> AsyncIterator[str]:
        self._open += 1
        try:
            async for event in events:
                yield event
        finally:
            self._open -= 1

    async def _events(self, look: Look, seen: Seen, heard: Heard) -> AsyncIterator[str]:
        told_at = time.monotonic()
        until = told_at + self._longest_s  # then the client comes again, with a key that may be revoked by then
        yield "retry: 1000\n\n"
        while True:
            text = seen.state.model_dump_json()
            if _identity(text) != heard.state:
                heard, told_at = Heard(_identity(text), heard.line), time.monotonic()
                yield f"id: {heard}\nevent: changed\ndata: {text}\n\n"
            for line_id, line in seen.lines:
                heard, told_at = Heard(heard.state, line_id), time.monotonic()
                yield f"id: {heard}\nevent: line\ndata: {line.model_dump_json()}\n\n"
            if seen.ended:
                yield f"event: ended\ndata: {text}\n\n"
                return
            if time.monotonic() >= told_at + ALIVE_EVERY_S:
                told_at = time.monotonic()
                yield ": still here\n\n"
            if time.monotonic() >= until or not await self._room.rest(self._every_s):
                return
            seen = await to_thread.run_sync(functools.partial(look, heard.line))
