"""the tables of version 0.1.0

Revision ID: 0026
Revises:
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic.op import create_index, create_table, drop_table
from alembic.op import f as named
from sqlalchemy import Column, text

revision = "0026"
down_revision = None
branch_labels = None
depends_on = None

ACTIVE = "state IN ('leased', 'running')"
TABLES = (  # in the order of their references
    "api_key", "experiment", "series", "worker", "block", "experiment_key", "experiment_tag", "pool", "required_label",
    "tuned", "webhook", "worker_key", "run", "webhook_delivery", "alert", "attempt", "run_event", "artifact",
    "output_line", "progress_point", "result", "step_times", "digest",
)  # fmt: skip


def key(table: str) -> tuple[Column[int], sa.PrimaryKeyConstraint]:
    """A number that the database gives to each row."""
    return Column("id", sa.Integer(), nullable=False), sa.PrimaryKeyConstraint("id", name=named(f"pk_{table}"))


def reference(table: str, column: str, target: str, ondelete: str | None = "CASCADE") -> sa.ForeignKeyConstraint:
    """The table's column names a row of another table. By default its row ends with that one."""
    name = named(f"fk_{table}_{column}_{target.partition('.')[0]}")
    return sa.ForeignKeyConstraint([column], [target], name=name, ondelete=ondelete)


def check(name: str, condition: str) -> sa.CheckConstraint:
    return sa.CheckConstraint(condition, name=named(f"ck_{name}"))


def doubles(*names: str) -> list[Column[float]]:
    """Numbers that may be missing."""
    return [Column(name, sa.Double()) for name in names]


def where(condition: str) -> dict[str, Any]:
    """Options of a partial index."""
    return {f"{dialect}_where": text(condition) for dialect in ("sqlite", "postgresql")}


def upgrade() -> None:
    create_table(
        "api_key",
        *key("api_key"),
        Column("name", sa.Text(), nullable=False),
        Column("scope", sa.String(length=20), nullable=False),
        Column("secret_sha256", sa.String(length=64), nullable=False),
        Column("created_at", sa.Double(), nullable=False),
        *doubles("expires_at", "last_used_at", "revoked_at"),
        check("api_key_scope", "scope IN ('read', 'submit', 'worker', 'admin')"),
    )
    create_table(
        "experiment",
        *key("experiment"),
        Column("name", sa.Text(), nullable=False),
        Column("notes", sa.Text(), server_default=text("''"), nullable=False),
        Column("request", sa.JSON(), nullable=False),
        Column("request_sha256", sa.String(length=64), nullable=False),
        Column("owner", sa.Text(), nullable=False),
        Column("idempotency_key", sa.String(length=200)),
        Column("runs", sa.Integer(), nullable=False),
        Column("created_at", sa.Double(), nullable=False),
        *doubles("started_at", "finished_at", "cancelled_at"),
        Column("undecided", sa.Boolean(), server_default=sa.false(), nullable=False),
        Column("rel_ci", sa.Double()),
        Column("stop_reason", sa.String(length=20)),
        Column("alerts_at", sa.Double()),
        Column("verdict", sa.JSON()),
        Column("verdict_at", sa.Double()),
        Column("extended", sa.Integer(), server_default=text("0"), nullable=False),
        sqlite_autoincrement=True,
    )
    create_index("ix_experiment_created_at", "experiment", ["created_at", "id"])
    create_index("ix_experiment_finished_at", "experiment", ["finished_at", "id"])
    create_index("ix_experiment_undecided", "experiment", ["id"], **where("undecided"))
    create_index("uq_experiment_idempotency", "experiment", ["owner", "idempotency_key"], unique=True)
    create_table(
        "series",
        *key("series"),
        Column("key", sa.String(length=64), nullable=False),
        Column("config", sa.JSON(), nullable=False),
        Column("machine", sa.JSON(), nullable=False),
        Column("node", sa.Text(), nullable=False),
        Column("runs", sa.Integer(), nullable=False),
        Column("last_at", sa.Double(), nullable=False),
        sa.UniqueConstraint("key", name=named("uq_series_key")),
        sqlite_autoincrement=True,
    )
    create_index("ix_series_last_at", "series", ["last_at", "id"])
    create_table(
        "worker",
        Column("worker_id", sa.Text(), nullable=False),
        Column("boot_id", sa.Text(), nullable=False),
        Column("former_boots", sa.JSON()),
        Column("machine_boot_id", sa.Text()),
        Column("spool_id", sa.Text()),
        Column("started_s", sa.Double()),
        Column("node", sa.Text(), nullable=False),
        Column("cores", sa.JSON(), nullable=False),
        Column("core_set", sa.Text(), nullable=False),
        Column("memory_bytes", sa.BigInteger(), nullable=False),
        Column("labels", sa.JSON(), nullable=False),
        Column("software", sa.JSON(), nullable=False),
        Column("topology", sa.JSON(), nullable=False),
        Column("measuring_peaks", sa.Boolean()),
        Column("registered_at", sa.Double(), nullable=False),
        Column("seen_at", sa.Double(), nullable=False),
        *doubles("ends_at", "left_at", "removed_at"),
        sa.PrimaryKeyConstraint("worker_id", name=named("pk_worker")),
    )
    create_index(named("ix_worker_node"), "worker", ["node"])
    create_table(
        "block",
        Column("experiment_id", sa.Integer(), nullable=False),
        Column("number", sa.Integer(), autoincrement=False, nullable=False),
        Column("node", sa.Text()),
        Column("core_set", sa.Text()),
        Column("cores_needed", sa.Integer(), nullable=False),
        Column("memory_needed_bytes", sa.BigInteger(), nullable=False),
        Column("pinned_cores", sa.Text(), nullable=False),
        reference("block", "experiment_id", "experiment.id"),
        sa.PrimaryKeyConstraint("experiment_id", "number", name=named("pk_block")),
    )
    create_table(
        "experiment_key",
        Column("experiment_id", sa.Integer(), nullable=False),
        Column("key_id", sa.Integer(), nullable=False),
        reference("experiment_key", "experiment_id", "experiment.id"),
        reference("experiment_key", "key_id", "api_key.id", ondelete=None),
        sa.PrimaryKeyConstraint("experiment_id", name=named("pk_experiment_key")),
    )
    create_table(
        "experiment_tag",
        Column("experiment_id", sa.Integer(), nullable=False),
        Column("tag", sa.Text(), nullable=False),
        reference("experiment_tag", "experiment_id", "experiment.id"),
        sa.PrimaryKeyConstraint("experiment_id", "tag", name=named("pk_experiment_tag")),
    )
    create_index("ix_experiment_tag_tag", "experiment_tag", ["tag", "experiment_id"])
    create_table(
        "pool",
        Column("name", sa.Text(), nullable=False),
        Column("key_id", sa.Integer()),
        Column("report", sa.JSON(), nullable=False),
        Column("seen_at", sa.Double(), nullable=False),
        Column("silent_at", sa.Double(), nullable=False),
        reference("pool", "key_id", "api_key.id", ondelete=None),
        sa.PrimaryKeyConstraint("name", name=named("pk_pool")),
    )
    create_table(
        "required_label",
        Column("experiment_id", sa.Integer(), nullable=False),
        Column("label", sa.Text(), nullable=False),
        reference("required_label", "experiment_id", "experiment.id"),
        sa.PrimaryKeyConstraint("experiment_id", "label", name=named("pk_required_label")),
    )
    create_table(
        "tuned",
        *key("tuned"),
        Column("key", sa.String(length=64), nullable=False),
        Column("problem_sha256", sa.String(length=64), nullable=False),
        Column("experiment_id", sa.Integer(), nullable=False),
        Column("confirmed_at", sa.Double(), nullable=False),
        Column("told", sa.JSON(), nullable=False),
        reference("tuned", "experiment_id", "experiment.id"),
        sa.UniqueConstraint("key", name=named("uq_tuned_key")),
        sqlite_autoincrement=True,
    )
    create_index(named("ix_tuned_problem_sha256"), "tuned", ["problem_sha256"])
    create_table(
        "webhook",
        *key("webhook"),
        Column("url", sa.Text(), nullable=False),
        Column("events", sa.JSON(), nullable=False),
        Column("secret", sa.String(length=64), nullable=False),
        Column("key_id", sa.Integer()),
        Column("created_at", sa.Double(), nullable=False),
        reference("webhook", "key_id", "api_key.id", ondelete=None),
        sqlite_autoincrement=True,
    )
    create_table(
        "worker_key",
        Column("worker_id", sa.Text(), nullable=False),
        Column("key_id", sa.Integer(), nullable=False),
        reference("worker_key", "key_id", "api_key.id", ondelete=None),
        reference("worker_key", "worker_id", "worker.worker_id", ondelete=None),
        sa.PrimaryKeyConstraint("worker_id", name=named("pk_worker_key")),
    )
    create_table(
        "run",
        *key("run"),
        Column("experiment_id", sa.Integer(), nullable=False),
        Column("position", sa.Integer(), nullable=False),
        Column("block", sa.Integer(), nullable=False),
        Column("repetition", sa.Integer(), nullable=False),
        Column("variant", sa.JSON(), nullable=False),
        Column("spec", sa.JSON(), nullable=False),
        Column("shape", sa.String(length=64), nullable=False),
        Column("rank", sa.Integer(), nullable=False),
        Column("cores_needed", sa.Integer(), nullable=False),
        Column("pinned_cores", sa.Text(), nullable=False),
        Column("memory_needed_bytes", sa.BigInteger(), nullable=False),
        Column("timeout_s", sa.Double(), nullable=False),
        Column("role", sa.String(length=10)),
        Column("trace", sa.Boolean(), server_default=sa.false(), nullable=False),
        Column("purpose", sa.String(length=20), server_default="timing", nullable=False),
        Column("state", sa.String(length=20), nullable=False),
        Column("attempts", sa.Integer(), nullable=False),
        Column("losses", sa.Integer(), nullable=False),
        Column("created_at", sa.Double(), nullable=False),
        Column("queued_at", sa.Double(), nullable=False),
        *doubles("started_at", "cancel_requested_at", "finished_at"),
        Column("error", sa.JSON()),
        Column("node", sa.Text()),
        Column("environment_sha256", sa.String(length=64)),
        Column("phase_s", sa.JSON()),
        Column("flagged_steps", sa.Integer()),
        *doubles("median_step_s", "tokens_per_s", "final_loss"),
        Column("series_id", sa.Integer()),
        *doubles(
            *(f"node_{part}_s" for part in ("delivering", "claiming", "starting", "planning", "compiling")),
            *(f"node_{part}_s" for part in ("preparing", "warmup", "timed", "finishing")),
        ),
        check("run_finished", "(finished_at IS NULL) = (state IN ('queued', 'leased', 'running'))"),
        check(
            "run_state", "state IN ('queued', 'leased', 'running', 'succeeded', 'failed', 'cancelled', 'quarantined')"
        ),
        sa.ForeignKeyConstraint(
            ["experiment_id", "block"], ["block.experiment_id", "block.number"], name="fk_run_block", ondelete="CASCADE"
        ),
        reference("run", "experiment_id", "experiment.id"),
        sqlite_autoincrement=True,
    )
    create_index("ix_run_created_at", "run", ["created_at", "id"])
    create_index("ix_run_experiment", "run", ["experiment_id", "id"])
    create_index("ix_run_experiment_flagged", "run", ["experiment_id"], **where("flagged_steps > 0"))
    create_index("ix_run_experiment_state", "run", ["experiment_id", "state", "id"])
    create_index("ix_run_finished_at", "run", ["finished_at", "id", "state"])
    create_index("ix_run_flagged", "run", ["id"], **where("flagged_steps > 0"))
    create_index("ix_run_median_step_s", "run", ["median_step_s", "id"])
    create_index("ix_run_node", "run", ["node", "id"])
    create_index("ix_run_queue", "run", ["state", "rank", "id"])
    create_index("ix_run_queued_at", "run", ["queued_at"], **where("state = 'queued'"))
    create_index("ix_run_series", "run", ["series_id", "finished_at", "id"])
    create_index("ix_run_shape", "run", ["shape"])
    create_index("ix_run_started_at", "run", ["started_at", "id"])
    create_index("ix_run_state", "run", ["state", "id"])
    create_index("uq_run_position", "run", ["experiment_id", "position"], unique=True)
    create_table(
        "webhook_delivery",
        *key("webhook_delivery"),
        Column("webhook_id", sa.Integer(), nullable=False),
        Column("event", sa.String(length=20), nullable=False),
        Column("body", sa.Text(), nullable=False),
        Column("created_at", sa.Double(), nullable=False),
        Column("next_at", sa.Double()),
        Column("tries", sa.Integer(), nullable=False),
        Column("delivered_at", sa.Double()),
        Column("status", sa.Integer()),
        Column("error", sa.Text()),
        reference("webhook_delivery", "webhook_id", "webhook.id"),
        sqlite_autoincrement=True,
    )
    create_index("ix_webhook_delivery_waiting", "webhook_delivery", ["next_at", "id"], **where("next_at IS NOT NULL"))
    create_index("ix_webhook_delivery_webhook", "webhook_delivery", ["webhook_id", "id"])
    create_table(
        "alert",
        *key("alert"),
        Column("run_id", sa.Integer(), nullable=False),
        Column("state", sa.String(length=20), nullable=False),
        Column("ratio", sa.Double(), nullable=False),
        Column("reason", sa.Text(), nullable=False),
        Column("confirming_experiment_id", sa.Integer()),
        Column("raised_at", sa.Double(), nullable=False),
        Column("changed_at", sa.Double(), nullable=False),
        check("alert_state", "state IN ('suspected', 'confirming', 'confirmed', 'dismissed')"),
        reference("alert", "confirming_experiment_id", "experiment.id", ondelete="SET NULL"),
        reference("alert", "run_id", "run.id"),
        sa.UniqueConstraint("run_id", name=named("uq_alert_run_id")),
        sqlite_autoincrement=True,
    )
    create_table(
        "attempt",
        *key("attempt"),
        Column("run_id", sa.Integer(), nullable=False),
        Column("attempt_no", sa.Integer(), nullable=False),
        Column("worker_id", sa.Text(), nullable=False),
        Column("boot_id", sa.Text(), nullable=False),
        Column("node", sa.Text(), nullable=False),
        Column("core_set", sa.Text(), nullable=False),
        Column("purpose", sa.String(length=20), server_default="timing", nullable=False),
        Column("state", sa.String(length=20), nullable=False),
        Column("claimed_at", sa.Double(), nullable=False),
        Column("started_at", sa.Double()),
        Column("expires_at", sa.Double(), nullable=False),
        Column("deadline_at", sa.Double(), nullable=False),
        Column("finished_at", sa.Double()),
        Column("progress", sa.JSON()),
        Column("error", sa.JSON()),
        check("attempt_finished", "(finished_at IS NULL) = (state IN ('leased', 'running'))"),
        check(
            "attempt_state", "state IN ('leased', 'running', 'succeeded', 'failed', 'cancelled', 'lost', 'superseded')"
        ),
        reference("attempt", "run_id", "run.id"),
        reference("attempt", "worker_id", "worker.worker_id", ondelete=None),
        sqlite_autoincrement=True,
    )
    create_index("ix_attempt_active_worker", "attempt", ["worker_id"], **where(ACTIVE))
    create_index("ix_attempt_deadline_at", "attempt", ["deadline_at"], **where(ACTIVE))
    create_index("ix_attempt_expires_at", "attempt", ["expires_at"], **where(ACTIVE))
    create_index("ix_attempt_worker", "attempt", ["worker_id", "id"])
    create_index("uq_attempt_active_cores", "attempt", ["node", "core_set"], unique=True, **where(ACTIVE))
    create_index("uq_attempt_active_run", "attempt", ["run_id"], unique=True, **where(ACTIVE))
    create_index("uq_attempt_no", "attempt", ["run_id", "attempt_no"], unique=True)
    create_table(
        "run_event",
        *key("run_event"),
        Column("run_id", sa.Integer(), nullable=False),
        Column("experiment_id", sa.Integer(), nullable=False),
        Column("at", sa.Double(), nullable=False),
        Column("verb", sa.String(length=20), nullable=False),
        Column("state", sa.String(length=20), nullable=False),
        Column("attempt_no", sa.Integer()),
        Column("attempt_state", sa.String(length=20)),
        Column("actor", sa.Text(), nullable=False),
        Column("reason", sa.Text()),
        reference("run_event", "experiment_id", "experiment.id"),
        reference("run_event", "run_id", "run.id"),
        sqlite_autoincrement=True,
    )
    create_index("ix_run_event_experiment", "run_event", ["experiment_id", "id"])
    create_index("ix_run_event_run", "run_event", ["run_id", "id"])
    create_table(
        "artifact",
        Column("attempt_id", sa.Integer(), nullable=False),
        Column("name", sa.Text(), nullable=False),
        Column("sha256", sa.String(length=64), nullable=False),
        Column("media_type", sa.Text(), nullable=False),
        Column("size_bytes", sa.BigInteger(), nullable=False),
        Column("received_at", sa.Double(), nullable=False),
        reference("artifact", "attempt_id", "attempt.id"),
        sa.PrimaryKeyConstraint("attempt_id", "name", name=named("pk_artifact")),
    )
    create_index(named("ix_artifact_sha256"), "artifact", ["sha256"])
    create_table(
        "output_line",
        *key("output_line"),
        Column("attempt_id", sa.Integer(), nullable=False),
        Column("run_id", sa.Integer(), nullable=False),
        Column("line_no", sa.Integer(), nullable=False),
        Column("at", sa.Double(), nullable=False),
        Column("text", sa.Text(), nullable=False),
        reference("output_line", "attempt_id", "attempt.id"),
        reference("output_line", "run_id", "run.id"),
    )
    create_index("ix_output_line_run", "output_line", ["run_id", "id"])
    create_index("uq_output_line_no", "output_line", ["attempt_id", "line_no"], unique=True)
    create_table(
        "progress_point",
        Column("attempt_id", sa.Integer(), nullable=False),
        Column("step", sa.BigInteger(), autoincrement=False, nullable=False),
        Column("run_id", sa.Integer(), nullable=False),
        Column("at", sa.Double(), nullable=False),
        *doubles("loss", "tokens_per_s"),
        reference("progress_point", "attempt_id", "attempt.id"),
        reference("progress_point", "run_id", "run.id"),
        sa.PrimaryKeyConstraint("attempt_id", "step", name=named("pk_progress_point")),
    )
    create_index("ix_progress_point_run", "progress_point", ["run_id", "attempt_id", "step"])
    create_table(
        "result",
        Column("attempt_id", sa.Integer(), nullable=False),
        Column("run_id", sa.Integer(), nullable=False),
        Column("outcome", sa.String(length=20), nullable=False),
        Column("sha256", sa.String(length=64), nullable=False),
        Column("payload", sa.LargeBinary(), nullable=False),
        Column("canonical", sa.Boolean(), nullable=False),
        Column("received_at", sa.Double(), nullable=False),
        check("result_outcome", "outcome IN ('succeeded', 'failed', 'cancelled')"),
        reference("result", "attempt_id", "attempt.id"),
        reference("result", "run_id", "run.id"),
        sa.PrimaryKeyConstraint("attempt_id", name=named("pk_result")),
    )
    create_index("ix_result_run", "result", ["run_id"])
    create_index("uq_result_canonical", "result", ["run_id"], unique=True, **where("canonical"))
    create_table(
        "step_times",
        Column("attempt_id", sa.Integer(), nullable=False),
        Column("last", sa.BigInteger(), autoincrement=False, nullable=False),
        Column("run_id", sa.Integer(), nullable=False),
        Column("first", sa.BigInteger(), nullable=False),
        Column("step_s", sa.LargeBinary(), nullable=False),
        Column("loss", sa.LargeBinary(), nullable=False),
        Column("accuracy", sa.LargeBinary()),
        reference("step_times", "attempt_id", "attempt.id"),
        reference("step_times", "run_id", "run.id"),
        sa.PrimaryKeyConstraint("attempt_id", "last", name=named("pk_step_times")),
    )
    create_index("ix_step_times_run", "step_times", ["run_id", "attempt_id", "last"])
    create_table(
        "digest",
        Column("attempt_id", sa.Integer(), nullable=False),
        Column("facts", sa.LargeBinary(), nullable=False),
        Column("measured", sa.LargeBinary(), nullable=False),
        Column("causes", sa.LargeBinary(), nullable=False),
        reference("digest", "attempt_id", "result.attempt_id"),
        sa.PrimaryKeyConstraint("attempt_id", name=named("pk_digest")),
    )


def downgrade() -> None:
    for table in reversed(TABLES):
        drop_table(table)
