"""Nodes and the workers on them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from taskloom.contract.runs import MOST, OPEN, Model, Request


class WorkerRegistration(Request):
    """A worker introduces itself; the same worker_id and boot_id again is the same worker."""

    worker_id: str = Field(min_length=1, max_length=200, pattern=r"^[\w.:@-]+$")
    boot_id: str = Field(min_length=1, max_length=200)
    machine_boot_id: str | None = Field(
        None, min_length=1, max_length=200, description="the boot of the machine, as its kernel names it"
    )
    started_s: float | None = Field(
        None,
        ge=0,
        le=MOST,
        description="when the process started, since that boot: of two processes the older one is refused",
    )
    node: str = Field(min_length=1, max_length=200, description="the machine's name")
    cores: list[Annotated[int, Field(ge=0, le=1 << 16)]] = Field(
        min_length=1, max_length=4096, description="cores a trainer may be pinned to"
    )
    memory_bytes: int = Field(ge=1, le=MOST)
    labels: dict[str, str] = Field(default_factory=dict)
    software: dict[str, str] = Field(default_factory=dict, description="versions; `hash` is the trainer's source hash")
    topology: dict[str, Any] = Field(default_factory=dict, description="CPU model, sockets, SMT, caches")


class Leaving(Request):
    """A worker takes no further run."""

    boot_id: str = Field(min_length=1, max_length=200)


class WorkerSummary(WorkerRegistration):
    """A worker as it registered, when it was last heard of, and what it runs."""

    model_config = OPEN

    registered_at: datetime
    seen_at: datetime
    ends_at: datetime | None = Field(description="when its walltime is over, as it said when it last asked for a run")
    left_at: datetime | None = Field(None, description="when it said that it takes no further run")
    current_attempt_id: int | None


class WorkerPage(Model):
    """A page of workers, by id."""

    items: list[WorkerSummary]
    next_cursor: str | None
