"""lines of output of trainers"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "output_line",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("attempt_id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("line_no", sa.Integer(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempt.id"], name=op.f("fk_output_line_attempt_id_attempt"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_output_line_run_id_run"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_output_line")),
    )
    op.create_index("uq_output_line_no", "output_line", ["attempt_id", "line_no"], unique=True)
    op.create_index("ix_output_line_run", "output_line", ["run_id", "id"])


def downgrade() -> None:
    op.drop_index("ix_output_line_run", "output_line")
    op.drop_index("uq_output_line_no", "output_line")
    op.drop_table("output_line")
