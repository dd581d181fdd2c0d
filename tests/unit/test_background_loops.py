"""The server's loops go on after a failure, which a line in the log names."""

import asyncio
import logging

import pytest
from sqlalchemy.exc import OperationalError

from taskloom.server import background
from taskloom.server.errors import OutOfResources

MENDABLE = (RuntimeError("can't start new thread"), OutOfResources(), OperationalError("SELECT 1", {}, OSError("gone")))


@pytest.mark.parametrize(
    ("error", "has_traceback"), [*((each, False) for each in MENDABLE), (ValueError("a defect"), True)]
)
def test_a_loop_that_fails_says_so_and_goes_on(caplog, error, has_traceback):
    stopping, calls = asyncio.Event(), []

    async def work():
        calls.append(1)
        if len(calls) == 1:
            raise error
        stopping.set()

    with caplog.at_level(logging.ERROR):
        asyncio.run(background._repeat(work, 0.0, 0.0, stopping))
    assert len(calls) == 2
    (record,) = caplog.records
    assert record.message.startswith("background work failed; it will be repeated")
    assert (record.exc_info is not None) == has_traceback
    assert has_traceback or str(error) in record.message
