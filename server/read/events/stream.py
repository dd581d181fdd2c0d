"""Server-sent events: the state as it is, again whenever it has changed, and lines as they come, until it has ended.

One look at the database, now and then, serves every stream; what it finds new is told to those who listen to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import re
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

from anyio import to_thread
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from taskloom.server.db import Database
from taskloom.server.errors import NotFound, TooManyStreams
from taskloom.server.problems import problem
from taskloom.server.queue.attempts.waiting import WaitingRoom
from taskloom.server.read.events.service import Seen, Topic, look

MEDIA_TYPE = "text/event-stream"
ALIVE_EVERY_S = 15.0
BEHIND = 100  # pieces of news that wait for a listener; one that is further behind is ended, and comes again
ID = re.compile(r"([0-9a-f]{16})\.([0-9]{1,9})")
log = logging.getLogger("taskloom.server")


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


@dataclass(frozen=True)
class News:
    """What was seen, written out once for all who listen."""

    text: str
    identity: str
    ended: bool
    lines: list[tuple[int, str]]
    more: bool

    @classmethod
    def of(cls, seen: Seen) -> News:
        text = seen.state.model_dump_json()
        lines = [(line_id, line.model_dump_json()) for line_id, line in seen.lines]
        return cls(text, hashlib.sha256(text.encode()).hexdigest()[:16], seen.ended, lines, seen.more)


@dataclass(eq=False)
class _Listener:
    news: asyncio.Queue[News | None] = field(default_factory=lambda: asyncio.Queue(BEHIND))  # None: the stream ends

    def tell(self, news: News | None) -> None:
        if self.news.full():
            self.news.get_nowait()
            news = None  # the lines between would be missing
        self.news.put_nowait(news)


@dataclass(eq=False)
class _Watched:
    """A topic with those who listen to it. told: how far they are; None until the first one knows what there was."""

    listeners: set[_Listener] = field(default_factory=set)
    told: Heard | None = None


class Streams:
    """The streams that one server keeps open; used from its event loop only."""

    def __init__(self, database: Database, room: WaitingRoom, every_s: float, longest_s: float, most: int) -> None:
        self._database, self._room = database, room
        self._every_s, self._longest_s, self._most = every_s, longest_s, most
        self._open = 0
        self._watched: dict[Topic, _Watched] = {}
        self._watching: asyncio.Task[None] | None = None

    async def answer(self, topic: Topic, last_event_id: str | None) -> StreamingResponse:
        """The stream after the event `last_event_id`. Raises NotFound or TooManyStreams."""
        self._check_room()
        heard = Heard.parse(last_event_id)
        first = await self._look(topic, heard.line)
        return _Stream(self, self._events(topic, first, heard))

    def _check_room(self) -> None:
        if self._open >= self._most:
            refusal = TooManyStreams(f"at most {self._most} event streams are kept open", max_streams=self._most)
            refusal.headers["Retry-After"] = "5"
            raise refusal

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """One of the open streams. Raises TooManyStreams."""
        self._check_room()
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1

    async def _look(self, topic: Topic, line: int) -> News:
        """Raises NotFound."""
        found = await to_thread.run_sync(look, self._database, {topic: line})
        if topic not in found:
            raise NotFound(f"there is no {topic.kind} {topic.id}")
        return News.of(found[topic])

    async def _events(self, topic: Topic, news: News, heard: Heard) -> AsyncIterator[str]:
        until = time.monotonic() + self._longest_s  # then the client comes again; its key may be revoked by then
        yield "retry: 1000\n\n"
        with self._listening(topic) as listener:
            ready = False
            while True:
                if news.identity != heard.state:
                    heard = Heard(news.identity, heard.line)
                    yield f"id: {heard}\nevent: changed\ndata: {news.text}\n\n"
                for line_id, text in news.lines:
                    if line_id > heard.line:
                        heard = Heard(heard.state, line_id)
                        yield f"id: {heard}\nevent: line\ndata: {text}\n\n"
                if news.ended:
                    yield f"event: ended\ndata: {news.text}\n\n"
                    return
                if not ready:
                    # What came before this stream listened, or was more than one look takes in, it looks for itself.
                    ready = not news.more
                    news = await self._look(topic, heard.line)
                    if ready:
                        self._is_known(topic, heard)
                    continue
                while True:
                    remaining_s = until - time.monotonic()
                    if remaining_s <= 0:
                        return
                    try:
                        told = await asyncio.wait_for(listener.news.get(), min(ALIVE_EVERY_S, remaining_s))
                        break
                    except TimeoutError:
                        yield ": still here\n\n"
                if told is None:
                    return
                news = told

    @contextlib.contextmanager
    def _listening(self, topic: Topic) -> Iterator[_Listener]:
        listener = _Listener()
        self._watched.setdefault(topic, _Watched()).listeners.add(listener)
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())
        try:
            yield listener
        finally:
            watched = self._watched[topic]
            watched.listeners.discard(listener)
            if not watched.listeners:
                del self._watched[topic]

    def _is_known(self, topic: Topic, heard: Heard) -> None:
        watched = self._watched[topic]
        watched.told = watched.told or heard

    async def _watch(self) -> None:
        """Look for everybody, as long as anybody listens and the server goes on."""
        try:
            while self._watched and await self._room.rest(self._every_s):
                asked = {topic: watched.told for topic, watched in self._watched.items() if watched.told is not None}
                try:
                    lines = {topic: told.line for topic, told in asked.items()}
                    found = await to_thread.run_sync(look, self._database, lines) if lines else {}
                except Exception:
                    log.exception("the look for event streams failed; it goes on")
                    continue
                for topic, told in asked.items():
                    self._tell(topic, told, found.get(topic))
        finally:
            self._watching = None
            if not self._room.is_open:
                for watched in self._watched.values():
                    for listener in watched.listeners:
                        listener.tell(None)

    def _tell(self, topic: Topic, told: Heard, seen: Seen | None) -> None:
        watched = self._watched.get(topic)
        if watched is None or watched.told is not told:
            return
        news = None if seen is None else News.of(seen)  # none: it was deleted
        if news is not None:
            watched.told = Heard(news.identity, news.lines[-1][0] if news.lines else told.line)
        if news is None or news.identity != told.state or news.lines or news.ended:
            for listener in watched.listeners:
                listener.tell(news)


class _Stream(StreamingResponse):
    """An answer that counts as open from its first byte to its last."""

    def __init__(self, streams: Streams, events: AsyncIterator[str]) -> None:
        super().__init__(events, media_type=MEDIA_TYPE, headers={"X-Accel-Buffering": "no"})
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._streams.counted():
                await super().__call__(scope, receive, send)
        except TooManyStreams as refusal:  # more came at once than there was room for
            await problem(refusal, scope["path"])(scope, receive, send)
