"""Remaining time of the queue: open runs times the mean time of their experiments' latest runs, over the present
workers. The work grows with the queue, not with the ended runs."""

from __future__ import annotations

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
LATEST = 200  # latest ended runs, whose mean is used for experiments without an ended run


@dataclass(frozen=True)
class Eta:
    """Seconds until each active experiment has ended, and until all have; None: unknown."""

    by_experiment: dict[int, float | None]
    total_s: float | None


def eta(session: Session, settings: Settings) -> Eta:
    """Estimate with experiments in the order of priority and age, and one run per worker at a time."""
    is_active = Experiment.finished_at.is_(None)
    active = select(Experiment.id).where(is_active)
    priority = func.coalesce(Experiment.request["priority"].as_integer(), 0)
    priorities = {row[0]: row[1] for row in session.execute(select(Experiment.id, priority).where(is_active))}
    left = select(Run.experiment_id, func.count(), func.min(Run.id))
    left = left.where(Run.experiment_id.in_(active), Run.state.in_(OPEN)).group_by(Run.experiment_id)
    open_runs = {row[0]: (row[1], row[2]) for row in session.execute(left)}
    mean_s = {row[0]: row[1] for row in session.execute(select(Experiment.id, _mean_s()).where(is_active))}
    usual_s = _usual_s(session)
    workers = _present(session, settings)
    found: dict[int, float | None] = dict.fromkeys(priorities)
    total_s: float | None = 0.0 if workers else None
    for experiment_id in sorted(open_runs, key=lambda each: (-priorities.get(each, 0), open_runs[each][1])):
        each_s = mean_s.get(experiment_id) or usual_s
        count, _ = open_runs[experiment_id]
        total_s = None if total_s is None or each_s is None else total_s + count * each_s / workers
        found[experiment_id] = total_s
    return Eta(found, total_s)


def _mean_s() -> ScalarSelect[float | None]:
    """SQL: mean time of an experiment's latest runs."""
    took = select((Run.finished_at - Run.started_at).label("took_s"))
    took = took.where(Run.experiment_id == Experiment.id, Run.state == "succeeded")
    latest = took.order_by(Run.id.desc()).limit(OF_EXPERIMENT).correlate(Experiment).subquery()
    return select(func.avg(latest.c.took_s)).scalar_subquery()


def _usual_s(session: Session) -> float | None:
    """Mean time of the latest runs. No condition on the state, along which SQLite would search."""
    ended = select(Run.state, Run.started_at, Run.finished_at).where(Run.finished_at.is_not(None))
    latest = session.execute(ended.order_by(Run.finished_at.desc(), Run.id.desc()).limit(LATEST))
    took = [end - start for state, start, end in latest if state == "succeeded" and start and end]
    return sum(took) / len(took) if took else None


def _present(session: Session, settings: Settings) -> int:
    """Workers that sent a message recently and have not left."""
    present = select(func.count()).select_from(Worker)
    present = present.where(Worker.seen_at > db_now() - settings.block_release_s, Worker.left_at.is_(None))
    return session.execute(present).scalar_one()
