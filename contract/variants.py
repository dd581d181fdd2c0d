"""Variants of an experiment, one flat row each."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from taskloom.contract.bodies import Model
from taskloom.contract.phases import with_phases
from taskloom.contract.runs import MainSettings, Resolved


@with_phases
class VariantRow(Model):
    """One variant of an experiment. Times are medians over its successful runs."""

    experiment_id: int
    variant: dict[str, Any] = Field(description="its values on the experiment's axes")
    settings: MainSettings | None
    resolved: Resolved | None = Field(
        None, description="what the trainer chose, as far as its runs agree: null where they differ"
    )
    runs: int
    queued: int
    active: int = Field(description="leased or running")
    succeeded: int
    failed: int
    cancelled: int
    quarantined: int
    flagged_runs: int = Field(description="runs with flagged steps, which other processes disturbed")
    median_step_s: float | None
    low: float | None = Field(
        description="95 % interval of the median over processes; a confidence sequence with `stop`, if cancelled, and "
        "until all runs have ended; null: too few, or they resemble their neighbours or drift"
    )
    high: float | None
    min_step_s: float | None
    max_step_s: float | None
    tokens_per_s: float | None = Field(
        description="tokens of the timed steps of its successful runs, divided by the steps' time"
    )
    final_loss: float | None
    node_s: float | None = Field(
        None, description="seconds of the node that a run took, all parts of its node time; the median"
    )
    losses: int = Field(description="number of different final losses; 1: all agree")
    nodes: list[str]
    environments: int = Field(description="number of different environments (machines or software) of the results")


class VariantTable(Model):
    """Every variant of an experiment, in its order."""

    experiment_id: int
    rows: list[VariantRow]
