"""indexes for the sort orders and filters of lists; the verdict of an ended experiment"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

INDEXES = (
    ("ix_run_created_at", "run", ["created_at", "id"]),
    ("ix_run_started_at", "run", ["started_at", "id"]),
    ("ix_run_finished_at", "run", ["finished_at", "id"]),
    ("ix_run_median_step_s", "run", ["median_step_s", "id"]),
    ("ix_run_node", "run", ["node", "id"]),
    ("ix_experiment_created_at", "experiment", ["created_at", "id"]),
    ("ix_experiment_finished_at", "experiment", ["finished_at", "id"]),
)
BEFORE = (
    ("ix_run_finished_at", "run", ["finished_at"]),
    ("ix_experiment_finished_at", "experiment", ["finished_at"]),
)
WHERE = sa.text("flagged_steps > 0")
FLAGGED: dict[str, Any] = {"sqlite_where": WHERE, "postgresql_where": WHERE}


def upgrade() -> None:
    op.add_column("experiment", sa.Column("verdict", sa.JSON(none_as_null=True), nullable=True))
    op.add_column("experiment", sa.Column("verdict_at", sa.Double(), nullable=True))
    for name, table, _ in BEFORE:
        op.drop_index(name, table)
    for name, table, columns in INDEXES:
        op.create_index(name, table, columns)
    op.create_index("ix_run_flagged", "run", ["id"], **FLAGGED)
    op.create_index("ix_run_experiment_flagged", "run", ["experiment_id"], **FLAGGED)


def downgrade() -> None:
    op.drop_index("ix_run_experiment_flagged", "run")
    op.drop_index("ix_run_flagged", "run")
    for name, table, _ in reversed(INDEXES):
        op.drop_index(name, table)
    for name, table, columns in BEFORE:
        op.create_index(name, table, columns)
    op.drop_column("experiment", "verdict_at")
    op.drop_column("experiment", "verdict")
