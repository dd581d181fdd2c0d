"""digest and figures of each canonical result, so that most analyses do not read its payload"""

from __future__ import annotations

import json
import logging
import zlib
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

COLUMNS: dict[str, sa.types.TypeEngine[Any]] = {
    "node": sa.Text(),
    "environment_sha256": sa.String(64),
    "phase_s": sa.JSON(none_as_null=True),
    "flagged_steps": sa.Integer(),
}
HEAVY = frozenset({"ops", "threads", "memory_bytes", "resident_bytes", "graph", "counters", "summary", "warnings"})
CHUNK = 200
log = logging.getLogger("taskloom.server")


def upgrade() -> None:
    for name, kind in COLUMNS.items():
        op.add_column("run", sa.Column(name, kind, nullable=True))
    op.create_index("ix_run_finished_at", "run", ["finished_at"])
    create_digests()


def create_digests() -> None:
    """Create the table as it was in this release, and fill it."""
    op.create_table(
        "digest",
        sa.Column("attempt_id", sa.Integer(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["result.attempt_id"], name=op.f("fk_digest_attempt_id_result"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("attempt_id", name=op.f("pk_digest")),
    )
    _fill(op.get_bind())


def _fill(connection: sa.Connection) -> None:
    """Fill the digests and figures from the payload of every run that succeeded."""
    from taskloom.server.queue.attempts import payload

    result = sa.table("result", sa.column("attempt_id"), sa.column("run_id"), sa.column("payload", sa.LargeBinary),
                      sa.column("canonical", sa.Boolean), sa.column("outcome"))  # fmt: skip
    attempt = sa.table("attempt", sa.column("id"), sa.column("node"))
    run = sa.table("run", sa.column("id"), *(sa.column(name, kind) for name, kind in COLUMNS.items()))
    digest = sa.table("digest", sa.column("attempt_id"), sa.column("content", sa.LargeBinary))
    query = (
        sa.select(result.c.attempt_id, result.c.run_id, result.c.payload, attempt.c.node)
        .join_from(result, attempt, attempt.c.id == result.c.attempt_id)
        .where(result.c.canonical, result.c.outcome == "succeeded")
        .order_by(result.c.attempt_id)
        .limit(CHUNK)
    )
    last = 0
    while rows := connection.execute(query.where(result.c.attempt_id > last)).all():
        last = rows[-1].attempt_id
        for row in rows:
            try:
                found = payload.unpack(row.payload)["result"]
                figures, content = payload.figures(found), _digest(found)
            except (KeyError, TypeError, ValueError, AttributeError, IndexError, zlib.error) as error:
                log.warning("the result of run %s cannot be read: %s; analyses leave it out", row.run_id, error)
                continue
            connection.execute(sa.insert(digest).values(attempt_id=row.attempt_id, content=content))
            connection.execute(
                sa.update(run)
                .where(run.c.id == row.run_id)
                .values(
                    node=row.node,
                    environment_sha256=figures.environment_sha256,
                    phase_s=figures.phase_s,
                    flagged_steps=figures.flagged_steps,
                )
            )


def _digest(result: dict[str, Any]) -> bytes:
    kept = {name: value for name, value in result.items() if name not in HEAVY}
    validity = result.get("validity") or {}
    return json.dumps({**kept, "validity": {"foreign": validity.get("foreign")}}, separators=(",", ":")).encode()


def downgrade() -> None:
    op.drop_table("digest")
    op.drop_index("ix_run_finished_at", "run")
    for name in reversed(COLUMNS):
        op.drop_column("run", name)
