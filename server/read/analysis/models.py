"""The table of alerts."""

from __future__ import annotations

from typing import get_args

from sqlalchemy import CheckConstraint, ForeignKey, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from taskloom.contract.analysis import AlertState
from taskloom.server.db import LASTING_IDS, Base, one_of


class Alert(Base):
    """A slowdown at a run, and what fresh runs say about it."""

    __tablename__ = "alert"

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"), unique=True)  # the first slower one
    state: Mapped[str] = mapped_column(String(20))
    ratio: Mapped[float]  # median after / before
    reason: Mapped[str] = mapped_column(Text)
    confirming_experiment_id: Mapped[int | None] = mapped_column(ForeignKey("experiment.id", ondelete="SET NULL"))
    raised_at: Mapped[float]
    changed_at: Mapped[float]

    __table_args__ = (CheckConstraint(one_of("state", get_args(AlertState)), name="state"), LASTING_IDS)
