"""Deletion of old runs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from taskloom.contract.bodies import MOST, MOST_ID, Model, Request

EndedState = Literal["succeeded", "failed", "cancelled", "quarantined"]


class PruneRequest(Request):
    """Conditions for runs to delete; all must hold, and their experiment must have ended."""

    older_than_s: float = Field(ge=0, le=MOST, description="minimum age since their end, in seconds")
    states: list[EndedState] = Field(
        ["succeeded", "failed", "cancelled", "quarantined"], min_length=1, max_length=100, description="their states"
    )
    experiment_id: int | None = Field(None, ge=1, le=MOST_ID, description="only runs of this experiment")
    dry_run: bool = Field(False, description="count only")


class PruneReport(Model):
    """Numbers of deleted items or, in a dry run, of items to delete."""

    dry_run: bool
    experiments: int = Field(description="experiments without runs")
    runs: int
    attempts: int
    results: int
    output_lines: int
    artifacts: int
    files: int = Field(description="files of the store that no artifact needs")
    bytes: int = Field(description="size of these files")
    more: bool = Field(description="more is left to delete: repeat the request")
