"""Migrates a database to this server's schema. If two servers start together, only one of them migrates it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import inspect, text
from sqlalchemy.engine import Connection

from taskloom import migrations
from taskloom.server.db import Database
from taskloom.server.errors import StartRefused

if TYPE_CHECKING:  # loaded only for a migration, which most starts do not need
    from alembic.config import Config

LOCK = 0x7A5C_1003  # an arbitrary number, the same in every server
STATEMENT_TIMEOUT_S = 600
SCRIPTS = Path(migrations.__path__[0])
HEAD = max(path.stem.partition("_")[0] for path in (SCRIPTS / "versions").glob("[0-9]*.py"))


def config(connection: Connection | None = None) -> Config:
    """Alembic's configuration: the packaged scripts, on a given connection."""
    from alembic.config import Config

    made = Config()
    made.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    made.attributes["connection"] = connection
    return made


def upgrade(database: Database) -> None:
    """Run the missing migrations, in one transaction that holds a lock. Raises StartRefused."""
    if is_current(database):
        return
    from alembic import command

    with database.migrating() as connection:
        _lock(connection)
        _check_revision(connection)
        command.upgrade(config(connection), "head")


def is_current(database: Database) -> bool:
    """Whether the database has exactly this server's schema."""
    with database.engine.connect() as connection:
        return _revisions(connection) == [HEAD]


def _revisions(connection: Connection) -> Sequence[str]:
    """The revision of the database's schema; none if it has no schema."""
    if not inspect(connection).has_table("alembic_version"):
        return []
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalars().all()


def _check_revision(connection: Connection) -> None:
    """Raises StartRefused for a schema of which this server has no migration."""
    from alembic.script import ScriptDirectory

    known = [script.revision for script in ScriptDirectory.from_config(config()).walk_revisions()]
    for revision in _revisions(connection):
        if revision not in known:
            raise StartRefused(
                f"this version cannot migrate the database: the database has schema {revision}, and this version knows "
                f"{' to '.join(sorted({known[-1], known[0]}))}. Start the version that made it, or name another "
                "database (--database-url)"
            )


def _lock(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":  # SQLite's write transaction is a lock already
        connection.execute(text(f"SET LOCAL statement_timeout = '{STATEMENT_TIMEOUT_S}s'"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
