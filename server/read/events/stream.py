"""Server-sent events: a topic's state at once and after each change, and lines as they arrive, until the topic has
ended.

One poll of the database serves every stream. It is skipped if nothing was committed since the last poll. News of a
topic go to its listeners.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from anyio import to_thread
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from taskloom.server.errors import NotFound, TooManyStreams
from taskloom.server.problems import problem
from taskloom.server.read.events.service import Seen, Topic
from taskloom.server.read.pool import Flights
from taskloom.server.settings import Settings
from taskloom.server.waiting import WaitingRoom

MEDIA_TYPE = "text/event-stream"
ALIVE_EVERY_S = 15.0
AT_LATEST_S = 15.0  # longest time between polls, since a worker becomes silent without a commit
AT_ONCE = 10  # listeners that write in one iteration of the event loop
BEHIND = 100  # most queued news of a listener; the stream of a slower one ends, and its client reconnects
Look = Callable[[Mapping[Topic, int]], dict[Topic, Seen]]
ID = re.compile(r"([0-9a-f]{16})\.([0-9]{1,9})")
log = logging.getLogger("taskloom.server")


@dataclass(frozen=True)
class Heard:
    """Position of a listener: the id of an event. Equal states have equal ids on every server."""

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
class HeardAll:
    """Position of a listener to several topics: the ids of their events."""

    by_topic: dict[str, Heard]

    @classmethod
    def parse(cls, text: str | None) -> HeardAll:
        """From Last-Event-ID; what was never an id is as if nothing was heard."""
        parts = (part.partition("=") for part in (text or "").split(";"))
        return cls({topic: Heard.parse(heard) for topic, _, heard in parts})

    def __str__(self) -> str:
        return ";".join(f"{topic}={heard}" for topic, heard in self.by_topic.items())


@dataclass(frozen=True)
class Told:
    """An event for a listener; without one, a keep-alive."""

    event: Literal["changed", "line", "ended"] | None
    data: str
    heard: Heard


@dataclass(frozen=True)
class News:
    """A state that is serialised once for all listeners."""

    text: str
    identity: str
    ended: bool
    lines: list[tuple[int, str]]
    more: bool

    @classmethod
    def of(cls, seen: Seen) -> News:
        text = seen.state.model_dump_json()
        news = seen.state.model_dump_json(exclude=dict(seen.passing)) if seen.passing else text
        lines = [(line_id, line.model_dump_json()) for line_id, line in seen.lines]
        return cls(text, hashlib.sha256(news.encode()).hexdigest()[:16], seen.ended, lines, seen.more)


@dataclass(frozen=True)
class First:
    """A listener's first read of a topic. told: the position of the topic's other listeners before the read; None if
    none of them had read it."""

    news: News
    told: Heard | None


@dataclass(eq=False)
class _Listener:
    news: asyncio.Queue[News | None] = field(default_factory=lambda: asyncio.Queue(BEHIND))  # None: the stream ends

    def tell(self, news: News | None) -> None:
        if self.news.full():
            self.news.get_nowait()
            news = None  # the stream ends, since lines would be missing in it
        self.news.put_nowait(news)


@dataclass(eq=False)
class _Watched:
    """A topic with its listeners. told: their position; None until the first listener has read the topic."""

    listeners: set[_Listener] = field(default_factory=set)
    told: Heard | None = None


class Streams:
    """The open event streams of a server; used only from its event loop."""

    def __init__(self, look: Look, mark: Callable[[], object], room: WaitingRoom, settings: Settings) -> None:
        """look: news of each existing topic after the given line id. mark: a value that changes if there may be news.
        Both are called on any thread."""
        self._look_at, self._mark, self._room = look, mark, room
        self._every_s, self._longest_s, self._most = settings.events_every_s, settings.stream_s, settings.max_streams
        self._open = 0
        self._watched: dict[Topic, _Watched] = {}
        self._watching: asyncio.Task[None] | None = None
        self._firsts = Flights()
        self._looked_at: object = None  # the mark of the last poll; None: poll again in any case

    async def ended(self) -> None:
        """Wait until all first reads have ended, including those whose clients have gone."""
        await self._firsts.ended()

    async def answer(self, topic: Topic, last_event_id: str | None) -> StreamingResponse:
        """The stream after the event `last_event_id`. Raises NotFound or TooManyStreams."""
        self._check_room()
        heard = Heard.parse(last_event_id)
        # Clients that connect simultaneously share one read.
        first = await self._firsts.join((topic, heard.line), lambda: self._first(topic, heard.line))
        return _Stream(self, self._events(topic, first, heard))

    async def answer_all(self, topics: Sequence[Topic], last_event_id: str | None) -> StreamingResponse:
        """One stream of several topics. Raises NotFound or TooManyStreams."""
        self._check_room()
        before = HeardAll.parse(last_event_id)
        heard = {topic: before.by_topic.get(str(topic), Heard()) for topic in dict.fromkeys(topics)}
        told = {topic: self._told_of(topic) for topic in heard}
        found = await to_thread.run_sync(self._look_at, {topic: each.line for topic, each in heard.items()})
        for topic in heard:
            if topic not in found:
                raise NotFound(f"there is no {topic.kind} {topic.id}")
        firsts = {topic: First(News.of(found[topic]), told[topic]) for topic in heard}
        return _Stream(self, self._all_events(firsts, heard))

    async def _all_events(self, first: dict[Topic, First], heard: dict[Topic, Heard]) -> AsyncIterator[bytes]:
        told: asyncio.Queue[tuple[Topic, Told | None]] = asyncio.Queue(BEHIND)

        async def pass_on(topic: Topic) -> None:
            try:
                async with contextlib.aclosing(self._told(topic, first[topic], heard[topic])) as news:
                    async for each in news:
                        await told.put((topic, each))
            except Exception:
                log.exception("the stream of %s failed; its client reconnects", topic)
            await told.put((topic, None))

        left = set(first)
        now = {str(topic): each for topic, each in heard.items()}
        yield format_sse_event(retry=1000)
        tasks = [asyncio.create_task(pass_on(topic)) for topic in first]
        try:
            while left:
                topic, each = await told.get()
                if each is None:
                    left.discard(topic)
                elif each.event is None:
                    yield KEEPALIVE_COMMENT
                else:
                    now[str(topic)] = each.heard
                    data = f'{{"topic":"{topic}","data":{each.data}}}'
                    yield format_sse_event(id=str(HeardAll(now)), event=each.event, data_str=data)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

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
        found = await to_thread.run_sync(self._look_at, {topic: line})
        if topic not in found:
            raise NotFound(f"there is no {topic.kind} {topic.id}")
        return News.of(found[topic])

    async def _first(self, topic: Topic, line: int) -> First:
        """Raises NotFound."""
        told = self._told_of(topic)
        return First(await self._look(topic, line), told)

    def _told_of(self, topic: Topic) -> Heard | None:
        watched = self._watched.get(topic)
        return watched.told if watched else None

    async def _events(self, topic: Topic, first: First, heard: Heard) -> AsyncIterator[bytes]:
        yield format_sse_event(retry=1000)
        async with contextlib.aclosing(self._told(topic, first, heard)) as told:
            async for each in told:
                if each.event is None:
                    yield KEEPALIVE_COMMENT
                elif each.event == "ended":
                    yield format_sse_event(event=each.event, data_str=each.data)
                else:
                    yield format_sse_event(id=str(each.heard), event=each.event, data_str=each.data)

    async def _told(self, topic: Topic, first: First, heard: Heard) -> AsyncGenerator[Told, None]:
        until = time.monotonic() + self._longest_s  # then the client reconnects; its key may be revoked by then
        news = first.news
        with self._listening(topic) as listener:
            # Without news to the topic's listeners since the first read, this listener has missed none.
            ready = first.told is not None and first.told is self._told_of(topic) and not news.more
            while True:
                if news.identity != heard.state:
                    heard = Heard(news.identity, heard.line)
                    yield Told("changed", news.text, heard)
                for line_id, text in news.lines:
                    if line_id > heard.line:
                        heard = Heard(heard.state, line_id)
                        yield Told("line", text, heard)
                if news.ended:
                    yield Told("ended", news.text, heard)
                    return
                if not ready:
                    # This stream itself reads news from before its subscription, and more lines than one poll reads.
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
                        async with asyncio.timeout(min(ALIVE_EVERY_S, remaining_s)):
                            told = await listener.news.get()
                        break
                    except TimeoutError:
                        yield Told(None, "", heard)
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
        self._looked_at = None  # there may be news since the listener's own read

    async def _watch(self) -> None:
        """Poll for all listeners, until there are none or the server stops."""
        at_latest, pause_s = 0.0, self._every_s
        try:
            while self._watched and await self._room.rest(pause_s):
                pause_s = self._every_s
                try:
                    mark = await to_thread.run_sync(self._mark)
                except Exception:
                    log.exception("a poll for event streams failed; it is repeated")
                    continue
                if mark == self._looked_at and time.monotonic() < at_latest:
                    continue
                self._looked_at, at_latest = mark, time.monotonic() + AT_LATEST_S
                asked = {topic: watched.told for topic, watched in self._watched.items() if watched.told is not None}
                try:
                    lines = {topic: told.line for topic, told in asked.items()}
                    found = await to_thread.run_sync(self._look_at, lines) if lines else {}
                except Exception:
                    log.exception("a poll for event streams failed; it is repeated")
                    self._looked_at = None
                    continue
                if any(seen.more or seen.again_s for seen in found.values()):
                    self._looked_at = None
                    pause_s = min([pause_s, *(seen.again_s for seen in found.values() if seen.again_s)])
                for topic, told in asked.items():
                    await self._tell(topic, told, found.get(topic))
        finally:
            self._watching = None
            if not self._room.is_open:
                for watched in self._watched.values():
                    for listener in watched.listeners:
                        listener.tell(None)

    async def _tell(self, topic: Topic, told: Heard, seen: Seen | None) -> None:
        watched = self._watched.get(topic)
        if watched is None or watched.told is not told:
            return
        news = None if seen is None else News.of(seen)  # None: the topic was deleted
        if news is not None:
            watched.told = Heard(news.identity, news.lines[-1][0] if news.lines else told.line)
        if news is None or news.identity != told.state or news.lines or news.ended:
            for number, listener in enumerate(list(watched.listeners), 1):
                listener.tell(news)
                if number % AT_ONCE == 0:
                    await asyncio.sleep(0)  # lets these listeners write, and claims and heartbeats run


class _Stream(StreamingResponse):
    """A response that counts as open from its first byte to its last."""

    def __init__(self, streams: Streams, events: AsyncIterator[bytes]) -> None:
        super().__init__(events, media_type=MEDIA_TYPE, headers={"X-Accel-Buffering": "no"})
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._streams.counted():
                await super().__call__(scope, receive, send)
        except TooManyStreams as refusal:  # more clients connected simultaneously than the limit allows
            await problem(refusal, scope["path"])(scope, receive, send)
