"""Tables of attempts and of their results."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, CheckConstraint, ColumnElement, ForeignKey, Index, String, Text, bindparam, text
from sqlalchemy.orm import Mapped, mapped_column

from taskloom.server.db import LASTING_IDS, Base, one_of
from taskloom.server.queue.tables.states import ACTIVE, ATTEMPT

_ACTIVE = one_of("state", ACTIVE)


def _active_index(name: str, *columns: str, unique: bool = False) -> Index:
    return Index(name, *columns, unique=unique, sqlite_where=text(_ACTIVE), postgresql_where=text(_ACTIVE))


class Attempt(Base):
    __tablename__ = "attempt"

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"))
    attempt_no: Mapped[int]
    worker_id: Mapped[str] = mapped_column(ForeignKey("worker.worker_id"))
    boot_id: Mapped[str] = mapped_column(Text)
    node: Mapped[str] = mapped_column(Text)
    core_set: Mapped[str] = mapped_column(Text)
    purpose: Mapped[str] = mapped_column(String(20), server_default="timing")
    state: Mapped[str] = mapped_column(String(20))
    claimed_at: Mapped[float]
    started_at: Mapped[float | None]  # its first heartbeat
    expires_at: Mapped[float]
    deadline_at: Mapped[float]
    finished_at: Mapped[float | None]
    progress: Mapped[dict[str, Any] | None]
    error: Mapped[dict[str, Any] | None]

    __table_args__ = (
        CheckConstraint(one_of("state", ATTEMPT.states), name="state"),
        CheckConstraint(f"(finished_at IS NULL) = ({_ACTIVE})", name="finished"),
        Index("uq_attempt_no", "run_id", "attempt_no", unique=True),
        _active_index("uq_attempt_active_run", "run_id", unique=True),
        _active_index("uq_attempt_active_cores", "node", "core_set", unique=True),
        _active_index("ix_attempt_active_worker", "worker_id"),
        Index("ix_attempt_worker", "worker_id", "id"),
        _active_index("ix_attempt_expires_at", "expires_at"),
        _active_index("ix_attempt_deadline_at", "deadline_at"),
        LASTING_IDS,
    )


def is_active() -> ColumnElement[bool]:
    """SQL: the attempt holds its lease. Literal values, as in `is_queued`."""
    return Attempt.state.in_(bindparam(None, ACTIVE, expanding=True, literal_execute=True))


class OutputLine(Base):
    """A line that an attempt's trainer printed."""

    __tablename__ = "output_line"

    id: Mapped[int] = mapped_column(primary_key=True)
    attempt_id: Mapped[int] = mapped_column(ForeignKey("attempt.id", ondelete="CASCADE"))
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"))
    line_no: Mapped[int]
    at: Mapped[float]
    text: Mapped[str] = mapped_column(Text)

    __table_args__ = (
        Index("uq_output_line_no", "attempt_id", "line_no", unique=True),
        Index("ix_output_line_run", "run_id", "id"),
    )


class ProgressPoint(Base):
    """Progress of an attempt at a heartbeat; deleted once the run has a result."""

    __tablename__ = "progress_point"

    attempt_id: Mapped[int] = mapped_column(ForeignKey("attempt.id", ondelete="CASCADE"), primary_key=True)
    step: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"))
    at: Mapped[float]
    loss: Mapped[float | None]
    tokens_per_s: Mapped[float | None]

    __table_args__ = (Index("ix_progress_point_run", "run_id", "attempt_id", "step"),)


class StepTimes(Base):
    """Consecutive steps from one heartbeat; deleted with the progress points.

    step_s (seconds), loss, accuracy: JSON lists with an entry for each step from `first` to `last`, numbered from 1;
    accuracy is null unless the network has classes. Where an evaluation followed a step, the entries of loss and
    accuracy are pairs: the step's value and the evaluation's.
    """

    __tablename__ = "step_times"

    attempt_id: Mapped[int] = mapped_column(ForeignKey("attempt.id", ondelete="CASCADE"), primary_key=True)
    last: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"))
    first: Mapped[int] = mapped_column(BigInteger)
    step_s: Mapped[bytes]
    loss: Mapped[bytes]
    accuracy: Mapped[bytes | None]

    __table_args__ = (Index("ix_step_times_run", "run_id", "attempt_id", "last"),)


class Digest(Base):
    """Digest of a canonical result for analyses, as JSON.

    facts: entries that are equal for repetitions; measured: its steps; causes: its ops, threads and memory.
    """

    __tablename__ = "digest"

    attempt_id: Mapped[int] = mapped_column(ForeignKey("result.attempt_id", ondelete="CASCADE"), primary_key=True)
    facts: Mapped[bytes]
    measured: Mapped[bytes]
    causes: Mapped[bytes]


class Result(Base):
    """Uploaded payload of an attempt, unchanged: JSON text, compressed with zlib."""

    __tablename__ = "result"

    attempt_id: Mapped[int] = mapped_column(ForeignKey("attempt.id", ondelete="CASCADE"), primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"))
    outcome: Mapped[str] = mapped_column(String(20))
    sha256: Mapped[str] = mapped_column(String(64))
    payload: Mapped[bytes]
    canonical: Mapped[bool]
    received_at: Mapped[float]

    __table_args__ = (
        CheckConstraint("outcome IN ('succeeded', 'failed', 'cancelled')", name="outcome"),
        Index("ix_result_run", "run_id"),
        Index(
            "uq_result_canonical",
            "run_id",
            unique=True,
            sqlite_where=text("canonical"),
            postgresql_where=text("canonical"),
        ),
    )
