"""pools of provisioners"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "pool",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("key_id", sa.Integer(), nullable=True),
        sa.Column("report", sa.JSON(), nullable=False),
        sa.Column("seen_at", sa.Double(), nullable=False),
        sa.Column("silent_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["key_id"], ["api_key.id"], name=op.f("fk_pool_key_id_api_key")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_pool")),
    )


def downgrade() -> None:
    op.drop_table("pool")
