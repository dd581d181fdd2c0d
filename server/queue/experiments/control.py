"""Changes of an experiment: its name, tags and notes; cancel and retry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from taskloom.contract.experiments import (
    ExperimentChange,
    ExperimentDetail,
)
from taskloom.server.db import LOCKED, Database, existing, now
from taskloom.server.errors import (
    InvalidTransition,
)
from taskloom.server.queue.experiments.details import detail, summaries
from taskloom.server.queue.experiments.submission import tag
from taskloom.server.queue.runs.control import DECIDING, cancel_locked, retry_locked
from taskloom.server.queue.tables.experiments import Experiment, ExperimentTag
from taskloom.server.queue.tables.runs import Run
from taskloom.server.queue.tables.states import OPEN, RUN
from taskloom.server.queue.transitions import ends
from taskloom.server.queue.transitions.changes import Cause


def change(database: Database, experiment_id: int, request: ExperimentChange) -> ExperimentDetail:
    """Change its name, tags or notes. Raises NotFound."""
    with database.write() as session:
        experiment = existing(session, Experiment, experiment_id, lock=True)
        if request.name is not None:
            experiment.name = request.name
        if request.notes is not None:
            experiment.notes = request.notes
        if request.tags is not None:
            session.execute(delete(ExperimentTag).where(ExperimentTag.experiment_id == experiment_id))
            tag(session, experiment_id, request.tags)
        session.flush()
        return detail(session, experiment)


def cancel(database: Database, experiment_id: int, actor: str) -> ExperimentDetail:
    """Cancel every unfinished run: queued ones at once, others at their next heartbeat. Idempotent.

    Raises NotFound or InvalidTransition.
    """
    with database.write() as session:
        experiment = existing(session, Experiment, experiment_id, lock=True)  # no block is added meanwhile
        open_runs = _locked(session, experiment_id, OPEN)
        if not open_runs and experiment.cancelled_at is None and not experiment.undecided:
            raise InvalidTransition(
                f"experiment {experiment_id} is finished; there is nothing to cancel", current="finished", allowed=[]
            )
        cause = Cause(actor, now(session))
        cancel_locked(session, open_runs, cause)
        experiment.cancelled_at = experiment.cancelled_at or cause.at
        session.flush()
        ends.close_locked(session, experiment)
        return detail(session, experiment)


def retry(database: Database, experiment_id: int, actor: str) -> ExperimentDetail:
    """Queue every failed, cancelled or quarantined run again. A stopping rule or a tuning that was cancelled between
    two blocks continues. Raises NotFound or InvalidTransition."""
    with database.write() as session:
        experiment = existing(session, Experiment, experiment_id, lock=True)
        cause = Cause(actor, now(session))
        runs = _locked(session, experiment_id, tuple(RUN.verbs["retry"]))
        if not runs and not (experiment.is_open_ended and experiment.cancelled_at is not None):
            state = summaries(session, [experiment])[0].state
            raise InvalidTransition(
                f"experiment {experiment_id} is {state}; none of its runs can be retried", current=state, allowed=[]
            )
        retry_locked(session, runs, cause)
        experiment.cancelled_at = None
        ends.reopen(experiment)
        session.flush()
        return detail(session, experiment)


def _locked(session: Session, experiment_id: int, states: tuple[str, ...]) -> Sequence[Any]:
    """The experiment's runs in these states, locked, as rows of the columns DECIDING."""
    query = select(*DECIDING).where(Run.experiment_id == experiment_id, Run.state.in_(states))
    return session.execute(query.order_by(Run.id).with_for_update(**LOCKED)).all()
