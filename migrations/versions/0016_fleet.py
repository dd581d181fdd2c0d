"""workers that were removed from lists, and an index of each worker's attempts"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("worker", sa.Column("removed_at", sa.Double(), nullable=True))
    op.create_index("ix_attempt_worker", "attempt", ["worker_id", "id"])


def downgrade() -> None:
    op.drop_index("ix_attempt_worker", "attempt")
    op.drop_column("worker", "removed_at")
