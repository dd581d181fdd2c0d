"""groups of keys and of experiments

Revision ID: 0029
Revises: 0028
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic.op import add_column, create_index, drop_column, drop_index

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("api_key", "experiment"):
        add_column(table, sa.Column("group_name", sa.Text()))
    create_index("ix_experiment_group_name", "experiment", ["group_name", "id"])


def downgrade() -> None:
    drop_index("ix_experiment_group_name", "experiment")
    for table in ("experiment", "api_key"):
        drop_column(table, "group_name")
