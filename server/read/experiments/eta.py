"""Remaining time of the queue: open runs times the mean time of their experiments' latest runs, divided by the number
of present workers.

The cost of an estimate grows with the queue, not with the number of ended runs. Means are cached between estimates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import ScalarSelect, func, select
from sqlalchemy.orm import Session

from taskloom.server.db import db_now
from taskloom.server.queue.experiments.models import Experiment
from taskloom.server.queue.runs.models import Run
from taskloom.server.queue.runs.states import OPEN
from taskloom.server.queue.workers.models import Worker
from taskloom.server.settings import Settings

OF_EXPERIMENT = 30  # latest runs of an experiment, whose mean is used
AT_ONCE = 500  # experiments per statement
LATEST = 200  # latest ended runs, whose mean is used for experiments without an ended run


@dataclass(frozen=True)
class Eta:
    """Seconds until each active experiment has ended, and until all of them have. None: unknown."""

    by_experiment: dict[int, float | None]
    total_s: float | None


@dataclass(frozen=True)
class _Queued:
    """An experiment with open runs. open_runs: their number and first id. mean_s: mean time of its latest runs; None:
    unknown."""

    open_runs: tuple[int, int]
    priority: int
    mean_s: float | None


class Etas:
    """Estimates, for any thread. An experiment's mean is read again when its open runs have changed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._queued: Mapping[int, _Queued] = {}  # of the last estimate

    def estimate(self, session: Session) -> Eta:
        """Estimate with experiments in the order of priority and age, and one run per worker at a time."""
        active = select(Experiment.id).where(Experiment.finished_at.is_(None))
        left = select(Run.experiment_id, func.count(), func.min(Run.id))
        left = left.where(Run.experiment_id.in_(active), Run.state.in_(OPEN)).group_by(Run.experiment_id)
        queued = self._read(session, {row[0]: (row[1], row[2]) for row in session.execute(left)})
        usual_s = _usual_s(session)
        workers = _present(session, self._settings)
        found: dict[int, float | None] = dict.fromkeys(session.scalars(active))
        total_s: float | None = 0.0 if workers else None
        for experiment_id, each in sorted(queued.items(), key=lambda item: (-item[1].priority, item[1].open_runs[1])):
            each_s = each.mean_s or usual_s
            total_s = None if total_s is None or each_s is None else total_s + each.open_runs[0] * each_s / workers
            found[experiment_id] = total_s
        return Eta(found, total_s)

    def _read(self, session: Session, open_runs: Mapping[int, tuple[int, int]]) -> Mapping[int, _Queued]:
        queued = {each: known for each, known in self._queued.items() if known.open_runs == open_runs.get(each)}
        changed = [each for each in open_runs if each not in queued]
        priority = func.coalesce(Experiment.request["priority"].as_integer(), 0)
        for first in range(0, len(changed), AT_ONCE):
            query = select(Experiment.id, priority, _mean_s())
            query = query.where(Experiment.id.in_(changed[first : first + AT_ONCE]))
            for experiment_id, rank, mean_s in session.execute(query):
                queued[experiment_id] = _Queued(open_runs[experiment_id], rank, mean_s)
        self._queued = queued
        return queued


def _mean_s() -> ScalarSelect[float | None]:
    """SQL: mean time of an experiment's latest runs."""
    took = select((Run.finished_at - Run.started_at).label("took_s"))
    took = took.where(Run.experiment_id == Experiment.id, Run.state == "succeeded")
    latest = took.order_by(Run.id.desc()).limit(OF_EXPERIMENT).correlate(Experiment).subquery()
    return select(func.avg(latest.c.took_s)).scalar_subquery()


def _usual_s(session: Session) -> float | None:
    """Mean time of the latest runs. The query has no condition on the state, since SQLite would search by state."""
    ended = select(Run.state, Run.started_at, Run.finished_at).where(Run.finished_at.is_not(None))
    latest = session.execute(ended.order_by(Run.finished_at.desc(), Run.id.desc()).limit(LATEST))
    took = [end - start for state, start, end in latest if state == "succeeded" and start and end]
    return sum(took) / len(took) if took else None


def _present(session: Session, settings: Settings) -> int:
    """Workers that sent a message recently and have not left."""
    present = select(func.count()).select_from(Worker)
    present = present.where(Worker.seen_at > db_now() - settings.block_release_s, Worker.left_at.is_(None))
    return session.execute(present).scalar_one()
