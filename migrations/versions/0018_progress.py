"""progress of trainers at each heartbeat while they run; an index to count recently ended runs"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "progress_point",
        sa.Column("attempt_id", sa.Integer(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("loss", sa.Double(), nullable=True),
        sa.Column("tokens_per_s", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempt.id"], name=op.f("fk_progress_point_attempt_id_attempt"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_progress_point_run_id_run"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("attempt_id", "step", name=op.f("pk_progress_point")),
    )
    op.create_index("ix_progress_point_run", "progress_point", ["run_id", "attempt_id", "step"])
    op.drop_index("ix_run_finished_at", "run")
    op.create_index("ix_run_finished_at", "run", ["finished_at", "id", "state"])


def downgrade() -> None:
    op.drop_index("ix_run_finished_at", "run")
    op.create_index("ix_run_finished_at", "run", ["finished_at", "id"])
    op.drop_table("progress_point")
