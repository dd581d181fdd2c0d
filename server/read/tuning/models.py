"""The table of kept settings."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ForeignKey, String
from sqlalchemy.orm import Mapped, mapped_column

from taskloom.server.db import LASTING_IDS, Base


class Tuned(Base):
    """A confirmed setting of a problem on a machine; a newer one replaces it."""

    __tablename__ = "tuned"

    id: Mapped[int] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(String(64), unique=True)  # of problem and machine
    problem_sha256: Mapped[str] = mapped_column(String(64), index=True)
    experiment_id: Mapped[int] = mapped_column(ForeignKey("experiment.id", ondelete="CASCADE"))
    confirmed_at: Mapped[float]
    fields: Mapped[dict[str, Any]] = mapped_column("told")  # the others of contract.tuned.TunedSetting

    __table_args__ = (LASTING_IDS,)
