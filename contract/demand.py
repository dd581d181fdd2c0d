"""Demand of the queue, and the pools that provisioners report."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

from pydantic import Field

from taskloom.contract import fitting
from taskloom.contract.bodies import MOST, OPEN, Model, Request
from taskloom.contract.runs import WaitingReason


class Need(Model):
    """Requirements that a number of queued blocks share."""

    cores: int = Field(description="cores of its widest run")
    memory_bytes: int
    pinned_cores: list[int] = Field(description="core numbers that its runs name; empty: any")
    labels: dict[str, str]
    timeout_s: float = Field(description="time limit of a run")
    blocks: int = Field(description="blocks with queued runs that no present worker is bound to")
    kept_blocks: int = Field(description="blocks with queued runs that a present worker is bound to")
    runs: int = Field(description="queued runs, including those of bound blocks")
    oldest_queued_at: datetime

    @property
    def need(self) -> fitting.Need:
        """What each of the blocks needs."""
        labels, pinned = frozenset(self.labels.items()), frozenset(self.pinned_cores)
        return fitting.Need(labels, self.cores, pinned, self.memory_bytes, self.timeout_s)


class PresentWorker(Model):
    """A worker that sent a message recently and has not left."""

    worker_id: str
    cores: list[int]
    memory_bytes: int
    labels: dict[str, str]
    remaining_s: float | None = Field(description="null: unlimited")
    idle: bool

    @property
    def offer(self) -> fitting.Offer:
        """What the worker offers."""
        labels, remaining_s = frozenset(self.labels.items()), math.inf if self.remaining_s is None else self.remaining_s
        return fitting.Offer(labels, frozenset(self.cores), self.memory_bytes, remaining_s)


class Demand(Model):
    """Requirements of the queue, grouped and in queue order, and the present workers."""

    needs: list[Need]
    workers: list[PresentWorker]


class PoolJob(Request):
    """A job that was submitted to bring a worker."""

    job_id: str = Field(max_length=100)
    state: str = Field(max_length=100, description="its state in the cluster's queue")
    reason: str = Field("", max_length=500, description="why it waits, according to the cluster's queue")


class PoolReport(Request):
    """Report on a pool by its provisioner. It expires after three intervals without another."""

    cores: int = Field(ge=1, le=1 << 16, description="cores of each of its workers")
    memory_bytes: int = Field(ge=1, le=MOST)
    labels: dict[str, str] = Field(default_factory=dict, max_length=100)
    walltime_s: float = Field(gt=0, le=MOST, description="lifetime of one of its workers")
    interval_s: float = Field(gt=0, le=86400)
    jobs: list[PoolJob] = Field(default_factory=list, max_length=1000)
    problem: str | None = Field(None, max_length=2000, description="why no job can be submitted now")


class PoolJobSeen(PoolJob):
    """A job in the pool's last report."""

    model_config = OPEN


class PoolSummary(PoolReport):
    """A pool and the time of its last report."""

    model_config = OPEN

    name: str
    jobs: list[PoolJobSeen] = Field(default_factory=list)  # type: ignore[assignment]
    seen_at: datetime


class PoolPage(Model):
    """Every pool, by name."""

    items: list[PoolSummary]


class QueuedRun(Model):
    """A run in the queue, and what it waits for."""

    position: int = Field(description="1: no run is before it")
    run_id: int
    experiment_id: int
    experiment_name: str
    variant: dict[str, Any]
    block: int
    priority: int
    queued_at: datetime
    reason: WaitingReason
    waiting_for: str = Field(description="the reason, for people")


class QueuedRunPage(Model):
    """A page of the queue, in the order in which runs are claimed."""

    items: list[QueuedRun]
    next_cursor: str | None
    total: int = Field(description="queued runs on all pages")
