"""Raw samples of many runs."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from taskloom.contract.bodies import Model
from taskloom.contract.runs import SampleList


class RunSamples(SampleList):
    """Every step of a run, with the run's id."""

    experiment_id: int
    variant: dict[str, Any]
    repetition: int
    block: int


class SamplesPage(Model):
    """Runs in the order in which they were planned."""

    items: list[RunSamples]
    next_cursor: str | None = Field(description="`cursor` of the next page; null on the last")


class SamplesEnd(Model):
    """The last line of streamed samples."""

    next_cursor: str | None
