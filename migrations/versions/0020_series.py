"""series of results, with an index of their runs; times of single steps while a run is in progress"""

from __future__ import annotations

import json
import logging
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

CHUNK = 1000
log = logging.getLogger("taskloom.server")


def upgrade() -> None:
    op.create_table(
        "series",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("config", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("machine", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("runs", sa.Integer(), nullable=False),
        sa.Column("last_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_series")),
        sa.UniqueConstraint("key", name=op.f("uq_series_key")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_series_last_at", "series", ["last_at", "id"])
    op.add_column("run", sa.Column("series_id", sa.Integer(), nullable=True))
    _fill(op.get_bind())
    op.create_index("ix_run_series", "run", ["series_id", "finished_at", "id"])
    op.create_table(
        "step_times",
        sa.Column("attempt_id", sa.Integer(), nullable=False),
        sa.Column("last", sa.BigInteger(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("first", sa.BigInteger(), nullable=False),
        sa.Column("step_s", sa.LargeBinary(), nullable=False),
        sa.Column("loss", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempt.id"], name=op.f("fk_step_times_attempt_id_attempt"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_step_times_run_id_run"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("attempt_id", "last", name=op.f("pk_step_times")),
    )
    op.create_index("ix_step_times_run", "step_times", ["run_id", "attempt_id", "last"])


def _fill(connection: sa.Connection) -> None:
    """Fill the series from the facts of every canonical result. Repetitions have the same bytes as facts."""
    from gpt2core.spec.series import series_config, series_key, series_machine

    result = sa.table("result", sa.column("attempt_id"), sa.column("run_id"), sa.column("received_at"))
    digest = sa.table("digest", sa.column("attempt_id"), sa.column("facts", sa.LargeBinary))
    json_type = sa.JSON(none_as_null=True)
    blocks = (sa.column("config", json_type), sa.column("machine", json_type))
    series = sa.table(
        "series", *blocks, sa.column("id"), sa.column("key"), sa.column("node"), sa.column("runs"), sa.column("last_at")
    )
    run = sa.table("run", sa.column("id"), sa.column("series_id"))
    query = (
        sa.select(digest.c.attempt_id, digest.c.facts, result.c.run_id, result.c.received_at)
        .join_from(digest, result, result.c.attempt_id == digest.c.attempt_id)
        .order_by(digest.c.attempt_id)
        .limit(CHUNK)
    )
    ids: dict[str, int] = {}
    known: dict[bytes, int | None] = {}
    figures: dict[int, list[float]] = {}  # for each series: the number of its runs, and the time of the newest
    last = 0

    def series_of(facts: bytes, run_id: int) -> int | None:
        try:
            found: dict[str, Any] = json.loads(facts)
            config, machine = series_config(found["config"]), series_machine(found["environment"])
            key = series_key(found["config"], found["environment"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            log.warning("the facts of run %s cannot be read: %s; it is in no series", run_id, error)
            return None
        if key not in ids:
            values = {"config": config, "machine": machine, "node": str(machine["node"] or ""), "runs": 0, "last_at": 0}
            connection.execute(sa.insert(series).values(key=key, **values))
            ids[key] = connection.execute(sa.select(series.c.id).where(series.c.key == key)).scalar_one()
        return ids[key]

    while rows := connection.execute(query.where(digest.c.attempt_id > last)).all():
        last = rows[-1].attempt_id
        runs_of: dict[int, list[int]] = {}
        for row in rows:
            if row.facts not in known:
                if len(known) > CHUNK:
                    known.clear()
                known[row.facts] = series_of(row.facts, row.run_id)
            series_id = known[row.facts]
            if series_id is not None:
                runs_of.setdefault(series_id, []).append(row.run_id)
                figure = figures.setdefault(series_id, [0, 0.0])
                figure[0], figure[1] = figure[0] + 1, max(figure[1], row.received_at)
        for series_id, run_ids in runs_of.items():
            connection.execute(sa.update(run).where(run.c.id.in_(run_ids)).values(series_id=series_id))
    for series_id, (count, last_at) in figures.items():
        connection.execute(
            sa.update(series).where(series.c.id == series_id).values(runs=int(count), last_at=last_at)
        )


def downgrade() -> None:
    op.drop_table("step_times")
    op.drop_index("ix_run_series", "run")
    op.drop_column("run", "series_id")
    op.drop_table("series")
