"""Entry point of Alembic. It uses the server's connection, or TASKLOOM_DATABASE_URL if the alembic command runs it."""

from __future__ import annotations

from alembic import context
from sqlalchemy.engine import Connection

from taskloom.server.db import Database
from taskloom.server.schema import METADATA
from taskloom.server.settings import Settings


def run(connection: Connection) -> None:
    # Batch mode, since SQLite changes a table by copying it.
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
