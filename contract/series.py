"""Histories: series of runs, and their points."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import Field

from taskloom.contract.analysis import AlertState, AlertSummary
from taskloom.contract.bodies import Model
from taskloom.contract.commits import Commits, TrainerCommit
from taskloom.contract.phases import with_phases
from taskloom.contract.thresholds import SeriesThreshold


class SeriesRow(Model):
    """Runs of one configuration on one machine over time, without its points."""

    id: int
    name: str = Field("", description="its main settings in words")
    config: dict[str, Any] = Field(description="the settings that its runs have in common")
    machine: dict[str, Any] = Field(description="facts about the machine that its runs share, and their cores")
    node: str
    runs: int = Field(description="number of its points")
    first_at: datetime | None = Field(description="when its first run ended; null: all are being traced")
    last_at: datetime = Field(description="when its newest result arrived")
    median_step_s: float | None = Field(description="median step of the newest run")
    recent_s: list[float] = Field(description="median steps of the newest 40 runs, oldest first: a sparkline")
    alerts: list[AlertSummary] = Field(description="its alerts, newest first, 5 at most")
    threshold: SeriesThreshold | None = Field(None, description="reference and limits of its step time; null: none")


class SeriesPage(Model):
    """A page of series."""

    items: list[SeriesRow]
    next_cursor: str | None
    total: int | None = Field(None, description="series on all pages; null unless requested")


@with_phases
class SeriesRun(Commits, TrainerCommit):
    """A point of a series: one run with every stored metric."""

    run_id: int
    experiment_id: int
    finished_at: datetime | None = Field(description="null while it is being traced")
    median_step_s: float | None
    tokens_per_s: float | None
    final_loss: float | None
    latency_p99_s: float | None = Field(None, description="99th percentile of the steps of an inference; else null")
    time_to_first_token_s: float | None = Field(None, description="of a generation; else null")
    node: str | None = Field(None, description="the machine that ran it")
    canary_s: float | None = Field(None, description="time of the canary before the run; null: no canary")
    memory_bytes: int | None = Field(None, description="peak of the trainer's memory; null: unknown")
    compiled: int | None = Field(
        None, description="kernels that the run compiled; above 0, `memory_bytes` contains the compiler; null: unknown"
    )
    op_s: float | None = Field(None, description="time of the operation `op` in a timed step; null: none or not asked")
    flagged_steps: int | None
    environment_sha256: str | None = Field(description="differs if machine or software changed")
    alert: AlertState | None = Field(description="state of the slowdown that begins here; null: none begins here")


class SeriesRunPage(Model):
    """A page of a series' points."""

    series_id: int
    ops: list[str] = Field(default_factory=list, description="operations of the newest run on the page, for `op`")
    items: list[SeriesRun]
    next_cursor: str | None
