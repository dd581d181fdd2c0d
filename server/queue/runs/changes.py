"""Every change of state: made as states.py allows it, and kept as a row of run_event."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Float, Integer, String, insert, literal, select
from sqlalchemy.orm import Session

from taskloom.contract.runs import StateChange, StateChangePage
from taskloom.server import paging
from taskloom.server.db import Database, tell, utc
from taskloom.server.errors import NotFound
from taskloom.server.queue.attempts.models import Attempt
from taskloom.server.queue.experiments.models import Experiment
from taskloom.server.queue.runs.models import Run, RunEvent
from taskloom.server.queue.runs.states import ACTIVE, ATTEMPT, RUN

SERVER = "server"  # the actor of what nobody asked for


@dataclass(frozen=True)
class Cause:
    """Actor, time (by the database's clock) and reason of a change of state.

    actor: "key:ID", "local" (no key was asked for), "worker:ID", or "server".
    """

    actor: str
    at: float
    reason: str | None = None


@dataclass(frozen=True)
class Outcome:
    """Metric of a change of state; null where none counts it."""

    run_ended: str | None  # the end state that a run came to
    attempt_ended: str | None
    purpose: str  # of the attempt
    waited_s: float | None  # in the queue, of a run that was claimed
    ran_s: float | None  # from an attempt's first heartbeat to its end


def make(
    session: Session,
    cause: Cause,
    run: Run,
    run_verb: str | None,
    attempt: Attempt | None = None,
    attempt_verb: str | None = None,
) -> None:
    """Bring a run, and an attempt of it, to where the verbs lead, with the instants that go with it.

    Raises InvalidTransition.
    """
    was = run.state, None if attempt is None else attempt.state
    waited_s = cause.at - run.queued_at if run_verb == "claim" else None
    if attempt is not None and attempt_verb is not None:
        attempt.state = ATTEMPT.after(attempt.state, attempt_verb, attempt.id)
        attempt.finished_at = None if attempt.state in ACTIVE else cause.at
    if run_verb is not None:
        run.state = RUN.after(run.state, run_verb, run.id)
        run.finished_at = cause.at if run.state in RUN.final() else None
    if (run.state, None if attempt is None else attempt.state) == was:
        return
    if run.state == "queued":
        run.queued_at = cause.at
    elif run.state == "running" and attempt is not None:
        attempt.started_at = attempt.started_at or cause.at
        run.started_at = run.started_at or cause.at
    note(session, cause, run, run_verb or attempt_verb or "", attempt)
    tell(session, _outcome(cause, was, run, attempt, waited_s))


def _outcome(
    cause: Cause, was: tuple[str, str | None], run: Run, attempt: Attempt | None, waited_s: float | None
) -> Outcome:
    run_ended = run.state if run.state != was[0] and run.state in RUN.final() else None
    if attempt is None or attempt.state in (was[1], *ACTIVE):
        return Outcome(run_ended, None, run.purpose, waited_s, None)
    ran_s = None if attempt.started_at is None else cause.at - attempt.started_at
    return Outcome(run_ended, attempt.state, attempt.purpose, waited_s, ran_s)


def note(session: Session, cause: Cause, run: Run, verb: str, attempt: Attempt | None = None) -> None:
    """Keep what was done to a run, as the row that comes next in its history."""
    session.add(
        RunEvent(
            run_id=run.id,
            experiment_id=run.experiment_id,
            at=cause.at,
            verb=verb,
            state=run.state,
            attempt_no=None if attempt is None else attempt.attempt_no,
            attempt_state=None if attempt is None else attempt.state,
            actor=cause.actor,
            reason=cause.reason,
        )
    )


def note_submitted(session: Session, cause: Cause, experiment_id: int, blocks: Collection[int]) -> None:
    """The same for all runs of new blocks, in one statement."""
    rows = select(
        Run.id, Run.experiment_id, literal(cause.at, Float), literal("submit", String), Run.state,
        literal(None, Integer), literal(None, String), literal(cause.actor, String), literal(cause.reason, String),
    )  # fmt: skip
    rows = rows.where(Run.experiment_id == experiment_id, Run.block.in_(blocks)).order_by(Run.id)
    names = ["run_id", "experiment_id", "at", "verb", "state", "attempt_no", "attempt_state", "actor", "reason"]
    session.execute(insert(RunEvent).from_select(names, rows))


def of_run(database: Database, run_id: int, cursor: str | None, limit: int) -> StateChangePage:
    """History of a run, oldest first. Raises NotFound or BadCursor."""
    with database.read() as session:
        if session.get(Run, run_id) is None:
            raise NotFound(f"there is no run {run_id}")
        return _page(session, RunEvent.run_id == run_id, cursor, limit)


def of_experiment(database: Database, experiment_id: int, cursor: str | None, limit: int) -> StateChangePage:
    """History of an experiment's runs, oldest first. Raises NotFound or BadCursor."""
    with database.read() as session:
        if session.get(Experiment, experiment_id) is None:
            raise NotFound(f"there is no experiment {experiment_id}")
        return _page(session, RunEvent.experiment_id == experiment_id, cursor, limit)


def _page(session: Session, which: ColumnElement[bool], cursor: str | None, limit: int) -> StateChangePage:
    query = select(RunEvent).where(which, RunEvent.id > (paging.decode_id(cursor) or 0)).order_by(RunEvent.id)
    rows, more = paging.split(session.scalars(query.limit(limit + 1)).all(), limit)
    return StateChangePage(
        items=[
            StateChange(
                id=row.id,
                run_id=row.run_id,
                experiment_id=row.experiment_id,
                at=utc(row.at),
                verb=row.verb,
                state=row.state,
                attempt_no=row.attempt_no,
                attempt_state=row.attempt_state,
                actor=row.actor,
                reason=row.reason,
            )
            for row in rows
        ],
        next_cursor=paging.encode(rows[-1].id) if more else None,
    )
