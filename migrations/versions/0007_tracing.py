"""purpose of attempts: a run may be traced after it was timed"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("run", sa.Column("trace", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("run", sa.Column("purpose", sa.String(20), nullable=False, server_default="timing"))
    op.add_column("attempt", sa.Column("purpose", sa.String(20), nullable=False, server_default="timing"))


def downgrade() -> None:
    op.drop_column("attempt", "purpose")
    op.drop_column("run", "purpose")
    op.drop_column("run", "trace")
