"""Readers wait for their turn before anything is done for them; workers do not wait."""

import asyncio
import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import event

from taskloom.server import main
from taskloom.server.access.turns import Turns
from tests.support.patience import DEADLINE_S


@pytest.fixture
def gate(monkeypatch):
    """A limit on simultaneous readers whose turns begin when an event is set."""

    class Gate(Turns):
        asked, opened = threading.Event(), threading.Event()

        @contextlib.asynccontextmanager
        async def taken(self):
            self.asked.set()
            while not self.opened.is_set():
                await asyncio.sleep(0.001)
            async with super().taken():
                yield

    monkeypatch.setattr(main, "Turns", Gate)
    return Gate


def test_a_readers_key_is_looked_up_in_its_turn_and_a_workers_at_once(gate, start_server):
    api = start_server()
    lookups = []

    @event.listens_for(api.context.database.engine, "before_cursor_execute")
    def seen(_connection, _cursor, statement, *_):
        if "api_key" in statement:
            lookups.append(statement)

    with ThreadPoolExecutor(1) as one:
        reading = one.submit(api.http.get, "/api/v1/runs")
        try:
            assert gate.asked.wait(DEADLINE_S)
            assert lookups == []
            api.worker()
            assert len(lookups) == 1
            assert not reading.done()
        finally:
            gate.opened.set()
        assert reading.result().status_code == 200
        assert len(lookups) == 2
