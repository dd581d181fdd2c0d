import asyncio

import pytest

from taskloom.server.waiting import Empty, WaitingRoom


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 20))


class Queue:
    """A list of runs, and the number of queries."""

    def __init__(self, *runs):
        self.runs, self.asked = list(runs), 0

    async def claim(self):
        self.asked += 1
        return self.runs.pop(0) if self.runs else Empty()


async def opened():
    room = WaitingRoom()
    room.open()
    return room


def test_what_is_there_is_given_at_once():
    async def scene():
        return await (await opened()).wait_for(Queue(7).claim, 0)

    assert run(scene()) == 7


def test_nothing_within_the_time_is_none():
    async def scene():
        return await (await opened()).wait_for(Queue().claim, 0.01)

    assert run(scene()) is None


def test_a_waiter_is_woken_by_a_change_from_another_thread():
    async def scene():
        room, queue = await opened(), Queue()
        waiter = asyncio.create_task(room.wait_for(queue.claim, 15))
        while not queue.asked:
            await asyncio.sleep(0)
        queue.runs.append(7)
        await asyncio.to_thread(room.changed)
        return await waiter

    assert run(scene()) == 7


def test_a_change_during_the_claim_is_not_missed():
    async def scene():
        room, answers = await opened(), [None, 7]

        async def claim():
            if len(answers) == 2:
                room.changed()
                await asyncio.sleep(0)
            return answers.pop(0)

        return await room.wait_for(claim, 15)

    assert run(scene()) == 7


def test_many_waiters_ask_once_each_and_then_once_for_all_of_them():
    async def scene():
        room, queue = await opened(), Queue()
        waiters = [asyncio.create_task(room.wait_for(queue.claim, 15)) for _ in range(500)]
        while queue.asked < 500:
            await asyncio.sleep(0)
        queue.runs.append(7)
        room.changed()
        done, _ = await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
        asked = queue.asked - 500
        room.close()
        results = await asyncio.gather(*waiters)
        return asked, len(done), results

    asked, done, results = run(scene())
    assert asked <= 6  # the claim that got the run, one that found nothing, and simultaneous ones
    assert done == 1
    assert sorted(results, key=str) == [7] + [None] * 499


def test_runs_that_fit_nobody_here_do_not_silence_the_others():
    async def scene():
        room = await opened()
        fits = asyncio.Event()

        async def never():
            return None

        async def second():
            return 7 if fits.is_set() else None

        picky = asyncio.create_task(room.wait_for(never, 15))
        other = asyncio.create_task(room.wait_for(second, 15))
        await asyncio.sleep(0)
        fits.set()
        room.changed()
        found = await other
        room.close()
        return found, await picky

    assert run(scene()) == (7, None)


def test_closing_answers_everyone_and_lets_nobody_wait():
    async def scene():
        room, queue = await opened(), Queue()
        waiters = [asyncio.create_task(room.wait_for(queue.claim, 15)) for _ in range(3)]
        while queue.asked < 3:
            await asyncio.sleep(0)
        room.close()
        queue.runs.append(7)
        return [*await asyncio.gather(*waiters), await room.wait_for(queue.claim, 15)]

    assert run(scene()) == [None] * 4


def test_an_error_of_a_claim_is_the_waiters():
    async def scene():
        async def claim():
            raise LookupError

        await (await opened()).wait_for(claim, 15)

    with pytest.raises(LookupError):
        run(scene())


def test_other_servers_are_told_of_what_changed_here_and_not_of_what_they_told():
    async def scene():
        calls = []
        room = WaitingRoom(tell_others=lambda: calls.append(1))
        room.open()
        room.wake()
        await asyncio.to_thread(room.changed)
        return calls

    assert run(scene()) == [1]
