"""Tables of experiments, their blocks, and the labels they require."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, String, Text, false, text
from sqlalchemy.orm import Mapped, mapped_column

from taskloom.server.db import LASTING_IDS, Base


class Experiment(Base):
    __tablename__ = "experiment"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(Text)
    notes: Mapped[str] = mapped_column(Text, server_default=text("''"))
    request: Mapped[dict[str, Any]]
    request_sha256: Mapped[str] = mapped_column(String(64))
    owner: Mapped[str] = mapped_column(Text)  # the submitter, as an actor of histories
    group: Mapped[str | None] = mapped_column("group_name", Text)  # the submitter's at that time
    idempotency_key: Mapped[str | None] = mapped_column(String(200))
    runs: Mapped[int]
    created_at: Mapped[float]
    started_at: Mapped[float | None]  # start of its first run
    finished_at: Mapped[float | None]  # end of its last run; null again after a retry
    cancelled_at: Mapped[float | None]
    # With `stop` or `tune`: whether another block may follow, and the rule's result after the last block.
    undecided: Mapped[bool] = mapped_column(server_default=false())
    rel_ci: Mapped[float | None]
    stop_reason: Mapped[str | None] = mapped_column(String(20))
    alerts_at: Mapped[float | None]  # finished_at of the last search for slowdowns
    verdict: Mapped[dict[str, Any] | None]  # computed at `verdict_at`, after the experiment's end
    verdict_at: Mapped[float | None]
    extended: Mapped[int] = mapped_column(server_default=text("0"), default=0)  # repetitions added after its end
    # The commit that the submitter named.
    commit_id: Mapped[str | None] = mapped_column(Text)
    branch: Mapped[str | None] = mapped_column(Text)
    dirty: Mapped[bool | None]
    committed_at: Mapped[float | None]
    version: Mapped[str | None] = mapped_column(Text)

    @property
    def is_open_ended(self) -> bool:
        """Whether blocks are added to it: by `stop` or `tune`."""
        return self.request.get("stop") is not None or self.request.get("tune") is not None

    @property
    def stops_early(self) -> bool:
        """Whether its results may have decided the number of its runs: by `stop`, `tune`, or whoever cancelled or
        extended it."""
        return self.is_open_ended or self.cancelled_at is not None or self.extended > 0

    __table_args__ = (
        Index("uq_experiment_idempotency", "owner", "idempotency_key", unique=True),
        Index(
            "ix_experiment_undecided", "id", sqlite_where=text("undecided"), postgresql_where=text("undecided")
        ),
        Index("ix_experiment_finished_at", "finished_at", "id"),
        Index("ix_experiment_created_at", "created_at", "id"),
        Index("ix_experiment_group_name", "group_name", "id"),
        Index("ix_experiment_name", "name", "id"),
        Index("ix_experiment_owner", "owner", "id"),
        Index("ix_experiment_runs", "runs", "id"),
        LASTING_IDS,
    )


class Block(Base):
    """Runs that are compared with each other, all on the node and cores of the one that was claimed first.

    Its requirements are the maximum over its runs, so it is bound only to a worker that can run all of them.
    """

    __tablename__ = "block"

    experiment_id: Mapped[int] = mapped_column(ForeignKey("experiment.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    node: Mapped[str | None] = mapped_column(Text)
    core_set: Mapped[str | None] = mapped_column(Text)
    cores_needed: Mapped[int]
    memory_needed_bytes: Mapped[int] = mapped_column(BigInteger)
    pinned_cores: Mapped[str] = mapped_column(Text)  # all cores that its runs name, as "0,1"


class ExperimentKey(Base):
    """The key with which an experiment was submitted; no row if no key was needed."""

    __tablename__ = "experiment_key"

    experiment_id: Mapped[int] = mapped_column(ForeignKey("experiment.id", ondelete="CASCADE"), primary_key=True)
    key_id: Mapped[int] = mapped_column(ForeignKey("api_key.id"))


class ExperimentTag(Base):
    """A tag of an experiment."""

    __tablename__ = "experiment_tag"

    experiment_id: Mapped[int] = mapped_column(ForeignKey("experiment.id", ondelete="CASCADE"), primary_key=True)
    tag: Mapped[str] = mapped_column(Text, primary_key=True)

    __table_args__ = (Index("ix_experiment_tag_tag", "tag", "experiment_id"),)


class RequiredLabel(Base):
    """A label that a worker must have, as the JSON text ["key", "value"]."""

    __tablename__ = "required_label"

    experiment_id: Mapped[int] = mapped_column(ForeignKey("experiment.id", ondelete="CASCADE"), primary_key=True)
    label: Mapped[str] = mapped_column(Text, primary_key=True)
