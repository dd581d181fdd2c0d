"""What is deleted of old runs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from taskloom.contract.runs import MOST, MOST_ID, Model, Request

EndedState = Literal["succeeded", "failed", "cancelled", "quarantined"]


class PruneRequest(Request):
    """Runs to delete: all of these conditions hold for them, and their experiment has ended."""

    older_than_s: float = Field(ge=0, le=MOST, description="they ended at least so long ago")
    states: list[EndedState] = Field(
        ["succeeded", "failed", "cancelled", "quarantined"], min_length=1, description="they are in one of these"
    )
    experiment_id: int | None = Field(None, ge=1, le=MOST_ID, description="they belong to this one")
    dry_run: bool = Field(False, description="count only")


class PruneReport(Model):
    """What was deleted; of a dry run, what would be."""

    dry_run: bool
    experiments: int = Field(description="those that have no runs left")
    runs: int
    attempts: int
    results: int
    output_lines: int
    artifacts: int
    files: int = Field(description="in the store, that no artifact needs any more")
    bytes: int = Field(description="that these files took")
    more: bool = Field(description="there is more of it: ask again")
