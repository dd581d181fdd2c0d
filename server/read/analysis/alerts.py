"""Alerts: a row for each change to slower steps, which fresh runs confirm or dismiss.

Once an experiment has ended, it is searched. What is found is run again without being asked, as anybody could have it
done over HTTP; nothing is called a regression here. What has been searched stands at the experiment, so that a server
that was stopped, or another one, goes on where it was.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from anyio import to_thread
from pydantic import TypeAdapter
from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from gpt2core.spec.result import median
from taskloom.analysis.comparison import NOISE_FLOOR
from taskloom.analysis.history import MOVES, Series, State
from taskloom.contract.analysis import AlertPage, AlertState, AlertSummary
from taskloom.contract.experiments import ExperimentDetail
from taskloom.contract.webhooks import AlertChanged
from taskloom.server import paging
from taskloom.server.db import LOCKED, Database, hold, now, utc
from taskloom.server.errors import AnalysisTooLong, InvalidRequest, QueueFull, TooManyQuestions
from taskloom.server.queue.experiments.models import Experiment
from taskloom.server.queue.experiments.service import show, submit
from taskloom.server.queue.runs.models import Run
from taskloom.server.read.analysis import service
from taskloom.server.read.analysis.models import Alert
from taskloom.server.read.pool import Pool
from taskloom.server.settings import Settings
from taskloom.server.webhooks import service as webhooks

log = logging.getLogger("taskloom.server")
AT_ONCE = 20  # experiments that one look searches
OWNER = "alerts"  # of the idempotency keys of confirmations: asked for twice, by people or servers, one is queued


@dataclass(frozen=True)
class Suspect:
    """A change for the slower that a search found, and what history says of it. near: runs around it, as with more
    runs it may move a little; latest: it is its series' last change."""

    run_id: int
    near: list[int]
    latest: bool
    state: State
    ratio: float
    reason: str
    confirming_experiment_id: int | None


SUSPECTS = TypeAdapter(list[Suspect])


class Alerts:
    """Searches experiments that ended, in the pool, when it is told to."""

    def __init__(self, database: Database, settings: Settings, pool: Pool) -> None:
        self._database, self._settings, self._pool = database, settings, pool

    async def look(self) -> bool:
        """Search what ended since, and have what became slower run again; whether any runs were queued."""
        queued = False
        for experiment in await to_thread.run_sync(self._ended):
            try:
                found = await self._pool.answer("suspects", (experiment.id,), None)
            except TooManyQuestions:  # or the server stops: it is searched at the next look
                break
            except AnalysisTooLong:
                log.warning("experiment %s: it takes too long to find what became slower", experiment.id)
                found = b"[]"
            queued = await to_thread.run_sync(self._note, experiment, SUSPECTS.validate_json(found)) or queued
        return queued

    def _ended(self) -> Sequence[Experiment]:
        unsearched = or_(Experiment.alerts_at.is_(None), Experiment.alerts_at < Experiment.finished_at)
        ended = select(Experiment).where(Experiment.finished_at.is_not(None), unsearched)
        with self._database.read() as session:
            return session.scalars(ended.order_by(Experiment.finished_at).limit(AT_ONCE)).all()

    def _note(self, experiment: Experiment, suspects: Sequence[Suspect]) -> bool:
        """Keep what was found, and have it run again; whether any runs were queued."""
        queued = False
        if suspects:
            self._keep(suspects)
        for suspect in suspects:
            if suspect.latest and suspect.confirming_experiment_id is None and self._settings.confirm_alerts:
                queued = self._confirm(suspect.run_id) or queued
        # Only now: a server that is stopped meanwhile searches it again, which changes nothing.
        searched = update(Experiment).where(Experiment.id == experiment.id)
        with self._database.write() as session:
            session.execute(searched.values(alerts_at=experiment.finished_at))
        return queued

    def _confirm(self, run_id: int) -> bool:
        try:
            _, new = confirm(self._database, self._settings, run_id)
        except (InvalidRequest, QueueFull) as error:  # no such node any more, or no room: it stays suspected
            log.warning("what became slower at run %s cannot be run again: %s", run_id, error)
            return False
        if new:
            log.info("what became slower at run %s is run again", run_id)
        return new

    def _keep(self, suspects: Sequence[Suspect]) -> None:
        """Bring the rows to what history says."""
        with self._database.write() as session:
            hold(session, "alerts")  # another server may look at the same moment
            at = now(session)
            for found in suspects:
                row = session.scalars(select(Alert).where(Alert.run_id.in_(found.near)).order_by(Alert.id)).first()
                if row is None:
                    row = Alert(run_id=found.run_id, raised_at=at, state="", changed_at=at)
                    session.add(row)
                changed = row.state != found.state
                if changed:
                    row.state, row.changed_at = found.state, at
                row.ratio, row.reason = found.ratio, found.reason
                row.confirming_experiment_id = found.confirming_experiment_id
                if changed:
                    _tell(session, row)


def suspects(database: Database, experiment_id: int) -> list[Suspect]:
    """Find alerts of an ended experiment, or decide those that it confirms."""
    with database.read() as session:
        experiment = session.get(Experiment, experiment_id)
        if experiment is None or experiment.request.get("calibrates"):
            return []
        confirms = experiment.request.get("confirms")
        run_ids = [confirms] if confirms else [run.id for run in _slower(session, experiment_id)]
        run_ids = [run_id for run_id in run_ids if session.get(Run, run_id) is not None]
    histories = [service.history_of(database, NOISE_FLOOR, service.LATEST, run_id) for run_id in run_ids]
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


def confirm(
    database: Database, settings: Settings, run_id: int, key_id: int | None = None
) -> tuple[ExperimentDetail, bool]:
    """Queue fresh runs of what changed at a run; the second value says whether they are new, or were asked for before.

    Raises NotFound, InvalidRequest or QueueFull.
    """
    key = f"confirm run {run_id}"
    with database.read() as session:
        asked = select(Experiment.id).where(Experiment.owner == OWNER, Experiment.idempotency_key == key)
        experiment_id = session.scalar(asked)
    if experiment_id is not None:  # which builds workers have kept may have changed since
        return show(database, experiment_id), False
    request = service.confirmation(database, run_id)
    detail, new = submit(database, settings, request, OWNER, key, key_id)
    if new:
        with database.write() as session:
            row = session.scalars(select(Alert).where(Alert.run_id == run_id).with_for_update(**LOCKED)).first()
            if row is not None:
                row.state, row.reason, row.changed_at = "confirming", "fresh runs are queued", now(session)
                row.confirming_experiment_id = detail.id
                _tell(session, row)
    return detail, new


def _tell(session: Session, row: Alert) -> None:
    session.flush()  # a new one gets its id
    webhooks.enqueue(session, "alert", AlertChanged(alert=summary(row)))


def page(database: Database, states: list[AlertState], cursor: str | None, limit: int) -> AlertPage:
    """Alerts, newest first. Raises BadCursor."""
    before = paging.decode_id(cursor)
    query = select(Alert).order_by(Alert.id.desc()).limit(limit + 1)
    if states:
        query = query.where(Alert.state.in_(states))
    if before is not None:
        query = query.where(Alert.id < before)
    with database.read() as session:
        rows, more = paging.split(session.scalars(query).all(), limit)
    return AlertPage(items=[summary(row) for row in rows], next_cursor=paging.encode(rows[-1].id) if more else None)


def summary(row: Alert) -> AlertSummary:
    """An alert as lists show it."""
    return AlertSummary(
        id=row.id,
        run_id=row.run_id,
        state=row.state,
        ratio=row.ratio,
        reason=row.reason,
        confirming_experiment_id=row.confirming_experiment_id,
        raised_at=utc(row.raised_at),
        changed_at=utc(row.changed_at),
    )


def _slower(session: Session, experiment_id: int) -> Iterator[Run]:
    """A run of each configuration that took longer than the runs before it: only those are worth reading a history
    for."""
    by_spec: dict[str, list[Run]] = {}
    succeeded = select(Run).where(Run.experiment_id == experiment_id, Run.state == "succeeded")
    for run in session.scalars(succeeded.order_by(Run.id)):
        by_spec.setdefault(str(run.spec), []).append(run)
    for mine in by_spec.values():
        before = select(Run.median_step_s).where(
            Run.shape == mine[0].shape, Run.state == "succeeded", Run.id < mine[0].id
        )
        before_s = [s for s in session.scalars(before.order_by(Run.id.desc()).limit(service.LATEST)) if s is not None]
        mine_s = [run.median_step_s for run in mine if run.median_step_s is not None]
        if before_s and mine_s and median(mine_s) > (1 + NOISE_FLOOR) * median(before_s):
            yield mine[0]
