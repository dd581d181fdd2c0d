"""Alembic's entry: on the connection the server gives, or on TASKLOOM_DATABASE_URL from the alembic command."""

from __future__ import annotations

from alembic import context
from sqlalchemy.engine import Connection

from taskloom.server.db import Database
from taskloom.server.schema import METADATA
from taskloom.server.settings import Settings


def run(connection: Connection) -> None:
    # Batch mode: SQLite changes a table by copying it.
    context.configure(connection=connection, target_metadata=METADATA, render_as_batch=True, compare_type=True)
    with context.begin_transaction():
        context.run_migrations()


given: Connection | None = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    database = Database(Settings().database_url)
    with database.migrating() as own:
        run(own)
    database.close()
