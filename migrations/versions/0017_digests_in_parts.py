"""digests in three parts: no analysis reads a payload, and a part that several runs share is read once"""

from __future__ import annotations

import importlib
import logging
import zlib

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

PARTS = ("facts", "measured", "causes")
CHUNK = 200
log = logging.getLogger("taskloom.server")


def upgrade() -> None:
    op.drop_table("digest")
    op.create_table(
        "digest",
        sa.Column("attempt_id", sa.Integer(), nullable=False),
        *(sa.Column(name, sa.LargeBinary(), nullable=False) for name in PARTS),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["result.attempt_id"], name=op.f("fk_digest_attempt_id_result"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("attempt_id", name=op.f("pk_digest")),
    )
    _fill(op.get_bind())


def _fill(connection: sa.Connection) -> None:
    """Fill the parts from the payload of every run that succeeded."""
    from taskloom.server.queue.attempts.digest import digest
    from taskloom.server.queue.attempts.payload import unpack

    result = sa.table("result", sa.column("attempt_id"), sa.column("run_id"), sa.column("payload", sa.LargeBinary),
                      sa.column("canonical", sa.Boolean), sa.column("outcome"))  # fmt: skip
    kept = sa.table("digest", sa.column("attempt_id"), *(sa.column(name, sa.LargeBinary) for name in PARTS))
    query = (
        sa.select(result.c.attempt_id, result.c.run_id, result.c.payload)
        .where(result.c.canonical, result.c.outcome == "succeeded")
        .order_by(result.c.attempt_id)
        .limit(CHUNK)
    )
    last = 0
    while rows := connection.execute(query.where(result.c.attempt_id > last)).all():
        last = rows[-1].attempt_id
        made = []
        for row in rows:
            try:
                made.append({"attempt_id": row.attempt_id, **digest(unpack(row.payload)["result"])})
            except (KeyError, TypeError, ValueError, AttributeError, IndexError, zlib.error) as error:
                log.warning("the result of run %s cannot be read: %s; analyses leave it out", row.run_id, error)
        if made:
            connection.execute(sa.insert(kept), made)


def downgrade() -> None:
    op.drop_table("digest")
    importlib.import_module("taskloom.migrations.versions.0014_digests").create_digests()
