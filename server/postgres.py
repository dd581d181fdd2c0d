"""Connections to PostgreSQL, also through a pooler that may give each transaction another backend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Engine, event

from gpt2core.spec import extras
from taskloom.server.errors import StartRefused

if TYPE_CHECKING:
    import psycopg

# Whatever the environment (PGCLIENTENCODING) or the URL says: names and notes may contain every character.
CONNECT = {"client_encoding": "utf8"}
# Whatever the database or the role has as its default. It is part of each BEGIN, so a pooler keeps it for nobody else.
ISOLATION = "READ COMMITTED"


def load(url: URL) -> None:
    """Load the driver, and check the URL's options, of which values may be secret. Raises StartRefused."""
    try:
        extras.require("postgres")
        import psycopg  # servers with SQLite do without it
    except extras.NotInstalled as error:
        raise StartRefused(str(error)) from None
    except ImportError as error:  # its C library is missing
        raise StartRefused(f"psycopg cannot be loaded ({error}): install taskloom[postgres]") from None
    known = {option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults()}
    unknown = sorted(set(url.query) - known)
    if unknown:
        raise StartRefused(
            f"the database URL has the option {unknown[0]}, which PostgreSQL's client does not know; remove it, or use "
            "one of libpq's, such as sslmode or connect_timeout"
        )


def prepare(engine: Engine) -> None:
    """Check each new connection before anything else uses it. Raises StartRefused when it connects."""

    @event.listens_for(engine, "connect", insert=True)  # before SQLAlchemy's own first query
    def connect(connection: psycopg.Connection[Any], _: object) -> None:
        encoding = connection.info.parameter_status("server_encoding")  # a pooler may report none
        if encoding is None:
            encoding = connection.execute("SHOW server_encoding").fetchone()[0]  # type: ignore[index]
        if encoding != "UTF8":
            raise StartRefused(
                f"the database's encoding is {encoding}, which cannot store every name; create it with "
                "CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0"
            )
        digits = connection.execute("SHOW extra_float_digits").fetchone()[0]  # type: ignore[index]
        if int(digits) < 1:
            raise StartRefused(
                f"the database's extra_float_digits is {digits}, which rounds numbers, so that lists leave rows out; "
                "reset it for the database and the role (ALTER ROLE ... RESET extra_float_digits), and in PGOPTIONS"
            )
        backend = connection.execute("SELECT pg_backend_pid()").fetchone()
        connection.rollback()
        if is_pooled(connection, backend):
            connection.prepare_threshold = None  # the next transaction's backend would not know what was prepared


def is_pooled(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], backend: Any) -> bool:
    """Whether a pooler is between: the process that answered `SELECT pg_backend_pid()` is not the one that the
    connection's start named."""
    return backend is None or backend[0] != connection.info.backend_pid
