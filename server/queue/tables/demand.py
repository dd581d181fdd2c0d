"""The table of pools, as provisioners report them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ForeignKey, Text
from sqlalchemy.orm import Mapped, mapped_column

from taskloom.server.db import Base


class Pool(Base):
    __tablename__ = "pool"

    name: Mapped[str] = mapped_column(Text, primary_key=True)
    key_id: Mapped[int | None] = mapped_column(ForeignKey("api_key.id"))  # null: reported before there were keys
    report: Mapped[dict[str, Any]]  # the provisioner's latest
    seen_at: Mapped[float]
    silent_at: Mapped[float]  # the pool no longer counts from then on, unless it is reported again
