"""Times of a step's phases as fields of a row, from the one list of phases."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import Field, create_model

from gpt2core.spec.phases import PHASES
from taskloom.contract.bodies import Model

Row = TypeVar("Row", bound=Model)
TIME = (
    "the {} phase from its first task to its last, a median; it includes waiting, and under task with sync step or "
    "none phases overlap (`phase_s` of the scaling analysis has the tasks' own time)"
)


def with_phases(row: type[Row]) -> type[Row]:
    """The row with a field `PHASE_s` for each phase, in seconds or null: null for a phase that its runs lack."""
    times: dict[str, Any] = {
        f"{phase}_s": (float | None, Field(None, description=TIME.format(phase))) for phase in PHASES
    }
    return create_model(row.__name__, __base__=row, __module__=row.__module__, __doc__=row.__doc__, **times)
