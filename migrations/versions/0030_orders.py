"""indexes of the columns by which lists are sorted

Revision ID: 0030
Revises: 0029
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic.op import create_index, drop_index

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None

INDEXES = {  # name -> table, column
    "ix_run_tokens_per_s": ("run", "tokens_per_s"),
    "ix_run_final_loss": ("run", "final_loss"),
    "ix_run_flagged_steps": ("run", "flagged_steps"),
    "ix_run_duration_s": ("run", "(finished_at - started_at)"),
    "ix_experiment_name": ("experiment", "name"),
    "ix_experiment_owner": ("experiment", "owner"),
    "ix_experiment_runs": ("experiment", "runs"),
}


def upgrade() -> None:
    for name, (table, column) in INDEXES.items():
        create_index(name, table, [sa.text(column), "id"])


def downgrade() -> None:
    for name, (table, _) in INDEXES.items():
        drop_index(name, table)
