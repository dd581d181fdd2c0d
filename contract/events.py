"""Events of the streams. Each is the whole state, so a missed event loses nothing."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from taskloom.contract.attempts import ProgressSeen
from taskloom.contract.bodies import Model
from taskloom.contract.runs import RunState, StepSeen


class RunEvent(Model):
    """A run as it is now; `progress` while an attempt is under way."""

    run_id: int
    state: RunState
    attempt_no: int
    progress: ProgressSeen | None
    steps: list[StepSeen] = Field(
        default_factory=list,
        description="the newest steps of the attempt under way, 100 at most, on a run's own topic; the run has more",
    )


class ExperimentEvent(Model):
    """An experiment as it is now, with its runs that are under way."""

    experiment_id: int
    state: Literal["active", "finished", "cancelled"]
    runs: int
    by_state: dict[RunState, int]
    active: list[RunEvent]
