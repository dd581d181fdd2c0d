"""Parts of the node's time that runs took, according to their results, or the reason why these are unknown."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from gpt2core.spec.result import NODE_TIME
from taskloom.contract.runs import NodeTime
from taskloom.server.queue.tables.runs import Run

# Columns by their names in results. Each part has a column, because sums over 10,000 runs are often requested.
COLUMNS: dict[str, InstrumentedAttribute[float | None]] = {
    f"{part}_s": getattr(Run, f"node_{part}_s") for part in NODE_TIME
}
NO_RESULT = "there is no result"


def keep(run: Run, parts: Mapping[str, float] | None) -> None:
    """Set the columns of a run; null for the parts that its result does not have."""
    for name, column in COLUMNS.items():
        setattr(run, column.key, (parts or {}).get(name))


def total_s(run: Any) -> float | None:
    """Seconds of the node that a run took, all parts; None if unknown. It may be a row of COLUMNS."""
    if run.node_timed_s is None:
        return None
    return math.fsum(getattr(run, column.key) or 0.0 for column in COLUMNS.values())


def of_run(run: Run) -> NodeTime:
    """The parts of a run's time, or the reason why they are unknown."""
    if run.node_timed_s is None:
        return NodeTime(node_time_missing="its trainer does not report it" if run.timed else NO_RESULT)
    return NodeTime(node_time=_known({name: getattr(run, column.key) for name, column in COLUMNS.items()}))


def of_experiment(session: Session, experiment_id: int) -> NodeTime:
    """The parts of the time of an experiment's runs, summed over those that report it."""
    summed = select(func.count(), func.count(Run.node_timed_s), *map(func.sum, COLUMNS.values()))
    results, reported, *sums = session.execute(summed.where(Run.experiment_id == experiment_id, Run.timed)).one()
    return NodeTime(
        node_time=_known(dict(zip(COLUMNS, sums, strict=True))) if reported else None,
        node_time_missing=_missing(results, reported),
    )


def _known(parts: Mapping[str, float | None]) -> dict[str, float]:
    return {name: s for name, s in parts.items() if s is not None}


def _missing(results: int, reported: int) -> str | None:
    if not results:
        return NO_RESULT
    if results == reported:
        return None
    return f"the trainers of {results - reported} of {results} results do not report it"
