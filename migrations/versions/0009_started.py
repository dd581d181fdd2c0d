"""boot of a worker's machine, and the time after it at which the worker's process started"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("worker", sa.Column("machine_boot_id", sa.Text(), nullable=True))
    op.add_column("worker", sa.Column("started_s", sa.Double(), nullable=True))


def downgrade() -> None:
    op.drop_column("worker", "started_s")
    op.drop_column("worker", "machine_boot_id")
