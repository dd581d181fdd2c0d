"""Servers on one PostgreSQL database notify each other of queued runs, so that workers that wait at another server wake
at once.

This only saves time: each server also polls every TASKLOOM_POLL_S seconds, as on SQLite.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable

from sqlalchemy import func, select
from sqlalchemy.exc import DBAPIError

from taskloom.server import postgres
from taskloom.server.db import Database

CHANNEL = "taskloom_queue"
LISTENER = "taskloom listener"  # as pg_stat_activity shows it
RECONNECT_S = 1.0
log = logging.getLogger("taskloom.server")


class Neighbours:
    """The other servers on a database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._name = uuid.uuid4().hex

    def tell(self) -> None:
        """Notify the other servers of committed runs."""
        if self._database.is_sqlite:
            return
        try:
            with self._database.write() as session:
                session.execute(select(func.pg_notify(CHANNEL, self._name)))
        except DBAPIError as error:  # the runs are committed; polling finds them
            log.warning("other servers could not be notified of queued runs: %s", error.orig)

    async def listen(self, wake: Callable[[], None]) -> None:
        """Call `wake` when another server queued runs, or may have done so; until cancelled."""
        if self._database.is_sqlite:
            return
        import psycopg  # not installed on servers with SQLite

        engine = self._database.engine
        _, given = engine.dialect.create_connect_args(engine.url)
        options = {**given, "autocommit": True, "application_name": LISTENER, "keepalives_idle": 30}
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(**options) as connection:
                    backend = await (await connection.execute("SELECT pg_backend_pid()")).fetchone()
                    if postgres.is_pooled(connection, backend):
                        log.warning("a pooler before the database forwards no notifications: queued runs of other "
                                    "servers are found by polling (TASKLOOM_POLL_S)")  # fmt: skip
                        return
                    await connection.execute(f"LISTEN {CHANNEL}")
                    wake()  # for runs queued earlier
                    async for notice in connection.notifies():
                        if notice.payload != self._name:
                            wake()
            except (psycopg.Error, OSError) as error:
                log.warning("no notifications from other servers: %s; reconnecting", str(error).strip())
            await asyncio.sleep(RECONNECT_S)
