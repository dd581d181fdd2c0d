import asyncio
import contextlib
import json
import threading

from taskloom.contract.events import ExperimentEvent
from taskloom.server.read.events.stream import Streams
from taskloom.server.read.events.topics import Topic, TopicState
from taskloom.server.settings import Settings
from taskloom.server.waiting import WaitingRoom
from tests.support.patience import DEADLINE_S

TOPIC = Topic("experiment", 1)


class Database:
    """One experiment, and the number of its reads."""

    def __init__(self):
        self.runs, self.looks, self.going = 1, 0, threading.Event()
        self.cached_for = []  # again_s of the next looks; the last element is used first
        self.going.set()

    def look(self, topics):
        assert set(topics) <= {TOPIC}
        self.looks += 1
        runs = self.runs
        assert self.going.wait(DEADLINE_S)
        state = ExperimentEvent(experiment_id=1, state="active", runs=runs, by_state={"queued": runs}, active=[])
        again_s = self.cached_for.pop() if self.cached_for else 0.0
        return {TOPIC: TopicState(TOPIC, state, ended=False, again_s=again_s)}

    def mark(self):
        return self.runs


def run(scene, every_s=0.005):
    async def bounded():
        database, room = Database(), WaitingRoom()
        room.open()
        settings = Settings(events_every_s=every_s)
        async with asyncio.timeout(20):
            await scene(database, Streams(database.look, database.mark, room, settings))
        room.close()

    asyncio.run(bounded())


class Listener:
    """A stream whose events are read as they come."""

    def __init__(self, answer):
        self.pieces = answer.body_iterator

    @classmethod
    async def to(cls, streams):
        return cls(await streams.answer(TOPIC, None))

    async def hears(self, runs):
        """Wait until an event reports this number of runs."""
        async for piece in self.pieces:
            for line in piece.decode().splitlines():
                name, _, value = line.partition(": ")
                if name == "data" and json.loads(value)["runs"] == runs:
                    return

    async def close(self):
        with contextlib.suppress(RuntimeError):  # it is being read
            await self.pieces.aclose()


async def listening(streams, database):
    """A listener that has received news, so the topic is watched."""
    first = await Listener.to(streams)
    await first.hears(database.runs)
    next_one = asyncio.create_task(first.hears(database.runs + 1))
    while database.looks < 3:  # its own two reads, and one for all
        await asyncio.sleep(0.001)
    database.runs += 1
    await next_one
    return first


def test_streams_that_open_together_share_a_look():
    async def scene(database, streams):
        first = await listening(streams, database)
        before = database.looks
        others = await asyncio.gather(*(Listener.to(streams) for _ in range(100)))
        await asyncio.gather(*(other.hears(database.runs) for other in others))
        assert database.looks - before < 20
        heard = asyncio.gather(*(listener.hears(database.runs + 1) for listener in (first, *others)))
        database.runs += 1
        await heard
        for listener in (first, *others):
            await listener.close()

    run(scene)


def test_what_was_sent_between_the_first_look_and_the_listening_is_not_missed():
    async def scene(database, streams):
        first = await listening(streams, database)
        late = await Listener.to(streams)
        database.runs += 1
        await first.hears(database.runs)  # sent to the listeners before `late` is one
        await late.hears(database.runs)
        for listener in (first, late):
            await listener.close()

    run(scene)


def test_a_cached_state_is_read_again_as_soon_as_it_can_be():
    async def scene(database, streams):
        first = await Listener.to(streams)
        await first.hears(database.runs)
        next_one = asyncio.create_task(first.hears(database.runs + 1))
        while database.looks < 2:  # its own two reads
            await asyncio.sleep(0.001)
        database.cached_for = [0.001] * 100
        while database.cached_for:  # at every_s they would take 100 s
            await asyncio.sleep(0.001)
        database.runs += 1
        await next_one
        await first.close()

    run(scene, every_s=1.0)
