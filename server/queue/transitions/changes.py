"""Changes of state, checked by states.py and recorded as rows of run_event."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, Float, Integer, Row, String, insert, literal, select, update
from sqlalchemy.orm import Session

from taskloom.contract.runs import StateChange, StateChangePage
from taskloom.server import paging
from taskloom.server.db import Database, existing, tell, utc
from taskloom.server.queue.tables.attempts import Attempt
from taskloom.server.queue.tables.experiments import Experiment
from taskloom.server.queue.tables.runs import Run, RunEvent
from taskloom.server.queue.tables.states import ACTIVE, ATTEMPT, RUN

SERVER = "server"  # the actor of changes without a request
CHUNK = 1000  # runs per statement


@dataclass(frozen=True)
class Cause:
    """Actor, time (by the database's clock) and reason of a change of state.

    actor: "key:ID", "local" (no key was required), "worker:ID", or "server".
    """

    actor: str
    at: float
    reason: str | None = None


@dataclass(frozen=True)
class Outcome:
    """Metrics of a change of state; None where a metric does not change."""

    run_ended: str | None  # the final state of runs
    attempt_ended: str | None = None
    purpose: str | None = None  # of the attempt
    waited_s: float | None = None  # in the queue, for a claimed run
    ran_s: float | None = None  # from an attempt's first heartbeat to its end
    runs: int = 1


@dataclass(frozen=True)
class Decided:
    """A fact for metrics: a tuning got a block of a phase, or ended for a reason."""

    phase: str | None
    reason: str | None


def make(
    session: Session, cause: Cause, run: Run, run_verb: str | None, attempt: Attempt, attempt_verb: str | None = None
) -> None:
    """Apply verbs to a run and its attempt, set their timestamps, and record the change in the run's history.

    No attempt ends before it began, even if the clock was set back meanwhile. Raises InvalidTransition.
    """
    cause = replace(cause, at=max(cause.at, attempt.started_at or attempt.claimed_at))
    was = run.state, attempt.state
    waited_s = cause.at - run.queued_at if run_verb == "claim" else None
    if attempt_verb is not None:
        attempt.state = ATTEMPT.after(attempt.state, attempt_verb, attempt.id)
        if attempt.state in ACTIVE:
            attempt.finished_at = None
        elif attempt_verb != "supersede" or attempt.finished_at is None:  # a lost attempt ended when it was lost
            attempt.finished_at = cause.at
    reached = {} if run_verb is None else _reached(RUN.after(run.state, run_verb, run.id), cause)
    if (reached.get("state", run.state), attempt.state) == was:
        return
    for column, value in reached.items():
        setattr(run, column, value)
    if run.state == attempt.state == "running":  # not when a late result of another attempt arrives
        attempt.started_at = attempt.started_at or cause.at
        if attempt.purpose == "timing" or run.started_at is None:
            run.started_at = attempt.started_at
    event = {"verb": run_verb or attempt_verb or "", "state": run.state, "actor": cause.actor, "reason": cause.reason}
    of_attempt = {"attempt_no": attempt.attempt_no, "attempt_state": attempt.state}
    session.add(RunEvent(run_id=run.id, experiment_id=run.experiment_id, at=cause.at, **event, **of_attempt))
    tell(session, _outcome(cause, was, run, attempt, waited_s))


def _reached(state: str, cause: Cause) -> dict[str, Any]:
    """Columns of a run in its new state."""
    columns = {"state": state, "finished_at": cause.at if state in RUN.final() else None}
    return columns | ({"queued_at": cause.at} if state == "queued" else {})


def _outcome(cause: Cause, was: tuple[str, str], run: Run, attempt: Attempt, waited_s: float | None) -> Outcome:
    run_ended = run.state if run.state != was[0] and run.state in RUN.final() else None
    if attempt.state in (was[1], *ACTIVE):
        return Outcome(run_ended, waited_s=waited_s)
    ran_s = None if attempt.started_at is None else cause.at - attempt.started_at
    return Outcome(run_ended, attempt.state, attempt.purpose, waited_s, ran_s)


def make_all(session: Session, cause: Cause, runs: Iterable[Run | Row[Any]], verb: str, **columns: Any) -> None:
    """Apply a verb to runs without an active attempt, and set these columns.

    runs: locked, as objects or as rows with id and state. The rows are updated with a few statements for any number of
    runs, so the session's objects must be refreshed afterwards. Raises InvalidTransition.
    """
    by_state: dict[str, list[int]] = {}
    for run in runs:
        by_state.setdefault(run.state, []).append(run.id)
    reached = {state: RUN.after(state, verb, ids[0]) for state, ids in by_state.items()}
    for state, ids in by_state.items():
        mark_all(session, cause, ids, verb, **_reached(reached[state], cause), **columns)
        if reached[state] in RUN.final():
            tell(session, Outcome(reached[state], runs=len(ids)))


def mark_all(session: Session, cause: Cause, run_ids: Sequence[int], verb: str, **columns: Any) -> None:
    """Set columns of runs, and record the verb in their histories."""
    for first in range(0, len(run_ids), CHUNK):
        of_them = Run.id.in_(run_ids[first : first + CHUNK])
        changed = update(Run).where(of_them).values(**columns)
        session.execute(changed, execution_options={"synchronize_session": False})
        note_all(session, cause, verb, of_them)


def note_all(session: Session, cause: Cause, verb: str, which: ColumnElement[bool]) -> None:
    """Add a row for the verb to the history of each of these runs."""
    rows = select(
        Run.id, Run.experiment_id, literal(cause.at, Float), literal(verb, String), Run.state,
        literal(None, Integer), literal(None, String), literal(cause.actor, String), literal(cause.reason, String),
    )  # fmt: skip
    names = ["run_id", "experiment_id", "at", "verb", "state", "attempt_no", "attempt_state", "actor", "reason"]
    session.execute(insert(RunEvent).from_select(names, rows.where(which).order_by(Run.id)))


def of_run(database: Database, run_id: int, cursor: str | None, limit: int) -> StateChangePage:
    """History of a run, oldest first. Raises NotFound or BadCursor."""
    with database.read() as session:
        existing(session, Run, run_id)
        return _page(session, RunEvent.run_id == run_id, cursor, limit)


def of_experiment(database: Database, experiment_id: int, cursor: str | None, limit: int) -> StateChangePage:
    """History of an experiment's runs, oldest first. Raises NotFound or BadCursor."""
    with database.read() as session:
        existing(session, Experiment, experiment_id)
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
