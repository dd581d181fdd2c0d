"""A real server: Uvicorn on a free port, on a real database file."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import uvicorn

from taskloom.server.listening import bind, resolve
from taskloom.server.main import configuration, create_app
from taskloom.server.settings import Settings
from tests.support.caller import Caller
from tests.support.patience import DEADLINE_S

StartServer = Callable[..., Caller]


class ThreadedServer(uvicorn.Server):
    """Uvicorn in a thread. It signals that it has started, and it stops without delay.

    When Uvicorn stops, it waits twice for 0.1 s, which is longer than most tests take.
    """

    def __init__(self, settings: Settings, public: bool) -> None:
        self.app = create_app(settings, public)
        super().__init__(configuration(self.app))
        self.ready = threading.Event()
        self._stopping = asyncio.Event()
        self.listener = bind(resolve("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.thread = threading.Thread(target=self.run, args=([self.listener],))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        self.ready.set()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self._stopping.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for listener in sockets or []:
            listener.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        while self.server_state.connections or self.server_state.tasks:
            await asyncio.sleep(0.001)
        await self.lifespan.shutdown()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self.thread.join()


@contextlib.contextmanager
def servers_on(database_url: str, artifacts: Path) -> Iterator[StartServer]:
    """Start servers on one database; all are stopped at the end."""
    servers: list[ThreadedServer] = []
    clients: list[httpx.Client] = []

    def start(public: bool = False, **settings: object) -> Caller:
        # Reaper, alerts and verdicts run only when a test calls them, unless the test sets otherwise.
        quiet = {"reap_after_s": 3600.0, "confirm_alerts": False, "keep_verdicts": False, "analysis_processes": 0}
        folders = {"artifact_root": artifacts, "answer_root": artifacts.with_name("answers")}
        given = {"database_url": database_url, **folders, **quiet, **settings}
        server = ThreadedServer(Settings.model_validate(given), public)
        servers.append(server)
        server.thread.start()
        assert server.ready.wait(DEADLINE_S)
        # Certificates are not needed here, and loading them takes as long as a server's start.
        client = httpx.Client(base_url=server.url, timeout=DEADLINE_S, verify=False)
        clients.append(client)
        return Caller(client, server.app.state.context, server.app.state.reading)

    try:
        yield start
    finally:
        for client in clients:
            client.close()
        for server in servers:
            server.app.state.context.waiting.close_soon()
            server.stop()


@contextlib.contextmanager
def server_on_copy(database: Path, folder: Path) -> Iterator[Caller]:
    """A server on a copy of an SQLite file."""
    shutil.copy(database, folder / "test.db")
    with servers_on(f"sqlite:///{folder}/test.db", folder / "artifacts") as start:
        yield start()
