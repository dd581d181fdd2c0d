"""A real server: Uvicorn on a free port, on a real database file."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from caller import Caller
from patience import DEADLINE_S

from taskloom.server.listening import bind, resolve
from taskloom.server.main import configuration, create_app
from taskloom.server.settings import Settings

StartServer = Callable[..., Caller]


class ThreadedServer(uvicorn.Server):
    """Uvicorn in a thread, that says when it has started, and stops when told rather than at its next look.

    What Uvicorn waits at a stop, 0.1 s twice, would be more than most tests take.
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
        # The reaper looks, and alerts are confirmed, when a test says so, unless the test says otherwise.
        quiet = {"reap_after_s": 3600.0, "confirm_alerts": False, "keep_verdicts": False, "analysis_processes": 0}
        folders = {"artifact_root": artifacts, "answer_root": artifacts.with_name("answers")}
        given = {"database_url": database_url, **folders, **quiet, **settings}
        server = ThreadedServer(Settings.model_validate(given), public)
        servers.append(server)
        server.thread.start()
        assert server.ready.wait(DEADLINE_S)
        client = httpx.Client(base_url=server.url, timeout=DEADLINE_S)
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


@pytest.fixture
def start_server(database_url: str, tmp_path: Path) -> Iterator[StartServer]:
    """Start a server with these settings. Two on one database are two replicas."""
    with servers_on(database_url, tmp_path / "artifacts") as start:
        yield start


@pytest.fixture
def api(start_server: StartServer) -> Caller:
    return start_server()


@pytest.fixture(scope="session")
def shared_api(migrated: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    """The server of `empty_api`."""
    path = tmp_path_factory.mktemp("shared") / "test.db"
    shutil.copy(migrated, path)
    with servers_on(f"sqlite:///{path}", path.parent / "artifacts") as start:
        yield start()


@pytest.fixture
def empty_api(shared_api: Caller) -> Iterator[Caller]:
    """A server that many tests share, which only ask it what it refuses."""
    yield shared_api
    stored = "SELECT (SELECT count(*) FROM experiment), (SELECT count(*) FROM worker), (SELECT count(*) FROM api_key)"
    assert shared_api.sql(stored) == [(0, 0, 0)], "this test stores something: it takes a server of its own (api)"


@pytest.fixture
def house(api: Caller, make_result: Callable[..., dict[str, Any]]) -> Caller:
    """A server with one key of each kind, a run that succeeded, one that w1 holds, and one that waits."""

    def key(scope: str) -> str:
        token: str = api.post("/keys", {"scope": scope}, 201)["token"]
        return token

    tokens: dict[str, str | None] = {"none": None, "unknown": "tlk_99_" + "0" * 64, "admin": key("admin")}
    api.use(tokens["admin"])
    tokens |= {"read": key("read"), "submit": key("submit"), "worker": key("worker"), "other-worker": key("worker")}
    for kind in ("revoked", "expired", "spare"):  # keys 6, 7, 8
        tokens[kind] = key("admin")
    api.post("/keys/6/revoke")
    api.sql("UPDATE api_key SET expires_at = created_at WHERE id = 7")
    api.submit(axes={"seed": [1, 2, 3]}, order="sequential")
    cancelled = api.submit(priority=-1)["id"]
    api.post(f"/experiments/{cancelled}/cancel")
    api.use(tokens["worker"])
    node = api.worker()
    finished = node.claim()
    node.leave(finished, "kept.txt", b"")
    node.upload(finished, make_result())
    node.claim()
    api.use(tokens["other-worker"])
    api.worker("w2")
    api.tokens = tokens
    return api
