"""What has become slower is run again without being asked: once an experiment has ended, an alert that its runs raise
gets its confirming runs queued, as anybody could have it done over HTTP. Nothing is called a regression here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from queue import Empty, SimpleQueue

from sqlalchemy import select
from sqlalchemy.orm import Session

from gpt2core.spec.result import median
from taskloom.analysis.comparison import NOISE_FLOOR
from taskloom.server.db import Database
from taskloom.server.errors import InvalidRequest, QueueFull
from taskloom.server.queue.attempts.models import Attempt
from taskloom.server.queue.experiments.models import Experiment
from taskloom.server.queue.experiments.service import submit
from taskloom.server.queue.runs.models import Run
from taskloom.server.queue.runs.states import ACTIVE
from taskloom.server.read.analysis import service
from taskloom.server.settings import Settings

log = logging.getLogger("taskloom.server")
LATEST = 200  # runs of a configuration that are looked at


class Alerts:
    """Hears of attempts that ended, on any thread, and looks at their experiments when it is told to."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database, self._settings = database, settings
        self._ended: SimpleQueue[int] = SimpleQueue()

    def heard(self, attempt_id: int) -> None:
        """An attempt has ended."""
        if self._settings.confirm_alerts:
            self._ended.put(attempt_id)

    def look(self) -> bool:
        """Queue fresh runs of what became slower in experiments that ended since; whether any were queued."""
        ended = set(_drained(self._ended))
        if not ended:
            return False
        with self._database.read() as session:
            found = {run.id for run in _slower(session, ended)}
        suspected = {
            alert.change.first_after
            for run_id in found
            for series in service.history(self._database, NOISE_FLOOR, LATEST, run_id)
            for alert in series.alerts
            if alert.change == series.changes[-1] and alert.confirming_experiment_id is None
        }
        queued = [run_id for run_id in sorted(suspected) if self._confirm(run_id)]
        return bool(queued)

    def _confirm(self, run_id: int) -> bool:
        try:
            request = service.confirmation(self._database, run_id)
            _, new = submit(self._database, self._settings, request, service.confirmation_key(run_id), None)
        except (InvalidRequest, QueueFull) as error:  # no such node any more, or no room: it stays suspected
            log.warning("what became slower at run %s cannot be run again: %s", run_id, error)
            return False
        if new:
            log.info("what became slower at run %s is run again", run_id)
        return new


def _drained(queue: SimpleQueue[int]) -> Iterator[int]:
    while True:
        try:
            yield queue.get_nowait()
        except Empty:
            return


def _slower(session: Session, attempt_ids: set[int]) -> Iterator[Run]:
    """Of experiments that ended with one of these attempts, a run of each configuration that took longer than the runs
    before it: only those are worth reading a history for."""
    runs = select(Run.experiment_id).join(Attempt, Attempt.run_id == Run.id).where(Attempt.id.in_(attempt_ids))
    for experiment_id in set(session.scalars(runs)):
        of_it = select(Run).where(Run.experiment_id == experiment_id)
        request = session.get_one(Experiment, experiment_id).request
        is_open = session.scalars(of_it.where(Run.state.in_(("queued", *ACTIVE))).limit(1)).first() is not None
        if is_open or request.get("confirms") or request.get("calibrates"):
            continue
        by_spec: dict[str, list[Run]] = {}
        for run in session.scalars(of_it.where(Run.state == "succeeded").order_by(Run.id)):
            by_spec.setdefault(str(run.spec), []).append(run)
        for mine in by_spec.values():
            before = select(Run.median_step_s).where(
                Run.shape == mine[0].shape, Run.state == "succeeded", Run.id < mine[0].id
            )
            before_s = [s for s in session.scalars(before.order_by(Run.id.desc()).limit(LATEST)) if s is not None]
            mine_s = [run.median_step_s for run in mine if run.median_step_s is not None]
            if before_s and mine_s and median(mine_s) > (1 + NOISE_FLOOR) * median(before_s):
                yield mine[0]
