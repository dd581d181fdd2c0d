"""Alerts: a row for each change to slower steps, which fresh runs confirm or dismiss, and for each series whose runs
are outside its threshold.

An experiment is searched once it has ended. Fresh runs of a slowdown are queued automatically; users can also queue
them over HTTP. Only these runs confirm a regression. The experiment records that it was searched, so that no server
searches it again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from anyio import to_thread
from pydantic import TypeAdapter
from sqlalchemy import or_, select, update

from taskloom.analysis.thresholds import EXCEEDED
from taskloom.contract.experiments import ExperimentDetail, ExperimentRequest
from taskloom.server.access.keys.keyring import ANYBODY, Caller
from taskloom.server.alerts import raised
from taskloom.server.alerts.models import Alert
from taskloom.server.db import LOCKED, Database, hold, now
from taskloom.server.errors import AnalysisTooLong, InvalidRequest, QueueFull, QuotaUsed, TooManyQuestions
from taskloom.server.queue.experiments.details import show
from taskloom.server.queue.experiments.submission import submit
from taskloom.server.queue.tables.experiments import Experiment
from taskloom.server.read.analysis.alerts import Suspect
from taskloom.server.read.analysis.thresholds import Judgement
from taskloom.server.read.pool import Pool
from taskloom.server.settings import Settings
from taskloom.server.threads import Threads

log = logging.getLogger("taskloom.server")
AT_ONCE = 20  # experiments per look
OWNER = "alerts"  # owner of the idempotency keys of confirmations, so that repeated requests queue only one
SUSPECTS = TypeAdapter(list[Suspect])
JUDGEMENTS = TypeAdapter(list[Judgement])


class Alerts:
    """Searches ended experiments in the analysis pool with each call of `look`, and queues confirmations."""

    def __init__(self, database: Database, settings: Settings, pool: Pool, control: Threads) -> None:
        self._database, self._settings, self._pool, self._control = database, settings, pool, control

    async def look(self) -> bool:
        """Search recently ended experiments, and queue confirmations; return whether runs were queued."""
        queued = False
        for experiment in await to_thread.run_sync(self._ended):
            try:
                queued = await self._search(experiment) or queued
            except TooManyQuestions:  # also while the server stops; the next call searches the experiment
                break
            # Recorded last: if the server stops before, the search is repeated, which changes nothing.
            await to_thread.run_sync(self._note_searched, experiment)
        return queued

    async def _search(self, experiment: Experiment) -> bool:
        """Store alerts, and queue confirmations; return whether runs were queued. Raises TooManyQuestions."""
        try:
            found = SUSPECTS.validate_json(await self._pool.answer("suspects", (experiment.id,), None))
            judged = JUDGEMENTS.validate_json(await self._pool.answer("judgements", (experiment.id,), None))
        except AnalysisTooLong:
            log.warning("experiment %s: the search for alerts took too long", experiment.id)
            return False
        if found or judged:
            await to_thread.run_sync(self._keep, found, judged)
        queued = False
        for suspect in found:
            if suspect.latest and suspect.confirming_experiment_id is None and self._settings.confirm_alerts:
                queued = await self._confirm(suspect.run_id) or queued
        return queued

    async def _confirm(self, run_id: int) -> bool:
        try:
            _, new = await self.confirm(run_id)
        # No worker can run it, the queue is full, or the analysis takes too long: the alert stays suspected.
        except (InvalidRequest, QueueFull, QuotaUsed, AnalysisTooLong) as error:
            log.warning("no fresh runs of the slowdown at run %s were queued: %s", run_id, error)
            return False
        if new:
            log.info("fresh runs of the slowdown at run %s were queued", run_id)
        return new

    async def confirm(self, run_id: int, caller: Caller = ANYBODY) -> tuple[ExperimentDetail, bool]:
        """Queue fresh runs of the change at a run. Returns their experiment, and whether it is new.

        Raises NotFound, InvalidRequest, QueueFull, QuotaUsed, AnalysisTooLong or TooManyQuestions.
        """
        known = await self._control.run(_confirming, self._database, run_id)
        if known is not None:  # not computed again, since the stored builds may have changed since
            return known, False
        request = await self._pool.answer("confirmation", (run_id,), None)
        return await self._control.run(_queue, self._database, self._settings, run_id, request, caller)

    async def judge(self, series_id: int) -> None:
        """Store what the newest runs of a series are by its threshold. Raises AnalysisTooLong or TooManyQuestions."""
        judged = JUDGEMENTS.validate_json(await self._pool.answer("newest", (series_id,), None))
        await self._control.run(self._keep, (), judged)

    def _ended(self) -> Sequence[Experiment]:
        unsearched = or_(Experiment.alerts_at.is_(None), Experiment.alerts_at < Experiment.finished_at)
        ended = select(Experiment).where(Experiment.finished_at.is_not(None), unsearched)
        with self._database.read() as session:
            return session.scalars(ended.order_by(Experiment.finished_at).limit(AT_ONCE)).all()

    def _note_searched(self, experiment: Experiment) -> None:
        searched = update(Experiment).where(Experiment.id == experiment.id)
        with self._database.write() as session:
            session.execute(searched.values(alerts_at=experiment.finished_at))

    def _keep(self, suspects: Sequence[Suspect], judged: Sequence[Judgement]) -> None:
        """Update the rows of alerts from the history and by the thresholds."""
        with self._database.write() as session:
            hold(session, "alerts")  # another server may search at the same moment
            at = now(session)
            for found in suspects:
                near = select(Alert).where(Alert.kind == "change", Alert.run_id.in_(found.near)).order_by(Alert.id)
                row = session.scalars(near).first()
                if row is None:
                    row = raised.new(session, "change", found.run_id, at)
                row.confirming_experiment_id = found.confirming_experiment_id
                raised.update(session, row, found.state, found.ratio, found.reason, at)
            for each in judged:
                row = raised.of_threshold(session, each.series_id, each.run_id)
                if row is None and each.state in EXCEEDED:
                    row = raised.new(session, "threshold", each.run_id, at)
                if row is not None and each.state != "undecided":
                    raised.update(session, row, each.state, each.ratio, each.sentence, at)


def _key(run_id: int) -> str:
    return f"confirm run {run_id}"


def _confirming(database: Database, run_id: int) -> ExperimentDetail | None:
    """The experiment that confirms the change at a run."""
    query = select(Experiment.id).where(Experiment.owner == OWNER, Experiment.idempotency_key == _key(run_id))
    with database.read() as session:
        experiment_id = session.scalar(query)
    return None if experiment_id is None else show(database, experiment_id)


def _queue(
    database: Database, settings: Settings, run_id: int, body: bytes, caller: Caller
) -> tuple[ExperimentDetail, bool]:
    """Submit the request of `confirmation`. Raises InvalidRequest, QueueFull or QuotaUsed."""
    request = ExperimentRequest.model_validate_json(body)
    detail, new = submit(database, settings, request, OWNER, _key(run_id), caller)
    if new:
        of_it = Alert.kind == "change", Alert.run_id == run_id
        with database.write() as session:
            row = session.scalars(select(Alert).where(*of_it).with_for_update(**LOCKED)).first()
            if row is not None:
                row.confirming_experiment_id = detail.id
                raised.update(session, row, "confirming", row.ratio, "fresh runs are queued", now(session))
    return detail, new
