"""histories of runs; a table of alerts; owners of experiments; start and end times; ids that are never reused"""

from __future__ import annotations

import re
from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

# Parts of SQLite's table declarations, before and after this migration.
ID, LASTING_ID = "\tid INTEGER NOT NULL,", "\tid INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,"
KEYS = {table: f"CONSTRAINT pk_{table} PRIMARY KEY (id)" for table in ("experiment", "run", "attempt")}
ONE_KEY_FOR_ALL = "CONSTRAINT uq_experiment_idempotency_key UNIQUE (idempotency_key)"
COMMA = r",\s*"
KNOWN = "known from before histories were kept"


def upgrade() -> None:
    op.add_column("run", sa.Column("started_at", sa.Double(), nullable=True))
    op.add_column("attempt", sa.Column("started_at", sa.Double(), nullable=True))
    op.add_column("experiment", sa.Column("owner", sa.Text(), nullable=True))
    for name in ("started_at", "finished_at", "alerts_at"):
        op.add_column("experiment", sa.Column(name, sa.Double(), nullable=True))
    _say_who_submitted_and_when_it_ended()
    if _on_sqlite():
        for table, key in KEYS.items():
            edits = [(ID, LASTING_ID), (f"{COMMA}{re.escape(key)}", "")]
            if table == "experiment":
                edits += [(f"{COMMA}{re.escape(ONE_KEY_FOR_ALL)}", ""), ("owner TEXT,", "owner TEXT NOT NULL,")]
            _rebuild(table, edits)
    else:
        op.drop_constraint("uq_experiment_idempotency_key", "experiment")
        op.alter_column("experiment", "owner", nullable=False)
    op.create_index("uq_experiment_idempotency", "experiment", ["owner", "idempotency_key"], unique=True)
    op.create_index("ix_experiment_finished_at", "experiment", ["finished_at"])
    _make_histories()
    op.create_table(
        "alert",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("ratio", sa.Double(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("confirming_experiment_id", sa.Integer(), nullable=True),
        sa.Column("raised_at", sa.Double(), nullable=False),
        sa.Column("changed_at", sa.Double(), nullable=False),
        sa.CheckConstraint(
            "state IN ('suspected', 'confirming', 'confirmed', 'dismissed')", name=op.f("ck_alert_state")
        ),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_alert_run_id_run"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["confirming_experiment_id"],
            ["experiment.id"],
            name=op.f("fk_alert_confirming_experiment_id_experiment"),
            ondelete="SET NULL",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alert")),
        sa.UniqueConstraint("run_id", name=op.f("uq_alert_run_id")),
        sqlite_autoincrement=True,
    )


def downgrade() -> None:
    op.drop_table("alert")
    op.drop_table("run_event")
    op.drop_index("ix_experiment_finished_at", "experiment")
    op.drop_index("uq_experiment_idempotency", "experiment")
    for name in ("alerts_at", "finished_at", "started_at", "owner"):
        op.drop_column("experiment", name)
    op.drop_column("attempt", "started_at")
    op.drop_column("run", "started_at")
    # If two owners chose the same key, the first keeps it.
    op.execute(
        "UPDATE experiment SET idempotency_key = NULL WHERE EXISTS (SELECT 1 FROM experiment AS other "
        "WHERE other.idempotency_key = experiment.idempotency_key AND other.id < experiment.id)"
    )
    if _on_sqlite():
        for table, key in KEYS.items():
            _rebuild(table, [(LASTING_ID, ID)], [key, ONE_KEY_FOR_ALL] if table == "experiment" else [key])
    else:
        op.create_unique_constraint("uq_experiment_idempotency_key", "experiment", ["idempotency_key"])


def _on_sqlite() -> bool:
    return op.get_bind().dialect.name == "sqlite"


def _rebuild(table: str, edits: Sequence[tuple[str, str]], more: Sequence[str] = ()) -> None:
    """Replace one of SQLite's tables by a copy with a changed declaration.

    edits: patterns that occur once in the declaration, and their replacements; more: constraints to add.
    """
    connection = op.get_bind()
    found = connection.exec_driver_sql(
        "SELECT type, sql FROM sqlite_master WHERE tbl_name = ? AND sql IS NOT NULL", (table,)
    ).all()
    (declared,) = (sql for kind, sql in found if kind == "table")
    for old, new in edits:
        declared, count = re.subn(old, new, declared)
        if count != 1:
            raise RuntimeError(f"unexpected declaration of table {table}: {old} occurs {count} times instead of once")
    columns = declared.partition("(")[2].rstrip().removesuffix(")")
    connection.exec_driver_sql(f"CREATE TABLE rebuilt ({', '.join([columns, *more])}\n)")
    connection.exec_driver_sql(f"INSERT INTO rebuilt SELECT * FROM {table}")
    connection.exec_driver_sql(f"DROP TABLE {table}")
    connection.exec_driver_sql(f"ALTER TABLE rebuilt RENAME TO {table}")
    for kind, sql in found:
        if kind == "index":
            connection.exec_driver_sql(sql)


def _say_who_submitted_and_when_it_ended() -> None:
    op.execute(
        "UPDATE experiment SET owner = coalesce((SELECT 'key:' || key_id FROM experiment_key "
        "WHERE experiment_key.experiment_id = experiment.id), 'local')"
    )
    # Confirmations of alerts have one owner, so that a repeated request gets the same experiment.
    op.execute("UPDATE experiment SET owner = 'alerts' WHERE idempotency_key LIKE 'confirm run %'")
    op.execute(
        "UPDATE experiment SET finished_at = (SELECT max(finished_at) FROM run WHERE experiment_id = experiment.id) "
        "WHERE NOT EXISTS (SELECT 1 FROM run WHERE experiment_id = experiment.id AND finished_at IS NULL)"
    )
    op.execute("UPDATE experiment SET alerts_at = finished_at")


def _make_histories() -> None:
    op.create_table(
        "run_event",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("experiment_id", sa.Integer(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("verb", sa.String(length=20), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("attempt_no", sa.Integer(), nullable=True),
        sa.Column("attempt_state", sa.String(length=20), nullable=True),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_run_event_run_id_run"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiment.id"], name=op.f("fk_run_event_experiment_id_experiment"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run_event")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_run_event_run", "run_event", ["run_id", "id"])
    op.create_index("ix_run_event_experiment", "run_event", ["experiment_id", "id"])
    # Existing rows contain submissions, claims and ends of attempts; other changes are unknown.
    op.execute(f"""
        INSERT INTO run_event (run_id, experiment_id, at, verb, state, attempt_no, attempt_state, actor, reason)
        SELECT * FROM (
            SELECT run.id AS run_id, experiment_id, run.created_at AS at, 'submit' AS verb, 'queued' AS state,
                   NULL AS attempt_no, NULL AS attempt_state, experiment.owner AS actor, '{KNOWN}' AS reason
            FROM run JOIN experiment ON experiment.id = run.experiment_id
            UNION ALL
            SELECT run.id, experiment_id, claimed_at, 'claim', 'leased', attempt_no, 'leased',
                   'worker:' || worker_id, '{KNOWN}'
            FROM attempt JOIN run ON run.id = attempt.run_id
            UNION ALL
            SELECT run.id, experiment_id, attempt.finished_at, 'end', CASE WHEN attempt_no = attempts
                   THEN run.state ELSE 'queued' END, attempt_no, attempt.state, 'worker:' || worker_id, '{KNOWN}'
            FROM attempt JOIN run ON run.id = attempt.run_id WHERE attempt.finished_at IS NOT NULL
        ) AS known ORDER BY at, run_id, attempt_no
    """)
