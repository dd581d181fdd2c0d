"""API keys; the key of each worker and of each experiment"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "api_key",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("scope", sa.String(length=20), nullable=False),
        sa.Column("secret_sha256", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.Column("last_used_at", sa.Double(), nullable=True),
        sa.Column("revoked_at", sa.Double(), nullable=True),
        sa.CheckConstraint("scope IN ('read', 'submit', 'worker', 'admin')", name=op.f("ck_api_key_scope")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_key")),
    )
    op.create_table(
        "worker_key",
        sa.Column("worker_id", sa.Text(), nullable=False),
        sa.Column("key_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["worker_id"], ["worker.worker_id"], name=op.f("fk_worker_key_worker_id_worker")),
        sa.ForeignKeyConstraint(["key_id"], ["api_key.id"], name=op.f("fk_worker_key_key_id_api_key")),
        sa.PrimaryKeyConstraint("worker_id", name=op.f("pk_worker_key")),
    )
    op.create_table(
        "experiment_key",
        sa.Column("experiment_id", sa.Integer(), nullable=False),
        sa.Column("key_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"],
            ["experiment.id"],
            name=op.f("fk_experiment_key_experiment_id_experiment"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(["key_id"], ["api_key.id"], name=op.f("fk_experiment_key_key_id_api_key")),
        sa.PrimaryKeyConstraint("experiment_id", name=op.f("pk_experiment_key")),
    )


def downgrade() -> None:
    op.drop_table("experiment_key")
    op.drop_table("worker_key")
    op.drop_table("api_key")
