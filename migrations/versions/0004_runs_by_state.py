"""index to count an experiment's runs by state and to list runs of one state"""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_run_experiment_state", "run", ["experiment_id", "state", "id"])


def downgrade() -> None:
    op.drop_index("ix_run_experiment_state", "run")
