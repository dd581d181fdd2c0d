"""requirements of a block; the time at which a worker left"""

from __future__ import annotations

from collections import defaultdict

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("worker", sa.Column("left_at", sa.Double(), nullable=True))
    op.add_column("block", sa.Column("cores_needed", sa.Integer(), nullable=False, server_default="1"))
    op.add_column("block", sa.Column("memory_needed_bytes", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("block", sa.Column("pinned_cores", sa.Text(), nullable=False, server_default=""))
    connection = op.get_bind()
    connection.execute(
        sa.text(
            "UPDATE block SET (cores_needed, memory_needed_bytes) = ("
            "SELECT coalesce(max(run.cores_needed), 1), coalesce(max(run.memory_needed_bytes), 0) FROM run "
            "WHERE run.experiment_id = block.experiment_id AND run.block = block.number)"
        )
    )
    pinned: dict[tuple[int, int], set[int]] = defaultdict(set)
    rows = connection.execute(
        sa.text("SELECT DISTINCT experiment_id, block, pinned_cores FROM run WHERE pinned_cores != ''")
    )
    for experiment_id, block, cores in rows:
        pinned[experiment_id, block] |= set(map(int, cores.split(",")))
    for (experiment_id, block), cores in pinned.items():
        connection.execute(
            sa.text("UPDATE block SET pinned_cores = :cores WHERE experiment_id = :experiment AND number = :block"),
            {"cores": ",".join(map(str, sorted(cores))), "experiment": experiment_id, "block": block},
        )
    with op.batch_alter_table("block") as table:
        for name in ("cores_needed", "memory_needed_bytes", "pinned_cores"):
            table.alter_column(name, server_default=None)


def downgrade() -> None:
    with op.batch_alter_table("block") as table:
        for name in ("pinned_cores", "memory_needed_bytes", "cores_needed"):
            table.drop_column(name)
    op.drop_column("worker", "left_at")
