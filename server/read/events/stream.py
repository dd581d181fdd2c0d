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

from taskloom.server import logs
from taskloom.server.errors import NotFound, TooManyStreams
from taskloom.server.problems import problem
from taskloom.server.read.events.topics import Topic, TopicState
from taskloom.server.read.pool import Flights
from taskloom.server.settings import Settings
from taskloom.server.waiting import WaitingRoom

MEDIA_TYPE = "text/event-stream"
ALIVE_EVERY_S = 15.0
AT_LATEST_S = 15.0  # longest time between polls, since a worker becomes silent without a commit
AT_ONCE = 10  # listeners that write in one iteration of the event loop
BEHIND = 100  # most queued news of a listener; the stream of a slower one ends, and its client reconnects
Look = Callable[[Mapping[Topic, int]], dict[Topic, TopicState]]
ID = re.compile(r"([0-9a-f]{16})\.([0-9]{1,9})")
log = logging.getLogger("taskloom.server")


@dataclass(frozen=True)
class Position:
    """Position of a listener: the id of an event. Equal states have equal ids on every server."""

    state: str = ""
    line: int = 0

    @classmethod
    def parse(cls, text: str | None) -> Position:
        """From Last-Event-ID; what was never an id is as if there was none."""
        found = ID.fullmatch(text or "")
        return cls(found[1], int(found[2])) if found else cls()

    def __str__(self) -> str:
        return f"{self.state}.{self.line}"


@dataclass(frozen=True)
class Positions:
    """Position of a listener to several topics: the ids of their events."""

    by_topic: dict[str, Position]

    @classmethod
    def parse(cls, text: str | None) -> Positions:
        """From Last-Event-ID; what was never an id is as if there was none."""
        parts = (part.partition("=") for part in (text or "").split(";"))
        return cls({topic: Position.parse(position) for topic, _, position in parts})

    def __str__(self) -> str:
        return ";".join(f"{topic}={position}" for topic, position in self.by_topic.items())


@dataclass(frozen=True)
class Event:
    """An event for a listener; without one, a keep-alive."""

    event: Literal["changed", "line", "ended"] | None
    data: str
    position: Position


@dataclass(frozen=True)
class News:
    """A state that is serialised once for all listeners."""

    text: str
    identity: str
    ended: bool
    lines: list[tuple[int, str]]
    more: bool

    @classmethod
    def of(cls, found: TopicState) -> News:
        text = found.state.model_dump_json()
        news = found.state.model_dump_json(exclude=dict(found.passing)) if found.passing else text
        lines = [(line_id, line.model_dump_json()) for line_id, line in found.lines]
        return cls(text, hashlib.sha256(news.encode()).hexdigest()[:16], found.ended, lines, found.more)


@dataclass(frozen=True)
class First:
    """A listener's first read of a topic. others: the position of the topic's other listeners before the read; None if
    none of them had read it."""

    news: News
    others: Position | None


@dataclass(eq=False)
class _Listener:
    news: asyncio.Queue[News | None] = field(default_factory=lambda: asyncio.Queue(BEHIND))  # None: the stream ends

    def put(self, news: News | None) -> None:
        if self.news.full():
            self.news.get_nowait()
            news = None  # the stream ends, since lines would be missing in it
        self.news.put_nowait(news)


@dataclass(eq=False)
class _Watched:
    """A topic with its listeners. position: theirs; None until the first listener has read the topic."""

    listeners: set[_Listener] = field(default_factory=set)
    position: Position | None = None


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
        position = Position.parse(last_event_id)
        # Clients that connect simultaneously share one read.
        first = await self._firsts.join((topic, position.line), lambda: self._first(topic, position.line))
        return _Stream(self, self._of_one(topic, first, position))

    async def answer_all(self, topics: Sequence[Topic], last_event_id: str | None) -> StreamingResponse:
        """One stream of several topics. Raises NotFound or TooManyStreams."""
        self._check_room()
        before = Positions.parse(last_event_id)
        positions = {topic: before.by_topic.get(str(topic), Position()) for topic in dict.fromkeys(topics)}
        others = {topic: self._position_of(topic) for topic in positions}
        found = await to_thread.run_sync(self._look_at, {topic: each.line for topic, each in positions.items()})
        for topic in positions:
            if topic not in found:
                raise NotFound(f"there is no {topic.kind} {topic.id}")
        firsts = {topic: First(News.of(found[topic]), others[topic]) for topic in positions}
        return _Stream(self, self._of_all(firsts, positions))

    async def _of_all(self, first: dict[Topic, First], positions: dict[Topic, Position]) -> AsyncIterator[bytes]:
        events: asyncio.Queue[tuple[Topic, Event | None]] = asyncio.Queue(BEHIND)

        async def pass_on(topic: Topic) -> None:
            try:
                async with contextlib.aclosing(self._events(topic, first[topic], positions[topic])) as mine:
                    async for each in mine:
                        await events.put((topic, each))
            except Exception:
                log.exception("the stream of %s failed; its client reconnects", topic)
            await events.put((topic, None))

        left = set(first)
        now = {str(topic): each for topic, each in positions.items()}
        yield format_sse_event(retry=1000)
        tasks = [asyncio.create_task(pass_on(topic)) for topic in first]
        try:
            while left:
                topic, each = await events.get()
                if each is None:
                    left.discard(topic)
                elif each.event is None:
                    yield KEEPALIVE_COMMENT
                else:
                    now[str(topic)] = each.position
                    data = f'{{"topic":"{topic}","data":{each.data}}}'
                    yield format_sse_event(id=str(Positions(now)), event=each.event, data_str=data)
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
        others = self._position_of(topic)
        return First(await self._look(topic, line), others)

    def _position_of(self, topic: Topic) -> Position | None:
        watched = self._watched.get(topic)
        return watched.position if watched else None

    async def _of_one(self, topic: Topic, first: First, position: Position) -> AsyncIterator[bytes]:
        yield format_sse_event(retry=1000)
        async with contextlib.aclosing(self._events(topic, first, position)) as events:
            async for each in events:
                if each.event is None:
                    yield KEEPALIVE_COMMENT
                elif each.event == "ended":
                    yield format_sse_event(event=each.event, data_str=each.data)
                else:
                    yield format_sse_event(id=str(each.position), event=each.event, data_str=each.data)

    async def _events(self, topic: Topic, first: First, position: Position) -> AsyncGenerator[Event, None]:
        until = time.monotonic() + self._longest_s  # then the client reconnects; its key may be revoked by then
        news = first.news
        with self._listening(topic) as listener:
            # Without news to the topic's listeners since the first read, this listener has missed none.
            ready = first.others is not None and first.others is self._position_of(topic) and not news.more
            while True:
                if news.identity != position.state:
                    position = Position(news.identity, position.line)
                    yield Event("changed", news.text, position)
                for line_id, text in news.lines:
                    if line_id > position.line:
                        position = Position(position.state, line_id)
                        yield Event("line", text, position)
                if news.ended:
                    yield Event("ended", news.text, position)
                    return
                if not ready:
                    # This stream itself reads news from before its subscription, and more lines than one poll reads.
                    ready = not news.more
                    news = await self._look(topic, position.line)
                    if ready:
                        self._set_position(topic, position)
                    continue
                while True:
                    remaining_s = until - time.monotonic()
                    if remaining_s <= 0:
                        return
                    try:
                        async with asyncio.timeout(min(ALIVE_EVERY_S, remaining_s)):
                            found = await listener.news.get()
                        break
                    except TimeoutError:
                        yield Event(None, "", position)
                if found is None:
                    return
                news = found

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

    def _set_position(self, topic: Topic, position: Position) -> None:
        watched = self._watched[topic]
        watched.position = watched.position or position
        self._looked_at = None  # there may be news since the listener's own read

    async def _watch(self) -> None:
        """Poll for all listeners, until there are none or the server stops."""
        at_latest, pause_s = 0.0, self._every_s
        try:
            while self._watched and await self._room.rest(pause_s):
                pause_s = self._every_s
                try:
                    mark = await to_thread.run_sync(self._mark)
                except Exception as error:
                    logs.repeated(log, "a poll for event streams", error)
                    continue
                if mark == self._looked_at and time.monotonic() < at_latest:
                    continue
                self._looked_at, at_latest = mark, time.monotonic() + AT_LATEST_S
                positions = {topic: each.position for topic, each in self._watched.items() if each.position is not None}
                try:
                    lines = {topic: position.line for topic, position in positions.items()}
                    found = await to_thread.run_sync(self._look_at, lines) if lines else {}
                except Exception as error:
                    logs.repeated(log, "a poll for event streams", error)
                    self._looked_at = None
                    continue
                if any(each.more or each.again_s for each in found.values()):
                    self._looked_at = None
                    pause_s = min([pause_s, *(each.again_s for each in found.values() if each.again_s)])
                for topic, position in positions.items():
                    await self._publish(topic, position, found.get(topic))
        finally:
            self._watching = None
            if not self._room.is_open:
                for watched in self._watched.values():
                    for listener in watched.listeners:
                        listener.put(None)

    async def _publish(self, topic: Topic, position: Position, found: TopicState | None) -> None:
        watched = self._watched.get(topic)
        if watched is None or watched.position is not position:
            return
        news = None if found is None else News.of(found)  # None: the topic was deleted
        if news is not None:
            watched.position = Position(news.identity, news.lines[-1][0] if news.lines else position.line)
        if news is None or news.identity != position.state or news.lines or news.ended:
            for number, listener in enumerate(list(watched.listeners), 1):
                listener.put(news)
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
