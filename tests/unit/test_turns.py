import asyncio

import pytest

from taskloom.server.access.turns import Turns

LONG_S = 3600.0


class Readers:
    """Requests that take turns, and those that are being handled."""

    def __init__(self, turns):
        self.turns, self.inside, self.done = turns, [], asyncio.Event()

    async def read(self, name):
        async with self.turns.taken():
            self.inside.append(name)
            try:
                await self.done.wait()
            finally:
                self.inside.remove(name)

    def start(self, *names):
        return [asyncio.create_task(self.read(name)) for name in names]


def run(scene):
    asyncio.run(asyncio.wait_for(scene(), 20))


async def settled():
    for _ in range(20):
        await asyncio.sleep(0)


def test_so_many_are_handled_at_once_and_the_others_in_their_order():
    async def scene():
        readers = Readers(Turns(2, LONG_S))
        tasks = readers.start("a", "b", "c", "d")
        await settled()
        assert readers.inside == ["a", "b"]
        tasks[0].cancel()
        await settled()
        assert readers.inside == ["b", "c"]
        readers.done.set()
        await asyncio.gather(*tasks, return_exceptions=True)

    run(scene)


def test_one_that_takes_long_no_longer_counts_and_its_end_frees_nothing_more():
    async def scene():
        readers = Readers(Turns(1, 0.01))
        tasks = readers.start("long", "next")
        while readers.inside != ["long", "next"]:
            await asyncio.sleep(0.001)
        readers.done.set()
        await asyncio.gather(*tasks)  # a turn that is given back twice raises ValueError

    run(scene)


def test_a_reader_that_is_cancelled_while_it_waits_leaves_its_turn_to_the_next():
    async def scene():
        readers = Readers(Turns(1, LONG_S))
        tasks = readers.start("a", "gone", "c")
        await settled()
        tasks[1].cancel()
        await settled()
        readers.done.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(each) for each in found] == [type(None), asyncio.CancelledError, type(None)]

    run(scene)


def test_a_failure_ends_the_turn():
    async def scene():
        turns = Turns(1, LONG_S)
        with pytest.raises(ZeroDivisionError):
            async with turns.taken():
                1 / 0  # noqa: B018
        async with asyncio.timeout(5), turns.taken():
            pass

    run(scene)
