"""end of a worker's walltime"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("worker", sa.Column("ends_at", sa.Double(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("worker") as batch_op:
        batch_op.drop_column("ends_at")
