"""Alerts: slowdowns of an ended experiment that its history shows, and the rows that are kept of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from gpt2core.spec.result import median
from taskloom.analysis.comparison import NOISE_FLOOR
from taskloom.analysis.history import MOVES, Series, State
from taskloom.contract.analysis import AlertPage, AlertState
from taskloom.server import paging
from taskloom.server.alerts import raised
from taskloom.server.alerts.models import Alert
from taskloom.server.db import Database
from taskloom.server.queue.tables.experiments import Experiment
from taskloom.server.queue.tables.runs import Run
from taskloom.server.read.analysis import analyses


@dataclass(frozen=True)
class Suspect:
    """A slowdown that a search found. near: ids of the runs around it, since its position may change with more runs.
    latest: whether it is the last change of its series."""

    run_id: int
    near: list[int]
    latest: bool
    state: State
    ratio: float
    reason: str
    confirming_experiment_id: int | None


def suspects(database: Database, experiment_id: int) -> list[Suspect]:
    """Find the slowdowns of an ended experiment, or decide the slowdown that it was queued to confirm."""
    with database.read() as session:
        experiment = session.get(Experiment, experiment_id)
        if experiment is None or experiment.request.get("calibrates"):
            return []
        confirms = experiment.request.get("confirms")
        if experiment.request.get("builds") and not confirms:  # its runs are in no series
            return []
        run_ids = [confirms] if confirms else [run.id for run in _slower(session, experiment_id)]
        run_ids = [run_id for run_id in run_ids if session.get(Run, run_id) is not None]
    histories = [analyses.history_of(database, NOISE_FLOOR, analyses.LATEST, run_id) for run_id in run_ids]
    return [suspect for found in histories for series in found for suspect in _suspects(series)]


def _suspects(series: Series) -> Iterator[Suspect]:
    order = [point.run_id for point in series.points]
    for alert in series.alerts:
        where = order.index(alert.change.first_after)
        near = order[max(0, where - MOVES) : where + MOVES + 1]
        yield Suspect(
            alert.change.first_after, near, alert.change == series.changes[-1], alert.state, alert.change.ratio,
            alert.reason, alert.confirming_experiment_id,
        )  # fmt: skip


def page(
    database: Database, states: list[AlertState], mode: str | None, cursor: str | None, limit: int
) -> AlertPage:
    """Alerts, newest first. Raises BadCursor."""
    before = paging.decode_id(cursor)
    query = select(Alert).order_by(Alert.id.desc()).limit(limit + 1)
    if states:
        query = query.where(Alert.state.in_(states))
    if mode is not None:
        query = query.join(Run, Run.id == Alert.run_id).where(raised.mode_of_run == mode)
    if before is not None:
        query = query.where(Alert.id < before)
    with database.read() as session:
        rows, more = paging.split(session.scalars(query).all(), limit)
        items = raised.summaries(session, rows)
    return AlertPage(items=items, next_cursor=paging.encode(rows[-1].id) if more else None)


def _slower(session: Session, experiment_id: int) -> Iterator[Run]:
    """One run of each configuration that was slower than its earlier runs. Only these configurations are searched."""
    by_spec: dict[str, list[Run]] = {}
    succeeded = select(Run).where(Run.experiment_id == experiment_id, Run.state == "succeeded")
    for run in session.scalars(succeeded.order_by(Run.id)):
        by_spec.setdefault(str(run.spec), []).append(run)
    for mine in by_spec.values():
        before = select(Run.median_step_s).where(
            Run.shape == mine[0].shape, Run.state == "succeeded", Run.id < mine[0].id
        )
        before_s = [s for s in session.scalars(before.order_by(Run.id.desc()).limit(analyses.LATEST)) if s is not None]
        mine_s = [run.median_step_s for run in mine if run.median_step_s is not None]
        if before_s and mine_s and median(mine_s) > (1 + NOISE_FLOOR) * median(before_s):
            yield mine[0]
