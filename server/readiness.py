"""Readiness: database and artifact folder are writable."""

from __future__ import annotations

import threading
import time

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from taskloom.server import migrate
from taskloom.server.artifact_store import Store
from taskloom.server.db import Database, trouble
from taskloom.server.errors import DatabaseUnavailable, StoreUnavailable

KEPT_S = 2.0  # answers are kept for this time, so that requests cannot cause more writes


class Readiness:
    """Tests both by writing. Threads may share it."""

    def __init__(self, database: Database, store: Store) -> None:
        self._database, self._store = database, store
        self._lock = threading.Lock()
        self._until = 0.0
        self._found: DatabaseUnavailable | StoreUnavailable | None = None

    def check(self) -> None:
        """Raises DatabaseUnavailable or StoreUnavailable."""
        self._database.check_file()
        try:
            current = migrate.is_current(self._database)
        except DBAPIError as error:
            raise DatabaseUnavailable(trouble(error)) from error
        if not current:
            raise DatabaseUnavailable("the database is not at this server's version")
        with self._lock:
            if time.monotonic() >= self._until:
                self._found = self._try_out()
                self._until = time.monotonic() + KEPT_S
        if self._found is not None:
            raise self._found

    def _try_out(self) -> DatabaseUnavailable | StoreUnavailable | None:
        try:
            with self._database.write() as session:
                session.execute(text("UPDATE alembic_version SET version_num = version_num"))
        except DBAPIError as error:
            return DatabaseUnavailable(trouble(error))
        try:
            self._store.try_out()
        except StoreUnavailable as error:
            return error
        return None
