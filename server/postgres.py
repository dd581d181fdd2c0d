"""Connections to PostgreSQL, also through a pooler that may give each transaction another backend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine, event

from gpt2core.spec import extras
from taskloom.server.errors import StartRefused

if TYPE_CHECKING:
    import psycopg

# Whatever the environment (PGCLIENTENCODING) or the URL says: names and notes may contain every character.
CONNECT = {"client_encoding": "utf8"}


def load() -> None:
    """Load the driver. Raises StartRefused."""
    try:
        extras.require("postgres")
        import psycopg  # noqa: F401 - servers with SQLite do without it
    except extras.NotInstalled as error:
        raise StartRefused(str(error)) from None
    except ImportError as error:  # its C library is missing
        raise StartRefused(f"psycopg cannot be loaded ({error}): install taskloom[postgres]") from None


def prepare(engine: Engine) -> None:
    """Check each new connection before anything else uses it. Raises StartRefused when it connects."""

    @event.listens_for(engine, "connect", insert=True)  # before SQLAlchemy's own first query
    def connect(connection: psycopg.Connection[Any], _: object) -> None:
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise StartRefused(
                f"the database's encoding is {encoding}, which cannot store every name; create it with "
                "CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0"
            )
        backend = connection.execute("SELECT pg_backend_pid()").fetchone()
        connection.rollback()
        if is_pooled(connection, backend):
            connection.prepare_threshold = None  # the next transaction's backend would not know what was prepared


def is_pooled(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], backend: Any) -> bool:
    """Whether a pooler is between: the process that answered `SELECT pg_backend_pid()` is not the one that the
    connection's start named."""
    return backend is None or backend[0] != connection.info.backend_pid
