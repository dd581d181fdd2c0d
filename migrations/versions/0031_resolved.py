"""settings that the trainer chose, of runs

Revision ID: 0031
Revises: 0030
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic.op import add_column, drop_column

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Runs that have ended keep null: to fill them, every result would have to be read."""
    add_column("run", sa.Column("resolved", sa.JSON()))


def downgrade() -> None:
    drop_column("run", "resolved")
