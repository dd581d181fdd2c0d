"""What there is to tell of a run or an experiment at this moment."""

from __future__ import annotations

from sqlalchemy import ColumnElement, and_, select
from sqlalchemy.orm import Session

from taskloom.contract.events import ExperimentEvent, RunEvent
from taskloom.contract.runs import Progress
from taskloom.server.db import Database
from taskloom.server.errors import NotFound
from taskloom.server.queue.attempts import output
from taskloom.server.queue.attempts.models import Attempt, is_active
from taskloom.server.queue.experiments import service as experiments
from taskloom.server.queue.runs.models import Run
from taskloom.server.queue.runs.states import ACTIVE, RUN
from taskloom.server.read.events.stream import Seen

TRIES = 5  # looks at an experiment until its counts and its runs agree


LINES = 200  # that one look at a run takes in


def run(database: Database, run_id: int, last_line: int) -> Seen:
    """A run, and what was printed after the line that is known as `last_line`. Raises NotFound."""
    with database.read() as session:
        found = _run_events(session, Run.id == run_id)
        lines = output.after(session, run_id, last_line, LINES)  # after the state: when that is final, these are all
    if not found:
        raise NotFound(f"there is no run {run_id}")
    return Seen(found[0], found[0].state in RUN.final() and len(lines) < LINES, lines)


def experiment(database: Database, experiment_id: int, _: int) -> Seen:
    """An experiment, ended if all of its runs have. Raises NotFound."""
    for _ in range(TRIES):
        detail = experiments.show(database, experiment_id)
        with database.read() as session:
            active = _run_events(session, and_(Run.experiment_id == experiment_id, Run.state.in_(ACTIVE)))
        if sum(detail.by_state.get(state, 0) for state in ACTIVE) == len(active):
            break  # else a run changed between the two looks: look again
    event = ExperimentEvent(
        experiment_id=detail.id, state=detail.state, runs=detail.runs, by_state=detail.by_state, active=active
    )
    return Seen(event, detail.state != "active")


def _run_events(session: Session, which: ColumnElement[bool]) -> list[RunEvent]:
    query = select(Run.id, Run.state, Run.attempts, Attempt.progress).outerjoin(
        Attempt, and_(Attempt.run_id == Run.id, is_active())
    )
    return [
        RunEvent(
            run_id=run_id,
            state=state,
            attempt_no=attempts,
            progress=None if progress is None else Progress(**progress),
        )
        for run_id, state, attempts, progress in session.execute(query.where(which).order_by(Run.id))
    ]
