"""tags and notes of experiments; webhooks and their deliveries; the spool of a worker"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("experiment", sa.Column("notes", sa.Text(), nullable=False, server_default=sa.text("''")))
    op.add_column("worker", sa.Column("spool_id", sa.Text(), nullable=True))
    op.create_table(
        "experiment_tag",
        sa.Column("experiment_id", sa.Integer(), nullable=False),
        sa.Column("tag", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiment.id"], name=op.f("fk_experiment_tag_experiment_id_experiment"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("experiment_id", "tag", name=op.f("pk_experiment_tag")),
    )  # fmt: skip
    op.create_index("ix_experiment_tag_tag", "experiment_tag", ["tag", "experiment_id"])
    op.create_table(
        "webhook",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("events", sa.JSON(), nullable=False),
        sa.Column("secret", sa.String(length=64), nullable=False),
        sa.Column("key_id", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["key_id"], ["api_key.id"], name=op.f("fk_webhook_key_id_api_key")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "webhook_delivery",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("webhook_id", sa.Integer(), nullable=False),
        sa.Column("event", sa.String(length=20), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("next_at", sa.Double(), nullable=True),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("delivered_at", sa.Double(), nullable=True),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["webhook_id"], ["webhook.id"], name=op.f("fk_webhook_delivery_webhook_id_webhook"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_delivery")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_webhook_delivery_webhook", "webhook_delivery", ["webhook_id", "id"])
    op.create_index(
        "ix_webhook_delivery_waiting", "webhook_delivery", ["next_at", "id"],
        sqlite_where=sa.text("next_at IS NOT NULL"), postgresql_where=sa.text("next_at IS NOT NULL"),
    )  # fmt: skip


def downgrade() -> None:
    op.drop_table("webhook_delivery")
    op.drop_table("webhook")
    op.drop_table("experiment_tag")
    op.drop_column("worker", "spool_id")
    op.drop_column("experiment", "notes")
