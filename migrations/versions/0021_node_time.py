"""parts of the node's time that each run took, in seconds"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None


PARTS = (
    "delivering", "claiming", "starting", "planning", "compiling", "preparing", "warmup", "timed", "finishing",
)  # fmt: skip


def upgrade() -> None:
    for part in PARTS:
        op.add_column("run", sa.Column(f"node_{part}_s", sa.Double(), nullable=True))


def downgrade() -> None:
    for part in reversed(PARTS):
        op.drop_column("run", f"node_{part}_s")
