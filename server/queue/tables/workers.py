"""The table of workers."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Text
from sqlalchemy.orm import Mapped, mapped_column

from taskloom.server.db import Base


class Worker(Base):
    __tablename__ = "worker"

    worker_id: Mapped[str] = mapped_column(Text, primary_key=True)
    boot_id: Mapped[str] = mapped_column(Text)
    former_boots: Mapped[list[str] | None]  # boot ids of replaced processes, oldest first
    machine_boot_id: Mapped[str | None] = mapped_column(Text)
    spool_id: Mapped[str | None] = mapped_column(Text)  # the spool of its results
    started_s: Mapped[float | None]  # seconds since the machine's boot
    node: Mapped[str] = mapped_column(Text, index=True)
    cores: Mapped[list[int]]
    core_set: Mapped[str] = mapped_column(Text)  # the cores, ascending, as "0,1,2"
    memory_bytes: Mapped[int] = mapped_column(BigInteger)
    labels: Mapped[dict[str, Any]]
    software: Mapped[dict[str, Any]]
    topology: Mapped[dict[str, Any]]
    measuring_peaks: Mapped[bool | None]  # null: no
    registered_at: Mapped[float]
    seen_at: Mapped[float]
    ends_at: Mapped[float | None]
    left_at: Mapped[float | None]  # when it left; null while it may claim runs
    removed_at: Mapped[float | None]  # when it was removed from lists; null again when it registers


class WorkerKey(Base):
    """The key with which a worker was registered; no row if no key was needed."""

    __tablename__ = "worker_key"

    worker_id: Mapped[str] = mapped_column(ForeignKey("worker.worker_id"), primary_key=True)
    key_id: Mapped[int] = mapped_column(ForeignKey("api_key.id"))
