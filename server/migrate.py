"""Bring a database to the newest schema. Two servers that start together do it once."""

from __future__ import annotations

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text
from sqlalchemy.engine import Connection

import migrations
from server.db import Database

LOCK = 0x7A5C_1003  # any number, the same in every server
STATEMENT_TIMEOUT_S = 600


def config(connection: Connection | None = None) -> Config:
    """Alembic's configuration: the packaged scripts, on a given connection."""
    made = Config()
    made.set_main_option("script_location", migrations.__path__[0].replace("%", "%%"))
    made.attributes["connection"] = connection
    return made


def upgrade(database: Database, revision: str = "head") -> None:
    """Run the missing migrations, in one transaction that holds a lock."""
    with database.writing_connection() as connection:
        _lock(connection)
        command.upgrade(config(connection), revision)


def downgrade(database: Database, revision: str) -> None:
    """Undo migrations down to `revision` ("base": all)."""
    with database.writing_connection() as connection:
        _lock(connection)
        command.downgrade(config(connection), revision)


def is_current(database: Database) -> bool:
    """Whether the database has exactly this server's schema."""
    with database.engine.connect() as connection:
        heads = MigrationContext.configure(connection).get_current_heads()
    return set(heads) == set(ScriptDirectory.from_config(config()).get_heads())


def _lock(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":  # SQLite's write transaction is a lock already
        connection.execute(text(f"SET LOCAL statement_timeout = '{STATEMENT_TIMEOUT_S}s'"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
