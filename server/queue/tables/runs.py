"""The table of runs."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ColumnElement,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    String,
    Text,
    false,
    literal,
    text,
)
from sqlalchemy.ext.hybrid import hybrid_property
from sqlalchemy.orm import Mapped, mapped_column

from taskloom.server.db import LASTING_IDS, Base, one_of
from taskloom.server.queue.tables.states import RUN

FLAGGED = "flagged_steps > 0"


class Run(Base):
    __tablename__ = "run"

    id: Mapped[int] = mapped_column(primary_key=True)
    experiment_id: Mapped[int] = mapped_column(ForeignKey("experiment.id", ondelete="CASCADE"))
    position: Mapped[int]
    block: Mapped[int]
    repetition: Mapped[int]
    variant: Mapped[dict[str, Any]]
    spec: Mapped[dict[str, Any]]
    shape: Mapped[str] = mapped_column(String(64))  # SHA-256 of the settings that determine the time of a step
    rank: Mapped[int]  # the negated priority: the queue is ordered by rank, then by id
    cores_needed: Mapped[int]
    pinned_cores: Mapped[str] = mapped_column(Text)  # "0,1", or "" if the worker may choose
    memory_needed_bytes: Mapped[int] = mapped_column(BigInteger)
    timeout_s: Mapped[float]
    role: Mapped[str | None] = mapped_column(String(10))  # in a tuning: trial, default, winner, drawn
    trace: Mapped[bool] = mapped_column(server_default=false())  # whether it is traced after it has succeeded
    purpose: Mapped[str] = mapped_column(String(20), server_default="timing")  # of its newest attempt, or of the next
    state: Mapped[str] = mapped_column(String(20))
    attempts: Mapped[int]  # attempt_no of the newest attempt
    losses: Mapped[int]  # attempts lost since it was submitted or retried
    created_at: Mapped[float]
    queued_at: Mapped[float]
    started_at: Mapped[float | None]  # first start of an attempt since the submission or retry
    cancel_requested_at: Mapped[float | None]
    finished_at: Mapped[float | None]
    error: Mapped[dict[str, Any] | None]
    node: Mapped[str | None] = mapped_column(Text)  # from here on: of the canonical result
    environment_sha256: Mapped[str | None] = mapped_column(String(64))
    phase_s: Mapped[dict[str, Any] | None]
    resolved: Mapped[dict[str, Any] | None]  # settings that the trainer chose (contract.runs.Resolved)
    flagged_steps: Mapped[int | None]
    median_step_s: Mapped[float | None]
    tokens_per_s: Mapped[float | None]
    final_loss: Mapped[float | None]
    trainer_commit: Mapped[str | None] = mapped_column(Text)
    trainer_branch: Mapped[str | None] = mapped_column(Text)
    trainer_dirty: Mapped[bool | None]
    trainer_committed_at: Mapped[float | None]
    trainer_version: Mapped[str | None] = mapped_column(Text)
    series_id: Mapped[int | None]  # no foreign key: SQLite would copy the table to add one
    # Parts of its node's time, in seconds (gpt2core.spec.result.NODE_TIME); null if the trainer does not report them.
    node_delivering_s: Mapped[float | None]
    node_claiming_s: Mapped[float | None]
    node_starting_s: Mapped[float | None]
    node_planning_s: Mapped[float | None]
    node_compiling_s: Mapped[float | None]
    node_preparing_s: Mapped[float | None]
    node_warmup_s: Mapped[float | None]
    node_timed_s: Mapped[float | None]
    node_finishing_s: Mapped[float | None]

    @hybrid_property
    def timed(self) -> bool:
        """Whether the run has a result. It may still wait to be traced, or be traced now."""
        return (self.state == "succeeded") | (self.purpose == "tracing")

    __table_args__ = (
        CheckConstraint(one_of("state", RUN.states), name="state"),
        CheckConstraint("(finished_at IS NULL) = (state IN ('queued', 'leased', 'running'))", name="finished"),
        ForeignKeyConstraint(
            ["experiment_id", "block"],
            ["block.experiment_id", "block.number"],
            name="fk_run_block",
            ondelete="CASCADE",
        ),
        Index("uq_run_position", "experiment_id", "position", unique=True),
        Index("ix_run_experiment", "experiment_id", "id"),
        Index("ix_run_experiment_state", "experiment_id", "state", "id"),  # covers the counts
        Index("ix_run_state", "state", "id"),
        Index("ix_run_shape", "shape"),
        Index("ix_run_series", "series_id", "finished_at", "id"),
        # Sort orders of lists: server/read/lists.
        Index("ix_run_created_at", "created_at", "id"),
        Index("ix_run_started_at", "started_at", "id"),
        Index("ix_run_finished_at", "finished_at", "id", "state"),  # covers the counts of recently ended runs
        Index("ix_run_median_step_s", "median_step_s", "id"),
        Index("ix_run_tokens_per_s", "tokens_per_s", "id"),
        Index("ix_run_final_loss", "final_loss", "id"),
        Index("ix_run_flagged_steps", "flagged_steps", "id"),
        Index("ix_run_duration_s", text("(finished_at - started_at)"), "id"),
        Index("ix_run_node", "node", "id"),
        Index("ix_run_flagged", "id", sqlite_where=text(FLAGGED), postgresql_where=text(FLAGGED)),
        Index(
            "ix_run_experiment_flagged", "experiment_id", sqlite_where=text(FLAGGED), postgresql_where=text(FLAGGED)
        ),
        Index("ix_run_queue", "state", "rank", "id"),
        Index(
            "ix_run_queued_at",
            "queued_at",
            sqlite_where=text("state = 'queued'"),
            postgresql_where=text("state = 'queued'"),
        ),
        LASTING_IDS,
    )


class Series(Base):
    """Runs with a canonical result of one configuration on one machine (gpt2core/spec/series.py); deleted with its last
    run. Locked after its runs."""

    __tablename__ = "series"

    id: Mapped[int] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(String(64), unique=True)
    config: Mapped[dict[str, Any]]
    machine: Mapped[dict[str, Any]]
    node: Mapped[str] = mapped_column(Text)
    runs: Mapped[int]
    last_at: Mapped[float]  # time of its newest result

    __table_args__ = (Index("ix_series_last_at", "last_at", "id"), LASTING_IDS)


class RunEvent(Base):
    """A change of state, never modified and deleted only with its run.

    Events of a run are in the order of their ids. For different runs this holds approximately: on PostgreSQL a lower id
    may be committed slightly later.
    """

    __tablename__ = "run_event"

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"))
    experiment_id: Mapped[int] = mapped_column(ForeignKey("experiment.id", ondelete="CASCADE"))
    at: Mapped[float]
    verb: Mapped[str] = mapped_column(String(20))  # of states.py, or submit, request-cancel
    state: Mapped[str] = mapped_column(String(20))  # the run's, from here on
    attempt_no: Mapped[int | None]
    attempt_state: Mapped[str | None] = mapped_column(String(20))
    actor: Mapped[str] = mapped_column(Text)
    reason: Mapped[str | None] = mapped_column(Text)

    __table_args__ = (
        Index("ix_run_event_run", "run_id", "id"),
        Index("ix_run_event_experiment", "experiment_id", "id"),
        LASTING_IDS,
    )


def is_flagged() -> ColumnElement[bool]:
    """SQL: the run has flagged steps. Literal values, as in `is_queued`."""
    return Run.flagged_steps > literal(0, literal_execute=True)


def is_queued() -> ColumnElement[bool]:
    """SQL: the run is queued. Literal values, not parameters, so that the planners can use the partial indexes."""
    return Run.state == literal("queued", literal_execute=True)
