"""Overview of the server's current state."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Self

from pydantic import Field

from taskloom.contract.analysis import AlertSummary
from taskloom.contract.bodies import Model
from taskloom.contract.experiments import EtaBasis, ExperimentSummary
from taskloom.contract.runs import WaitingReason
from taskloom.contract.workers import WorkerState


class EndedRuns(Model):
    """Runs that ended within the last day."""

    succeeded: int
    failed: int
    cancelled: int
    quarantined: int


class RunCounts(Model):
    """Open and quarantined runs, and those that ended recently."""

    queued: int
    leased: int
    running: int
    quarantined: int
    ended_24h: EndedRuns


class WorkerCounts(Model):
    """Workers by state."""

    idle: int
    busy: int
    measuring_peaks: int
    ending: int
    silent: int
    left: int

    @classmethod
    def of(cls, by_state: Mapping[WorkerState, int]) -> Self:
        return cls(**{state.replace(" ", "_"): count for state, count in by_state.items()})


class AlertCounts(Model):
    """Alerts by state."""

    suspected: int
    confirming: int
    confirmed: int
    dismissed: int
    above: int = Field(0, description="above the threshold of their series, by the newest experiment")
    below: int = Field(0, description="below the threshold of their series, by the newest experiment")
    within: int = Field(0, description="within their threshold again")


class Waiting(Model):
    """Why queued runs wait."""

    reason: WaitingReason
    waiting_for: str = Field(description="reason of the first of them, in words")
    runs: int = Field(description="number of such runs among the first 500 of the queue")


class WeekOfVerdicts(Model):
    """Verdicts of the experiments that ended in one week."""

    began_at: datetime = Field(description="its Monday, 00:00 UTC")
    by_verdict: dict[str, int] = Field(description="number of experiments with each verdict")


class Overview(Model):
    """The queue, the workers, recently ended runs and slowdowns."""

    at: datetime
    runs: RunCounts
    runs_per_h: int = Field(description="runs that ended within the last hour")
    eta_s: float | None = Field(
        description="estimated seconds until the present workers have executed all runs that they can; null: unknown, "
        "or they can execute none"
    )
    eta_basis: EtaBasis | None = Field(
        None, description="finished-runs: of the same experiments or shapes; guess: at least one is from other shapes"
    )
    workers: WorkerCounts
    active_experiments: int
    experiments: list[ExperimentSummary] = Field(description="the first 20 active ones, in the order of the queue")
    latest: list[ExperimentSummary] = Field(description="the 10 that ended last")
    verdicts: list[WeekOfVerdicts] = Field(
        default_factory=list,
        description="of this week and the 7 before, newest first, without weeks and experiments that compared nothing",
    )
    alerts: AlertCounts
    newest_alerts: list[AlertSummary] = Field(description="the 5 newest that are neither dismissed nor within again")
    waiting: list[Waiting]
