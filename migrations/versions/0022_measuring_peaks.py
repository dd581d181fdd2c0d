"""workers that measure the peaks of their node

Revision ID: 0022
Revises: 0021
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("worker", sa.Column("measuring_peaks", sa.Boolean(), nullable=True))


def downgrade() -> None:
    op.drop_column("worker", "measuring_peaks")
