"""The tables of alerts and thresholds."""

from __future__ import annotations

from typing import get_args

from sqlalchemy import CheckConstraint, ForeignKey, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from taskloom.contract.analysis import AlertKind, AlertState
from taskloom.server.db import LASTING_IDS, Base, one_of


class Alert(Base):
    """A slowdown at a run and what fresh runs say about it, or runs outside the threshold of their series."""

    __tablename__ = "alert"

    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(String(20), server_default="change")
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"))  # the first slower or judged one
    state: Mapped[str] = mapped_column(String(20))
    ratio: Mapped[float]  # median after / before, or median / reference
    reason: Mapped[str] = mapped_column(Text)
    confirming_experiment_id: Mapped[int | None] = mapped_column(ForeignKey("experiment.id", ondelete="SET NULL"))
    raised_at: Mapped[float]
    changed_at: Mapped[float]

    __table_args__ = (
        CheckConstraint(one_of("state", get_args(AlertState)), name="state"),
        CheckConstraint(one_of("kind", get_args(AlertKind)), name="kind"),
        UniqueConstraint("run_id", "kind"),
        LASTING_IDS,
    )


class Threshold(Base):
    """The threshold of a series, deleted with it. lower, upper: percent of the reference."""

    __tablename__ = "threshold"

    series_id: Mapped[int] = mapped_column(ForeignKey("series.id", ondelete="CASCADE"), primary_key=True)
    reference_s: Mapped[float]
    lower: Mapped[float | None]
    upper: Mapped[float | None]
    set_at: Mapped[float]
    set_by: Mapped[str] = mapped_column(Text)
