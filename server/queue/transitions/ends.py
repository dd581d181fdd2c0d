"""The end of an experiment: when its last run has ended and no further one follows."""

from __future__ import annotations

from sqlalchemy import ColumnElement, and_, exists, func, select
from sqlalchemy.orm import Session

from taskloom.server.db import LOCKED, Database
from taskloom.server.queue.tables.experiments import Experiment
from taskloom.server.queue.tables.runs import Run
from taskloom.server.queue.tables.states import OPEN


def reopen(experiment: Experiment) -> None:
    """Reopen the experiment of a retried run. Its stopping rule, or its tuning, decides again once the run
    has ended."""
    experiment.finished_at = experiment.verdict = None
    if experiment.is_open_ended:
        experiment.undecided, experiment.stop_reason = True, None


def close(database: Database) -> None:
    """Set the end of experiments without open or further runs to the end of their last run."""
    undecided = and_(Experiment.undecided, Experiment.cancelled_at.is_(None))
    with database.read() as session:
        query = select(Experiment.id).where(Experiment.finished_at.is_(None), ~undecided, ~has_open_run())
        ended = session.scalars(query.order_by(Experiment.id)).all()
    for experiment_id in ended:
        with database.write() as session:
            experiment = session.get(Experiment, experiment_id, with_for_update=LOCKED)
            if experiment is not None:
                close_locked(session, experiment)


def close_locked(session: Session, experiment: Experiment) -> None:
    """Set the end of one locked experiment, if none of its runs is open."""
    if not is_open(session, experiment.id):
        # + 0: without it PostgreSQL scans the indexes over the runs of all experiments.
        bounds = func.min(Run.started_at + 0.0), func.max(Run.finished_at + 0.0)
        of_it = select(*bounds).where(Run.experiment_id == experiment.id)
        started_at, experiment.finished_at = session.execute(of_it).one()
        experiment.started_at = experiment.started_at or started_at


def has_open_run() -> ColumnElement[bool]:
    """SQL: a run of the experiment has not ended."""
    return exists().where(Run.experiment_id == Experiment.id, Run.state.in_(OPEN))


def is_open(session: Session, experiment_id: int) -> bool:
    still = select(Run.id).where(Run.experiment_id == experiment_id, Run.state.in_(OPEN)).limit(1)
    return session.execute(still).first() is not None
