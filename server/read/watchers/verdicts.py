"""Verdict of an ended experiment, stored for lists."""

from __future__ import annotations

import json
import logging
from typing import Any

from anyio import to_thread
from sqlalchemy import ColumnElement, or_, select, update

from taskloom.contract.webhooks import TuningConfirmed, VerdictKnown
from taskloom.server.db import Database, db_now
from taskloom.server.errors import NotFound, OutOfResources, ServerError, TooManyQuestions
from taskloom.server.queue.experiments import blocks
from taskloom.server.queue.experiments.details import summaries
from taskloom.server.queue.tables.experiments import Experiment
from taskloom.server.read.pool import Pool
from taskloom.server.read.tuning.kept import keep
from taskloom.server.settings import Settings
from taskloom.server.webhooks import subscriptions

RECENT_S = 7 * 86400.0  # experiments that ended earlier get no verdict
AT_ONCE = 4
log = logging.getLogger("taskloom.server")


class Verdicts:
    """Computes verdicts of ended experiments in the analysis pool."""

    def __init__(self, database: Database, settings: Settings, pool: Pool) -> None:
        self._database, self._settings, self._pool = database, settings, pool

    async def look(self) -> None:
        """Store the verdicts of recently ended experiments."""
        if not self._settings.keep_verdicts:
            return
        for experiment_id, finished_at, tunes in await to_thread.run_sync(self._ended):
            tuned = None
            try:
                kept = json.loads(await self._pool.answer("verdict", (experiment_id, finished_at), None))
                if tunes:
                    tuned = json.loads(await self._pool.answer("tuning", (experiment_id,), None))
                    tuned["kept"] = json.loads(await self._pool.answer("kept", (experiment_id,), None))
            except (TooManyQuestions, OutOfResources):
                return  # the next call tries again
            except NotFound:
                continue
            except ServerError as error:
                log.warning("experiment %s has no verdict: %s", experiment_id, error)
                kept = None
            await to_thread.run_sync(self._keep, experiment_id, finished_at, kept, tuned)

    def _ended(self) -> list[tuple[int, float, bool]]:
        ended = select(Experiment.id, Experiment.finished_at, blocks.tunes()).where(
            Experiment.finished_at > db_now() - RECENT_S, _unseen()
        )
        with self._database.read() as session:
            rows = session.execute(ended.order_by(Experiment.finished_at.desc()).limit(AT_ONCE))
            return [(experiment_id, finished_at or 0.0, tunes) for experiment_id, finished_at, tunes in rows]

    def _keep(
        self, experiment_id: int, finished_at: float, kept: dict[str, Any] | None, tuned: dict[str, Any] | None
    ) -> None:
        """Store a verdict unless another server has done so or the experiment goes on. Webhooks get one message, and
        one on a confirmed tuning."""
        of_it = update(Experiment).where(
            Experiment.id == experiment_id, Experiment.finished_at == finished_at, _unseen()
        )
        with self._database.write() as session:
            found = session.execute(of_it.values(verdict=kept, verdict_at=finished_at).returning(Experiment.id))
            if found.first() is not None and kept is not None:
                (summary,) = summaries(session, [session.get_one(Experiment, experiment_id)])
                subscriptions.enqueue(session, "verdict", VerdictKnown(experiment=summary))
                if tuned is not None and tuned["confirmed"] is not None:
                    confirmed = TuningConfirmed.model_validate({**tuned, **tuned["confirmed"], "experiment": summary})
                    subscriptions.enqueue(session, "tuning.confirmed", confirmed)
                    if tuned["kept"] is not None:
                        keep(session, experiment_id, finished_at, tuned["kept"])
                log.info("experiment %s has ended: %s", experiment_id, kept["sentence"])


def _unseen() -> ColumnElement[bool]:
    """SQL: no verdict was stored since the experiment ended."""
    return or_(Experiment.verdict_at.is_(None), Experiment.verdict_at < Experiment.finished_at)
