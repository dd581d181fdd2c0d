"""Extensions of finished experiments."""

from __future__ import annotations

from pydantic import Field

from taskloom.contract.bodies import Request


class ExperimentExtension(Request):
    """Further repetitions of a finished experiment."""

    repetitions: int = Field(ge=1, le=1000, description="number of further repetitions of every variant")
