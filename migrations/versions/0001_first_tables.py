"""first tables"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:

    op.create_table(
        "experiment",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("request", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("request_sha256", sa.String(length=64), nullable=False),
        sa.Column("idempotency_key", sa.String(length=200), nullable=True),
        sa.Column("runs", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("cancelled_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_experiment")),
        sa.UniqueConstraint("idempotency_key", name=op.f("uq_experiment_idempotency_key")),
    )
    op.create_table(
        "worker",
        sa.Column("worker_id", sa.Text(), nullable=False),
        sa.Column("boot_id", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("cores", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("core_set", sa.Text(), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("labels", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("software", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("topology", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("registered_at", sa.Double(), nullable=False),
        sa.Column("seen_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("worker_id", name=op.f("pk_worker")),
    )
    with op.batch_alter_table("worker", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_worker_node"), ["node"], unique=False)

    op.create_table(
        "block",
        sa.Column("experiment_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("node", sa.Text(), nullable=True),
        sa.Column("core_set", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiment.id"], name=op.f("fk_block_experiment_id_experiment"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("experiment_id", "number", name=op.f("pk_block")),
    )
    op.create_table(
        "required_label",
        sa.Column("experiment_id", sa.Integer(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["experiment_id"],
            ["experiment.id"],
            name=op.f("fk_required_label_experiment_id_experiment"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("experiment_id", "label", name=op.f("pk_required_label")),
    )
    op.create_table(
        "run",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("experiment_id", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("block", sa.Integer(), nullable=False),
        sa.Column("repetition", sa.Integer(), nullable=False),
        sa.Column("variant", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("spec", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("shape", sa.String(length=64), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("cores_needed", sa.Integer(), nullable=False),
        sa.Column("pinned_cores", sa.Text(), nullable=False),
        sa.Column("memory_needed_bytes", sa.BigInteger(), nullable=False),
        sa.Column("timeout_s", sa.Double(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("losses", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("queued_at", sa.Double(), nullable=False),
        sa.Column("cancel_requested_at", sa.Double(), nullable=True),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.Column("error", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("median_step_s", sa.Double(), nullable=True),
        sa.Column("tokens_per_s", sa.Double(), nullable=True),
        sa.Column("final_loss", sa.Double(), nullable=True),
        sa.CheckConstraint(
            "(finished_at IS NULL) = (state IN ('queued', 'leased', 'running'))", name=op.f("ck_run_finished")
        ),
        sa.CheckConstraint(
            "state IN ('queued', 'leased', 'running', 'succeeded', 'failed', 'cancelled', 'quarantined')",
            name=op.f("ck_run_state"),
        ),
        sa.ForeignKeyConstraint(
            ["experiment_id", "block"], ["block.experiment_id", "block.number"], name="fk_run_block", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["experiment_id"], ["experiment.id"], name=op.f("fk_run_experiment_id_experiment"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run")),
    )
    with op.batch_alter_table("run", schema=None) as batch_op:
        batch_op.create_index("ix_run_experiment", ["experiment_id", "id"], unique=False)
        batch_op.create_index("ix_run_queue", ["state", "rank", "id"], unique=False)
        batch_op.create_index(
            "ix_run_queued_at",
            ["queued_at"],
            unique=False,
            sqlite_where=sa.text("state = 'queued'"),
            postgresql_where=sa.text("state = 'queued'"),
        )
        batch_op.create_index("ix_run_shape", ["shape"], unique=False)
        batch_op.create_index("ix_run_state", ["state", "id"], unique=False)
        batch_op.create_index("uq_run_position", ["experiment_id", "position"], unique=True)

    op.create_table(
        "attempt",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("attempt_no", sa.Integer(), nullable=False),
        sa.Column("worker_id", sa.Text(), nullable=False),
        sa.Column("boot_id", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("core_set", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=20), nullable=False),
        sa.Column("claimed_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.Column("deadline_at", sa.Double(), nullable=False),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.Column("progress", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("error", sa.JSON(none_as_null=True), nullable=True),
        sa.CheckConstraint(
            "(finished_at IS NULL) = (state IN ('leased', 'running'))", name=op.f("ck_attempt_finished")
        ),
        sa.CheckConstraint(
            "state IN ('leased', 'running', 'succeeded', 'failed', 'cancelled', 'lost', 'superseded')",
            name=op.f("ck_attempt_state"),
        ),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_attempt_run_id_run"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["worker_id"], ["worker.worker_id"], name=op.f("fk_attempt_worker_id_worker")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_attempt")),
    )
    with op.batch_alter_table("attempt", schema=None) as batch_op:
        batch_op.create_index(
            "ix_attempt_active_worker",
            ["worker_id"],
            unique=False,
            sqlite_where=sa.text("state IN ('leased', 'running')"),
            postgresql_where=sa.text("state IN ('leased', 'running')"),
        )
        batch_op.create_index(
            "ix_attempt_deadline_at",
            ["deadline_at"],
            unique=False,
            sqlite_where=sa.text("state IN ('leased', 'running')"),
            postgresql_where=sa.text("state IN ('leased', 'running')"),
        )
        batch_op.create_index(
            "ix_attempt_expires_at",
            ["expires_at"],
            unique=False,
            sqlite_where=sa.text("state IN ('leased', 'running')"),
            postgresql_where=sa.text("state IN ('leased', 'running')"),
        )
        batch_op.create_index(
            "uq_attempt_active_cores",
            ["node", "core_set"],
            unique=True,
            sqlite_where=sa.text("state IN ('leased', 'running')"),
            postgresql_where=sa.text("state IN ('leased', 'running')"),
        )
        batch_op.create_index(
            "uq_attempt_active_run",
            ["run_id"],
            unique=True,
            sqlite_where=sa.text("state IN ('leased', 'running')"),
            postgresql_where=sa.text("state IN ('leased', 'running')"),
        )
        batch_op.create_index("uq_attempt_no", ["run_id", "attempt_no"], unique=True)

    op.create_table(
        "result",
        sa.Column("attempt_id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("outcome", sa.String(length=20), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.Column("canonical", sa.Boolean(), nullable=False),
        sa.Column("received_at", sa.Double(), nullable=False),
        sa.CheckConstraint("outcome IN ('succeeded', 'failed', 'cancelled')", name=op.f("ck_result_outcome")),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempt.id"], name=op.f("fk_result_attempt_id_attempt"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_result_run_id_run"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("attempt_id", name=op.f("pk_result")),
    )
    with op.batch_alter_table("result", schema=None) as batch_op:
        batch_op.create_index("ix_result_run", ["run_id"], unique=False)
        batch_op.create_index(
            "uq_result_canonical",
            ["run_id"],
            unique=True,
            sqlite_where=sa.text("canonical"),
            postgresql_where=sa.text("canonical"),
        )


def downgrade() -> None:

    with op.batch_alter_table("result", schema=None) as batch_op:
        batch_op.drop_index(
            "uq_result_canonical", sqlite_where=sa.text("canonical"), postgresql_where=sa.text("canonical")
        )
        batch_op.drop_index("ix_result_run")

    op.drop_table("result")
    with op.batch_alter_table("attempt", schema=None) as batch_op:
        batch_op.drop_index("uq_attempt_no")
        batch_op.drop_index(
            "uq_attempt_active_run",
            sqlite_where=sa.text("state IN ('leased', 'running')"),
            postgresql_where=sa.text("state IN ('leased', 'running')"),
        )
        batch_op.drop_index(
            "uq_attempt_active_cores",
            sqlite_where=sa.text("state IN ('leased', 'running')"),
            postgresql_where=sa.text("state IN ('leased', 'running')"),
        )
        batch_op.drop_index(
            "ix_attempt_expires_at",
            sqlite_where=sa.text("state IN ('leased', 'running')"),
            postgresql_where=sa.text("state IN ('leased', 'running')"),
        )
        batch_op.drop_index(
            "ix_attempt_deadline_at",
            sqlite_where=sa.text("state IN ('leased', 'running')"),
            postgresql_where=sa.text("state IN ('leased', 'running')"),
        )
        batch_op.drop_index(
            "ix_attempt_active_worker",
            sqlite_where=sa.text("state IN ('leased', 'running')"),
            postgresql_where=sa.text("state IN ('leased', 'running')"),
        )

    op.drop_table("attempt")
    with op.batch_alter_table("run", schema=None) as batch_op:
        batch_op.drop_index("uq_run_position")
        batch_op.drop_index("ix_run_state")
        batch_op.drop_index("ix_run_shape")
        batch_op.drop_index(
            "ix_run_queued_at", sqlite_where=sa.text("state = 'queued'"), postgresql_where=sa.text("state = 'queued'")
        )
        batch_op.drop_index("ix_run_queue")
        batch_op.drop_index("ix_run_experiment")

    op.drop_table("run")
    op.drop_table("required_label")
    op.drop_table("block")
    with op.batch_alter_table("worker", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_worker_node"))

    op.drop_table("worker")
    op.drop_table("experiment")
