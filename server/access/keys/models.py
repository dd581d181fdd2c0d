"""The table of keys."""

from __future__ import annotations

from typing import get_args

from sqlalchemy import CheckConstraint, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from taskloom.contract.keys import Scope
from taskloom.server.db import Base, one_of


class Key(Base):
    """A key. Rows are never deleted: a server that ever had a key always requires one."""

    __tablename__ = "api_key"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(Text)
    scope: Mapped[str] = mapped_column(String(20))
    group: Mapped[str | None] = mapped_column("group_name", Text)
    # A fast hash is sufficient: slow ones protect guessable secrets, and 256 random bits cannot be guessed.
    secret_sha256: Mapped[str] = mapped_column(String(64))
    created_at: Mapped[float]
    expires_at: Mapped[float | None]
    last_used_at: Mapped[float | None]
    revoked_at: Mapped[float | None]

    __table_args__ = (CheckConstraint(one_of("scope", get_args(Scope)), name="scope"),)
