"""the tables of version 0.1.0

Revision ID: 0030
Revises:
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic.op import create_index, create_table, drop_table
from alembic.op import f as named
from sqlalchemy import Column, text

revision = "0030"
down_revision = None
branch_labels = None
depends_on = None

Type = sa.types.TypeEngine[Any] | type[sa.types.TypeEngine[Any]]

WHOLE, BIG, REAL, FLAG, TEXT = sa.Integer, sa.BigInteger, sa.Double, sa.Boolean, sa.Text
WORD, HASH, JSON, BYTES = sa.String(20), sa.String(64), sa.JSON, sa.LargeBinary
ACTIVE = "state IN ('leased', 'running')"
TABLES = (  # in the order of their references
    "api_key", "experiment", "series", "worker", "block", "experiment_key", "experiment_tag", "pool", "required_label",
    "threshold", "tuned", "webhook", "worker_key", "run", "webhook_delivery", "alert", "attempt", "run_event",
    "artifact", "output_line", "progress_point", "result", "step_times", "digest",
)  # fmt: skip


def needed(**types: Type) -> list[Column[Any]]:
    """Columns that every row has."""
    return [Column(name, kind, nullable=False) for name, kind in types.items()]


def optional(**types: Type) -> list[Column[Any]]:
    """Columns that may be null."""
    return [Column(name, kind) for name, kind in types.items()]


def preset(name: str, kind: Type, value: str | sa.TextClause | sa.False_) -> Column[Any]:
    """A column that has this value where none is given."""
    return Column(name, kind, server_default=value, nullable=False)


def key(table: str) -> tuple[Column[int], sa.PrimaryKeyConstraint]:
    """A number that the database gives to each row."""
    return Column("id", sa.Integer(), nullable=False), primary(table, "id")


def primary(table: str, *columns: str) -> sa.PrimaryKeyConstraint:
    return sa.PrimaryKeyConstraint(*columns, name=named(f"pk_{table}"))


def unique(table: str, *columns: str) -> sa.UniqueConstraint:
    return sa.UniqueConstraint(*columns, name=named(f"uq_{table}_{'_'.join(columns)}"))


def reference(table: str, column: str, target: str, ondelete: str | None = "CASCADE") -> sa.ForeignKeyConstraint:
    """The table's column names a row of another table. By default its row ends with that one."""
    name = named(f"fk_{table}_{column}_{target.partition('.')[0]}")
    return sa.ForeignKeyConstraint([column], [target], name=name, ondelete=ondelete)


def check(name: str, condition: str) -> sa.CheckConstraint:
    return sa.CheckConstraint(condition, name=named(f"ck_{name}"))


def index(name: str, table: str, *columns: str | sa.TextClause, where: str = "", unique: bool = False) -> None:
    """An index; `where`: of these rows alone."""
    dialects = ("sqlite", "postgresql") if where else ()
    options: dict[str, Any] = {f"{dialect}_where": text(where) for dialect in dialects}
    create_index(named(name), table, list(columns), unique=unique, **options)


def upgrade() -> None:
    create_table(
        "api_key",
        *key("api_key"),
        *needed(name=TEXT, scope=WORD, secret_sha256=HASH, created_at=REAL),
        *optional(expires_at=REAL, last_used_at=REAL, revoked_at=REAL, group_name=TEXT),
        check("api_key_scope", "scope IN ('read', 'submit', 'worker', 'admin')"),
    )
    create_table(
        "experiment",
        *key("experiment"),
        *needed(name=TEXT),
        preset("notes", TEXT, text("''")),
        *needed(request=JSON, request_sha256=HASH, owner=TEXT),
        *optional(idempotency_key=sa.String(200)),
        *needed(runs=WHOLE, created_at=REAL),
        *optional(started_at=REAL, finished_at=REAL, cancelled_at=REAL),
        preset("undecided", FLAG, sa.false()),
        *optional(rel_ci=REAL, stop_reason=WORD, alerts_at=REAL, verdict=JSON, verdict_at=REAL),
        preset("extended", WHOLE, text("0")),
        *optional(commit_id=TEXT, branch=TEXT, dirty=FLAG, committed_at=REAL, version=TEXT, group_name=TEXT),
        sqlite_autoincrement=True,
    )
    index("ix_experiment_created_at", "experiment", "created_at", "id")
    index("ix_experiment_finished_at", "experiment", "finished_at", "id")
    index("ix_experiment_group_name", "experiment", "group_name", "id")
    index("ix_experiment_name", "experiment", "name", "id")
    index("ix_experiment_owner", "experiment", "owner", "id")
    index("ix_experiment_runs", "experiment", "runs", "id")
    index("ix_experiment_undecided", "experiment", "id", where="undecided")
    index("uq_experiment_idempotency", "experiment", "owner", "idempotency_key", unique=True)
    create_table(
        "series",
        *key("series"),
        *needed(key=HASH, config=JSON, machine=JSON, node=TEXT, runs=WHOLE, last_at=REAL),
        unique("series", "key"),
        sqlite_autoincrement=True,
    )
    index("ix_series_last_at", "series", "last_at", "id")
    create_table(
        "worker",
        *needed(worker_id=TEXT, boot_id=TEXT),
        *optional(former_boots=JSON, machine_boot_id=TEXT, spool_id=TEXT, started_s=REAL),
        *needed(node=TEXT, cores=JSON, core_set=TEXT, memory_bytes=BIG, labels=JSON, software=JSON, topology=JSON),
        *optional(measuring_peaks=FLAG),
        *needed(registered_at=REAL, seen_at=REAL),
        *optional(ends_at=REAL, left_at=REAL, removed_at=REAL),
        primary("worker", "worker_id"),
    )
    index("ix_worker_node", "worker", "node")
    create_table(
        "block",
        *needed(experiment_id=WHOLE, number=WHOLE),
        *optional(node=TEXT, core_set=TEXT),
        *needed(cores_needed=WHOLE, memory_needed_bytes=BIG, pinned_cores=TEXT),
        reference("block", "experiment_id", "experiment.id"),
        primary("block", "experiment_id", "number"),
    )
    create_table(
        "experiment_key",
        *needed(experiment_id=WHOLE, key_id=WHOLE),
        reference("experiment_key", "experiment_id", "experiment.id"),
        reference("experiment_key", "key_id", "api_key.id", ondelete=None),
        primary("experiment_key", "experiment_id"),
    )
    create_table(
        "experiment_tag",
        *needed(experiment_id=WHOLE, tag=TEXT),
        reference("experiment_tag", "experiment_id", "experiment.id"),
        primary("experiment_tag", "experiment_id", "tag"),
    )
    index("ix_experiment_tag_tag", "experiment_tag", "tag", "experiment_id")
    create_table(
        "pool",
        *needed(name=TEXT),
        *optional(key_id=WHOLE),
        *needed(report=JSON, seen_at=REAL, silent_at=REAL),
        reference("pool", "key_id", "api_key.id", ondelete=None),
        primary("pool", "name"),
    )
    create_table(
        "required_label",
        *needed(experiment_id=WHOLE, label=TEXT),
        reference("required_label", "experiment_id", "experiment.id"),
        primary("required_label", "experiment_id", "label"),
    )
    create_table(
        "threshold",
        *needed(series_id=WHOLE, reference_s=REAL),
        *optional(lower=REAL, upper=REAL),
        *needed(set_at=REAL, set_by=TEXT),
        reference("threshold", "series_id", "series.id"),
        primary("threshold", "series_id"),
    )
    create_table(
        "tuned",
        *key("tuned"),
        *needed(key=HASH, problem_sha256=HASH, experiment_id=WHOLE, confirmed_at=REAL, told=JSON),
        reference("tuned", "experiment_id", "experiment.id"),
        unique("tuned", "key"),
        sqlite_autoincrement=True,
    )
    index("ix_tuned_problem_sha256", "tuned", "problem_sha256")
    create_table(
        "webhook",
        *key("webhook"),
        *needed(url=TEXT, events=JSON, secret=HASH),
        *optional(key_id=WHOLE),
        *needed(created_at=REAL),
        reference("webhook", "key_id", "api_key.id", ondelete=None),
        sqlite_autoincrement=True,
    )
    create_table(
        "worker_key",
        *needed(worker_id=TEXT, key_id=WHOLE),
        reference("worker_key", "key_id", "api_key.id", ondelete=None),
        reference("worker_key", "worker_id", "worker.worker_id", ondelete=None),
        primary("worker_key", "worker_id"),
    )
    create_table(
        "run",
        *key("run"),
        *needed(experiment_id=WHOLE, position=WHOLE, block=WHOLE, repetition=WHOLE, variant=JSON, spec=JSON),
        *needed(shape=HASH, rank=WHOLE, cores_needed=WHOLE, pinned_cores=TEXT, memory_needed_bytes=BIG, timeout_s=REAL),
        *optional(role=sa.String(10)),
        preset("trace", FLAG, sa.false()),
        preset("purpose", WORD, "timing"),
        *needed(state=WORD, attempts=WHOLE, losses=WHOLE, created_at=REAL, queued_at=REAL),
        *optional(started_at=REAL, cancel_requested_at=REAL, finished_at=REAL, error=JSON),
        *optional(node=TEXT, environment_sha256=HASH, phase_s=JSON, flagged_steps=WHOLE),
        *optional(median_step_s=REAL, tokens_per_s=REAL, final_loss=REAL, series_id=WHOLE),
        *optional(node_delivering_s=REAL, node_claiming_s=REAL, node_starting_s=REAL, node_planning_s=REAL),
        *optional(node_compiling_s=REAL, node_preparing_s=REAL, node_warmup_s=REAL, node_timed_s=REAL),
        *optional(node_finishing_s=REAL, trainer_commit=TEXT, trainer_branch=TEXT, trainer_dirty=FLAG),
        *optional(trainer_committed_at=REAL, trainer_version=TEXT),
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
    index("ix_run_created_at", "run", "created_at", "id")
    index("ix_run_duration_s", "run", text("(finished_at - started_at)"), "id")
    index("ix_run_experiment", "run", "experiment_id", "id")
    index("ix_run_experiment_flagged", "run", "experiment_id", where="flagged_steps > 0")
    index("ix_run_experiment_state", "run", "experiment_id", "state", "id")
    index("ix_run_final_loss", "run", "final_loss", "id")
    index("ix_run_finished_at", "run", "finished_at", "id", "state")
    index("ix_run_flagged", "run", "id", where="flagged_steps > 0")
    index("ix_run_flagged_steps", "run", "flagged_steps", "id")
    index("ix_run_median_step_s", "run", "median_step_s", "id")
    index("ix_run_node", "run", "node", "id")
    index("ix_run_queue", "run", "state", "rank", "id")
    index("ix_run_queued_at", "run", "queued_at", where="state = 'queued'")
    index("ix_run_series", "run", "series_id", "finished_at", "id")
    index("ix_run_shape", "run", "shape")
    index("ix_run_started_at", "run", "started_at", "id")
    index("ix_run_state", "run", "state", "id")
    index("ix_run_tokens_per_s", "run", "tokens_per_s", "id")
    index("uq_run_position", "run", "experiment_id", "position", unique=True)
    create_table(
        "webhook_delivery",
        *key("webhook_delivery"),
        *needed(webhook_id=WHOLE, event=WORD, body=TEXT, created_at=REAL),
        *optional(next_at=REAL),
        *needed(tries=WHOLE),
        *optional(delivered_at=REAL, status=WHOLE, error=TEXT),
        reference("webhook_delivery", "webhook_id", "webhook.id"),
        sqlite_autoincrement=True,
    )
    index("ix_webhook_delivery_waiting", "webhook_delivery", "next_at", "id", where="next_at IS NOT NULL")
    index("ix_webhook_delivery_webhook", "webhook_delivery", "webhook_id", "id")
    create_table(
        "alert",
        *key("alert"),
        *needed(run_id=WHOLE, state=WORD, ratio=REAL, reason=TEXT),
        *optional(confirming_experiment_id=WHOLE),
        *needed(raised_at=REAL, changed_at=REAL),
        preset("kind", WORD, "change"),
        check("alert_kind", "kind IN ('change', 'threshold')"),
        check(
            "alert_state", "state IN ('suspected', 'confirming', 'confirmed', 'dismissed', 'above', 'below', 'within')"
        ),
        reference("alert", "confirming_experiment_id", "experiment.id", ondelete="SET NULL"),
        reference("alert", "run_id", "run.id"),
        unique("alert", "run_id", "kind"),
        sqlite_autoincrement=True,
    )
    create_table(
        "attempt",
        *key("attempt"),
        *needed(run_id=WHOLE, attempt_no=WHOLE, worker_id=TEXT, boot_id=TEXT, node=TEXT, core_set=TEXT),
        preset("purpose", WORD, "timing"),
        *needed(state=WORD, claimed_at=REAL),
        *optional(started_at=REAL),
        *needed(expires_at=REAL, deadline_at=REAL),
        *optional(finished_at=REAL, progress=JSON, error=JSON),
        check("attempt_finished", f"(finished_at IS NULL) = ({ACTIVE})"),
        check(
            "attempt_state", "state IN ('leased', 'running', 'succeeded', 'failed', 'cancelled', 'lost', 'superseded')"
        ),
        reference("attempt", "run_id", "run.id"),
        reference("attempt", "worker_id", "worker.worker_id", ondelete=None),
        sqlite_autoincrement=True,
    )
    index("ix_attempt_active_worker", "attempt", "worker_id", where=ACTIVE)
    index("ix_attempt_deadline_at", "attempt", "deadline_at", where=ACTIVE)
    index("ix_attempt_expires_at", "attempt", "expires_at", where=ACTIVE)
    index("ix_attempt_worker", "attempt", "worker_id", "id")
    index("uq_attempt_active_cores", "attempt", "node", "core_set", where=ACTIVE, unique=True)
    index("uq_attempt_active_run", "attempt", "run_id", where=ACTIVE, unique=True)
    index("uq_attempt_no", "attempt", "run_id", "attempt_no", unique=True)
    create_table(
        "run_event",
        *key("run_event"),
        *needed(run_id=WHOLE, experiment_id=WHOLE, at=REAL, verb=WORD, state=WORD),
        *optional(attempt_no=WHOLE, attempt_state=WORD),
        *needed(actor=TEXT),
        *optional(reason=TEXT),
        reference("run_event", "experiment_id", "experiment.id"),
        reference("run_event", "run_id", "run.id"),
        sqlite_autoincrement=True,
    )
    index("ix_run_event_experiment", "run_event", "experiment_id", "id")
    index("ix_run_event_run", "run_event", "run_id", "id")
    create_table(
        "artifact",
        *needed(attempt_id=WHOLE, name=TEXT, sha256=HASH, media_type=TEXT, size_bytes=BIG, received_at=REAL),
        reference("artifact", "attempt_id", "attempt.id"),
        primary("artifact", "attempt_id", "name"),
    )
    index("ix_artifact_sha256", "artifact", "sha256")
    create_table(
        "output_line",
        *key("output_line"),
        *needed(attempt_id=WHOLE, run_id=WHOLE, line_no=WHOLE, at=REAL, text=TEXT),
        reference("output_line", "attempt_id", "attempt.id"),
        reference("output_line", "run_id", "run.id"),
    )
    index("ix_output_line_run", "output_line", "run_id", "id")
    index("uq_output_line_no", "output_line", "attempt_id", "line_no", unique=True)
    create_table(
        "progress_point",
        *needed(attempt_id=WHOLE, step=BIG, run_id=WHOLE, at=REAL),
        *optional(loss=REAL, tokens_per_s=REAL),
        reference("progress_point", "attempt_id", "attempt.id"),
        reference("progress_point", "run_id", "run.id"),
        primary("progress_point", "attempt_id", "step"),
    )
    index("ix_progress_point_run", "progress_point", "run_id", "attempt_id", "step")
    create_table(
        "result",
        *needed(attempt_id=WHOLE, run_id=WHOLE, outcome=WORD, sha256=HASH, payload=BYTES, canonical=FLAG),
        *needed(received_at=REAL),
        check("result_outcome", "outcome IN ('succeeded', 'failed', 'cancelled')"),
        reference("result", "attempt_id", "attempt.id"),
        reference("result", "run_id", "run.id"),
        primary("result", "attempt_id"),
    )
    index("ix_result_run", "result", "run_id")
    index("uq_result_canonical", "result", "run_id", where="canonical", unique=True)
    create_table(
        "step_times",
        *needed(attempt_id=WHOLE, last=BIG, run_id=WHOLE, first=BIG, step_s=BYTES, loss=BYTES),
        *optional(accuracy=BYTES),
        reference("step_times", "attempt_id", "attempt.id"),
        reference("step_times", "run_id", "run.id"),
        primary("step_times", "attempt_id", "last"),
    )
    index("ix_step_times_run", "step_times", "run_id", "attempt_id", "last")
    create_table(
        "digest",
        *needed(attempt_id=WHOLE, facts=BYTES, measured=BYTES, causes=BYTES),
        reference("digest", "attempt_id", "result.attempt_id"),
        primary("digest", "attempt_id"),
    )


def downgrade() -> None:
    for table in reversed(TABLES):
        drop_table(table)
