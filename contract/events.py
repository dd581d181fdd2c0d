"""Events of the streams. Each contains the whole state, so a missed event loses nothing."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from taskloom.contract.attempts import ProgressSeen
from taskloom.contract.bodies import Model
from taskloom.contract.experiments import Phase
from taskloom.contract.runs import RunState, StepSeen


class RunEvent(Model):
    """The present state of a run; `progress` while an attempt runs."""

    run_id: int
    state: RunState
    attempt_no: int
    progress: ProgressSeen | None
    steps: list[StepSeen] = Field(
        default_factory=list,
        description="the newest steps of the current attempt, 100 at most, on a run's own topic; the run has more",
    )


class ExperimentEvent(Model):
    """The present state of an experiment, with its running runs."""

    experiment_id: int
    state: Literal["active", "finished", "cancelled"]
    runs: int
    by_state: dict[RunState, int]
    active: list[RunEvent]
    phase: Phase | None = Field(None, description="of a tuning; null without `tune`")
