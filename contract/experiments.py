"""What a user asks for: a base, axes, repetitions, and how they are ordered."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from contract.runs import MOST, MOST_ID, Model, Request, RunSpec

Values = list[Any]


class Requirements(Request):
    """What a node must have to run any of it."""

    labels: dict[str, str] = Field(default_factory=dict)
    cores: int | None = Field(None, ge=1, le=4096)
    memory_bytes: int | None = Field(None, ge=1, le=MOST)


class Limits(Request):
    """When an attempt is stopped."""

    timeout_s: float = Field(3600, gt=0, le=30 * 86400, description="an attempt is killed and failed after this long")


class ExperimentRequest(Request):
    """An experiment: every combination of the axes' values over the base, each `repetitions` times."""

    name: str = Field("", max_length=200)
    base: RunSpec = Field(default_factory=RunSpec)
    axes: dict[str, Values] = Field(default_factory=dict, description="setting -> values; all combinations are run")
    zip: list[dict[str, Values]] = Field(
        default_factory=list, description="groups of settings whose values vary together, all lists equally long"
    )
    exclude: list[dict[str, Any]] = Field(
        default_factory=list, description="combinations to leave out: those that match every value of an entry"
    )
    repetitions: int = Field(1, ge=1, le=1000)
    order: Literal["interleaved", "sequential"] = Field(
        "interleaved",
        description="interleaved: each repetition is a block in which every variant runs once, in random order",
    )
    seed: int = Field(0, ge=0, le=2**63 - 1, description="seed of the blocks' order")
    priority: int = Field(0, ge=-100, le=100, description="higher runs first")
    trace: bool = Field(
        False, description="once a run has succeeded, trace it in another attempt, whose times count nowhere"
    )
    requires: Requirements = Field(default_factory=Requirements)
    limits: Limits = Field(default_factory=Limits)
    confirms: int | None = Field(
        None, ge=1, le=MOST_ID, description="the run after a suspected change that these runs confirm or dismiss"
    )

    model_config = Request.model_config | {
        "json_schema_extra": {
            "examples": [
                {
                    "name": "fork-join or tasks?",
                    "base": {"model": "tiny", "batch": 4, "seq": 64, "steps": 20, "data": "stdlib"},
                    "axes": {"scheduler": ["fork-join", "task"], "threads": [1, 2], "batch_slice": [1]},
                    "repetitions": 3,
                }
            ]
        }
    }


class ExperimentSummary(Model):
    """An experiment in a list."""

    id: int
    name: str
    state: Literal["active", "finished", "cancelled"]
    runs: int
    by_state: dict[str, int] = Field(description="how many of its runs are in each state")
    created_at: datetime


class ExperimentDetail(ExperimentSummary):
    """An experiment with the request that made it."""

    request: dict[str, Any]


class ExperimentPage(Model):
    """A page of experiments, newest first."""

    items: list[ExperimentSummary]
    next_cursor: str | None


class PlannedRun(Model):
    """A run as a submission would queue it."""

    position: int
    block: int
    repetition: int
    variant: dict[str, Any]


class DryRun(Model):
    """What a submission would become."""

    runs: int
    variants: int
    memory_bytes: int = Field(description="the largest run's arenas")
    estimated_s: float | None = Field(description="from finished runs of the same shape; null if there are none")
    order: list[PlannedRun]
