"""Series of runs, stored with their results so that histories are read from an index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from gpt2core.spec.series import series_config, series_key, series_machine
from taskloom.server.db import LOCKED, hold
from taskloom.server.queue.tables.experiments import Experiment
from taskloom.server.queue.tables.runs import Run, Series

CHUNK = 500


def add(session: Session, run: Run, result: Mapping[str, Any], at: float) -> None:
    """Add a locked run to the series of its result, as the newest one. Runs of a build that their experiment names say
    nothing about the present trainer, so they are in no series unless they confirm a change."""
    if "build" in run.variant and not session.get_one(Experiment, run.experiment_id).request.get("confirms"):
        return
    config, environment = result["config"], result["environment"]
    key = series_key(config, environment)
    series = _locked(session, key)
    if series is None:
        hold(session, "series")  # another server may create the series at the same moment
        series = _locked(session, key)
    if series is None:
        machine = series_machine(environment)
        series = Series(
            key=key, config=series_config(config), machine=machine, node=str(machine["node"] or ""), runs=0, last_at=at
        )
        session.add(series)
        session.flush()
    run.series_id, series.last_at = series.id, at
    series.runs += 1


def without(session: Session, run_ids: Sequence[int]) -> dict[int, int]:
    """Number of these runs in each series, by the series' id."""
    lost: dict[int, int] = {}
    for first in range(0, len(run_ids), CHUNK):
        of_them = select(Run.series_id, func.count()).where(Run.id.in_(run_ids[first : first + CHUNK]))
        for series_id, count in session.execute(of_them.group_by(Run.series_id)):
            if series_id is not None:
                lost[series_id] = lost.get(series_id, 0) + count
    return lost


def lose(session: Session, lost: Mapping[int, int]) -> None:
    """Update series after runs were deleted; a series is deleted with its last run."""
    for series_id, count in sorted(lost.items()):
        session.execute(update(Series).where(Series.id == series_id).values(runs=Series.runs - count))
    session.execute(delete(Series).where(Series.id.in_(lost), Series.runs <= 0))


def _locked(session: Session, key: str) -> Series | None:
    return session.scalars(select(Series).where(Series.key == key).with_for_update(**LOCKED)).first()
