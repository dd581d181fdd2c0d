"""Tables of webhooks and their deliveries."""

from __future__ import annotations

from sqlalchemy import ForeignKey, Index, String, Text, text
from sqlalchemy.orm import Mapped, mapped_column

from taskloom.server.db import LASTING_IDS, Base


class Webhook(Base):
    """A URL that receives messages. Its secret is stored unencrypted, since every message is signed with it."""

    __tablename__ = "webhook"

    id: Mapped[int] = mapped_column(primary_key=True)
    url: Mapped[str] = mapped_column(Text)
    events: Mapped[list[str]]
    secret: Mapped[str] = mapped_column(String(64))
    key_id: Mapped[int | None] = mapped_column(ForeignKey("api_key.id"))  # null without keys
    created_at: Mapped[float]

    __table_args__ = (LASTING_IDS,)


class Delivery(Base):
    """A message and its state. next_at: time of the next try; null once it was delivered or given up."""

    __tablename__ = "webhook_delivery"

    id: Mapped[int] = mapped_column(primary_key=True)
    webhook_id: Mapped[int] = mapped_column(ForeignKey("webhook.id", ondelete="CASCADE"))
    event: Mapped[str] = mapped_column(String(20))
    body: Mapped[str] = mapped_column(Text)
    created_at: Mapped[float]
    next_at: Mapped[float | None]
    tries: Mapped[int]
    delivered_at: Mapped[float | None]
    status: Mapped[int | None]
    error: Mapped[str | None] = mapped_column(Text)

    __table_args__ = (
        Index("ix_webhook_delivery_webhook", "webhook_id", "id"),
        Index(
            "ix_webhook_delivery_waiting",
            "next_at",
            "id",
            sqlite_where=text("next_at IS NOT NULL"),
            postgresql_where=text("next_at IS NOT NULL"),
        ),
        LASTING_IDS,
    )
