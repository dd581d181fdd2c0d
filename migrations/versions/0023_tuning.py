"""parts of runs in a tuning

Revision ID: 0023
Revises: 0022
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("run", sa.Column("role", sa.String(10), nullable=True))


def downgrade() -> None:
    op.drop_column("run", "role")
