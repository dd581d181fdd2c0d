"""thresholds of series, and alerts on them

Revision ID: 0028
Revises: 0027
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic.op import batch_alter_table, create_table, drop_table, execute
from alembic.op import f as named

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

OF_CHANGES = "state IN ('suspected', 'confirming', 'confirmed', 'dismissed')"
OF_BOTH = "state IN ('suspected', 'confirming', 'confirmed', 'dismissed', 'above', 'below', 'within')"


def upgrade() -> None:
    create_table(
        "threshold",
        sa.Column("series_id", sa.Integer(), nullable=False),
        sa.Column("reference_s", sa.Double(), nullable=False),
        sa.Column("lower", sa.Double()),
        sa.Column("upper", sa.Double()),
        sa.Column("set_at", sa.Double(), nullable=False),
        sa.Column("set_by", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["series_id"], ["series.id"], name=named("fk_threshold_series_id_series"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("series_id", name=named("pk_threshold")),
    )
    with batch_alter_table("alert", table_kwargs={"sqlite_autoincrement": True}) as alert:
        alert.drop_constraint(named("ck_alert_state"), type_="check")
        alert.add_column(sa.Column("kind", sa.String(length=20), server_default="change", nullable=False))
        alert.drop_constraint(named("uq_alert_run_id"), type_="unique")
        alert.create_unique_constraint(named("uq_alert_run_id_kind"), ["run_id", "kind"])
        alert.create_check_constraint(named("ck_alert_state"), OF_BOTH)
        alert.create_check_constraint(named("ck_alert_kind"), "kind IN ('change', 'threshold')")


def downgrade() -> None:
    execute("DELETE FROM alert WHERE kind = 'threshold'")
    with batch_alter_table("alert", table_kwargs={"sqlite_autoincrement": True}) as alert:
        alert.drop_constraint(named("ck_alert_state"), type_="check")
        alert.drop_constraint(named("ck_alert_kind"), type_="check")
        alert.drop_constraint(named("uq_alert_run_id_kind"), type_="unique")
        alert.drop_column("kind")
        alert.create_unique_constraint(named("uq_alert_run_id"), ["run_id"])
        alert.create_check_constraint(named("ck_alert_state"), OF_CHANGES)
    drop_table("threshold")
