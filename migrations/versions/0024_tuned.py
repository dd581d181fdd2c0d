"""confirmed settings of tunings

Revision ID: 0024
Revises: 0023
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "tuned",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("problem_sha256", sa.String(64), nullable=False),
        sa.Column("experiment_id", sa.Integer(), nullable=False),
        sa.Column("confirmed_at", sa.Double(), nullable=False),
        sa.Column("told", sa.JSON(none_as_null=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiment.id"], name=op.f("fk_tuned_experiment_id_experiment"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tuned")),
        sa.UniqueConstraint("key", name=op.f("uq_tuned_key")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_tuned_problem_sha256"), "tuned", ["problem_sha256"])


def downgrade() -> None:
    op.drop_table("tuned")
