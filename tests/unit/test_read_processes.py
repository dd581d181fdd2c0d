"""Kept processes: what a cancelled call leaves behind."""

import asyncio
import os

import anyio
import psutil
import pytest

from taskloom.server.read.processes import in_process


def children():
    return set(psutil.Process().children())


@pytest.mark.parametrize("by", ["task", "scope"])
def test_a_process_whose_first_call_is_cancelled_while_it_starts_ends_with_the_event_loop(by):
    before = children()

    async def cancelled():
        scope = anyio.CancelScope()

        async def called():
            with scope:
                await in_process(os.getpid)

        call = asyncio.ensure_future(called())
        while not (started := children() - before):
            await asyncio.sleep(0)
        for _ in range(10):  # turns, until its pipes are connected
            await asyncio.sleep(0)
        (scope if by == "scope" else call).cancel()
        await asyncio.wait([call])
        assert call.cancelled() or scope.cancelled_caught
        return started

    started = asyncio.run(cancelled())
    _, alive = psutil.wait_procs(started, timeout=10)
    assert not alive
