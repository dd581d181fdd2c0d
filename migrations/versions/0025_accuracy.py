"""accuracy of the steps of running attempts

Revision ID: 0025
Revises: 0024
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("step_times", sa.Column("accuracy", sa.LargeBinary(), nullable=True))


def downgrade() -> None:
    op.drop_column("step_times", "accuracy")
