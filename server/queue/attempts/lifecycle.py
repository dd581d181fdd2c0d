"""Heartbeats, results, and lost or overdue attempts. rules.py decides about changes; this module stores them."""

from __future__ import annotations

import functools
import logging
import re
from typing import Any

from sqlalchemy import ColumnElement, event, select, update
from sqlalchemy.orm import Session

from taskloom.contract.attempts import (
    AttemptSummary,
    HeartbeatAnswer,
    HeartbeatRequest,
    ProgressSeen,
    ResultReceipt,
    ResultUpload,
)
from taskloom.server.db import LOCKED, Database, db_now, existing, steady_now, utc
from taskloom.server.errors import LeaseLost, NotFound, ResultConflict, WrongFencingToken
from taskloom.server.queue.attempts import commits, cores, curve, node_time, output, rules, series, steps
from taskloom.server.queue.attempts import payload as payloads
from taskloom.server.queue.attempts.digest import digest
from taskloom.server.queue.tables.attempts import Attempt, Digest, Result, is_active
from taskloom.server.queue.tables.experiments import Experiment
from taskloom.server.queue.tables.runs import Run
from taskloom.server.queue.tables.workers import Worker
from taskloom.server.queue.transitions import changes
from taskloom.server.queue.transitions.changes import SERVER, Cause
from taskloom.server.settings import Settings

log = logging.getLogger("taskloom.server")


def summary(attempt: Attempt) -> AttemptSummary:
    return AttemptSummary(
        id=attempt.id,
        run_id=attempt.run_id,
        attempt_no=attempt.attempt_no,
        worker_id=attempt.worker_id,
        purpose=attempt.purpose,
        state=attempt.state,
        claimed_at=utc(attempt.claimed_at),
        started_at=None if attempt.started_at is None else utc(attempt.started_at),
        expires_at=utc(attempt.expires_at),
        deadline_at=utc(attempt.deadline_at),
        finished_at=None if attempt.finished_at is None else utc(attempt.finished_at),
        progress=ProgressSeen.kept(attempt.progress),
        error=attempt.error,
    )


def show(database: Database, attempt_id: int) -> AttemptSummary:
    """Raises NotFound."""
    with database.read() as session:
        return summary(existing(session, Attempt, attempt_id))


def heartbeat(database: Database, settings: Settings, attempt_id: int, beat: HeartbeatRequest) -> HeartbeatAnswer:
    """Renew the lease. Raises NotFound, WrongFencingToken, LeaseLost or InvalidTransition."""
    with database.write() as session:
        attempt, run = _locked(session, attempt_id, beat.worker_id, beat.attempt_no)
        facts = _facts(session, attempt, run)
        change = rules.beat(facts)
        if change.attempt == "renew":
            _check_cores_free(session, attempt)
            run.losses -= 1
            run.error = attempt.error = None
        reason = "heartbeat after its lease had expired" if change.attempt == "renew" else None
        cause = Cause(f"worker:{attempt.worker_id}", facts.now, reason)
        before = run.started_at
        changes.make(session, cause, run, change.run, attempt, change.attempt)
        first = run.started_at != before
        attempt.expires_at = facts.now + settings.lease_s
        attempt.progress = beat.progress.model_dump()
        if not facts.tracing:  # the run of a tracing attempt has a result with every step
            curve.add(session, attempt, beat.progress, facts.now)
            if beat.steps is not None:
                steps.add(session, attempt, beat.steps)
        if beat.output is not None:
            output.add(session, attempt, beat.output, facts.now, settings.max_output_lines)
    if first:
        _note_started(database, run)
    return HeartbeatAnswer(
        cancel=facts.cancel_requested or facts.overdue,
        overdue=facts.overdue and not facts.cancel_requested,
        expires_at=utc(attempt.expires_at),
    )


def _note_started(database: Database, run: Run) -> None:
    """Record the start of an experiment. It needs its own transaction, since experiments are locked before runs, and
    only for the first of its runs."""
    of_it = Experiment.id == run.experiment_id
    with database.read() as session:
        if session.scalar(select(Experiment.started_at).where(of_it)) is not None:
            return
    unstarted = update(Experiment).where(of_it, Experiment.started_at.is_(None))
    with database.write() as session:
        session.execute(unstarted.values(started_at=run.started_at))


def finish(database: Database, attempt_id: int, upload: ResultUpload) -> tuple[ResultReceipt, bool]:
    """Store a result; the second value says whether the run was queued again.

    Raises NotFound, WrongFencingToken, ResultConflict, BadResult or InvalidTransition.
    """
    with database.read() as session:  # before the write transaction, in which others wait
        spec = session.scalar(select(Run.spec).join(Attempt, Attempt.run_id == Run.id).where(Attempt.id == attempt_id))
    if spec is None:
        raise NotFound(f"there is no attempt {attempt_id}")
    payload = payloads.check(upload.payload, upload.sha256, upload.outcome, spec)
    # Without flushes by queries: PostgreSQL writes an entry into every index of `run` each time its row is updated.
    with database.write() as session, session.no_autoflush:
        attempt, run = _locked(session, attempt_id, upload.worker_id, upload.attempt_no)
        stored = session.get(Result, attempt_id)
        if stored is not None:
            if (stored.sha256, stored.outcome) != (upload.sha256, upload.outcome):
                raise ResultConflict(f"attempt {attempt_id} has the result {stored.sha256}", sha256=stored.sha256)
            return _receipt(attempt, stored.canonical), False
        facts = _facts(session, attempt, run)
        change = rules.finish(facts, upload.outcome)
        cause = Cause(f"worker:{attempt.worker_id}", facts.now, _reason(change, payload))
        queued_s = max(0.0, attempt.claimed_at - run.queued_at)
        changes.make(session, cause, run, change.run, attempt, change.attempt)
        if change.attempt != "supersede":
            attempt.error = payload.error
        if change.canonical:
            _make_canonical(session, attempt, run, payload, upload.outcome, queued_s)
            if upload.outcome == "succeeded":
                curve.forget(session, run)
                steps.forget(session, run)
        if change.run == "trace":
            run.purpose, run.losses = "tracing", 0
        session.add(
            Result(
                attempt_id=attempt.id,
                run_id=run.id,
                outcome=upload.outcome,
                sha256=upload.sha256,
                payload=payload.compressed,
                canonical=change.canonical,
                received_at=facts.now,
            )
        )
        if change.canonical and payload.result is not None and upload.outcome == "succeeded":
            series.add(session, run, payload.result, facts.now)
            session.flush()
            session.add(Digest(attempt_id=attempt.id, **digest(payload.result)))
        return _receipt(attempt, change.canonical), run.state == "queued"


def _reason(change: rules.Change, payload: payloads.Payload) -> str | None:
    """Reason of the change that an upload causes. None: its verb is the reason."""
    if change.attempt == "supersede":
        return "late: the run had continued without this attempt"
    if change.run in ("requeue", None):
        return "handed back by its worker"
    if change.run == "trace":
        return "timed; a tracing attempt follows"
    slug = str((payload.error or {}).get("slug", ""))
    return slug if re.fullmatch("[a-z][a-z0-9-]{0,59}", slug) else None


def _receipt(attempt: Attempt, canonical: bool) -> ResultReceipt:
    return ResultReceipt(attempt_id=attempt.id, state=attempt.state, canonical=canonical)


def _make_canonical(
    session: Session, attempt: Attempt, run: Run, payload: payloads.Payload, outcome: str, queued_s: float
) -> None:
    session.execute(update(Result).where(Result.run_id == run.id).values(canonical=False))
    figures = payloads.Figures()
    if payload.result and outcome == "succeeded":
        figures = payloads.figures(payload.result, queued_s)
    run.started_at = attempt.started_at
    run.node = attempt.node if figures.environment_sha256 else None
    node_time.keep(run, figures.node_time)
    columns = {name: value for name, value in vars(figures).items() if name != "node_time"}
    for name, value in (columns | commits.of_result((payload.result or {}).get("environment", {}))).items():
        setattr(run, name, value)
    run.error = payload.error
    if run.state == "failed" and run.error is None:
        run.error = deadline_error(run)


def deadline_error(run: Run) -> dict[str, Any]:
    return {"slug": "deadline-exceeded", "detail": f"not finished {run.timeout_s:g} s after its claim"}


def _locked(session: Session, attempt_id: int, worker_id: str, attempt_no: int) -> tuple[Attempt, Run]:
    """The attempt and its run, locked in the order worker, run, attempt, as by a claim. This serialises repeated and
    reordered messages of a worker without deadlocks. Raises NotFound or WrongFencingToken.
    """
    query = select(Attempt.run_id, Attempt.worker_id, Attempt.attempt_no).where(Attempt.id == attempt_id)
    found = session.execute(query).one_or_none()
    if found is None:
        raise NotFound(f"there is no attempt {attempt_id}")
    if (found.worker_id, found.attempt_no) != (worker_id, attempt_no):
        raise WrongFencingToken(
            f"attempt {attempt_id} is number {found.attempt_no} of worker {found.worker_id}",
            attempt_no=found.attempt_no,
            worker_id=found.worker_id,
        )
    session.execute(update(Worker).where(Worker.worker_id == worker_id).values(seen_at=db_now()))
    run = session.get_one(Run, found.run_id, with_for_update=LOCKED)
    return session.get_one(Attempt, attempt_id, with_for_update=LOCKED), run


def _facts(session: Session, attempt: Attempt, run: Run) -> rules.Facts:
    registered = select(Worker.boot_id).where(Worker.worker_id == attempt.worker_id)
    return rules.Facts(
        attempt_id=attempt.id,
        attempt_no=attempt.attempt_no,
        attempt_state=attempt.state,
        deadline_at=attempt.deadline_at,
        run_state=run.state,
        newest_attempt_no=run.attempts,
        cancel_requested=run.cancel_requested_at is not None,
        losses=run.losses,
        now=steady_now(session),
        tracing=attempt.purpose == "tracing",
        to_trace=run.trace,
        replaced=attempt.state == "lost" and session.scalar(registered) != attempt.boot_id,
    )


def _check_cores_free(session: Session, attempt: Attempt) -> None:
    """A lost attempt returns only if its cores run no other attempt. Raises LeaseLost."""
    if cores.are_taken(session, attempt.node, attempt.core_set):
        raise LeaseLost(f"another attempt runs on the cores of attempt {attempt.id}", current=attempt.state, allowed=[])


def lose_attempts_of(session: Session, worker_id: str, settings: Settings) -> bool:
    """Lose the attempts of a worker's previous process; return whether a run was queued again."""
    mine = Attempt.worker_id == worker_id
    return _end_all(session, settings, mine, f"worker:{worker_id}", "its worker was started again")


def reap(database: Database, settings: Settings) -> bool:
    """Lose expired attempts and fail overdue ones; return whether a run was queued again. Several servers may do this
    at once."""
    with database.write() as session:
        steady_now(session)
        overdue, expired = Attempt.deadline_at + settings.deadline_grace_s <= db_now(), Attempt.expires_at <= db_now()
        _end_all(session, settings, overdue, SERVER, "deadline-exceeded", overdue=True)
        return _end_all(session, settings, expired, SERVER, "no heartbeat before its lease expired")


def _end_all(
    session: Session, settings: Settings, which: ColumnElement[bool], actor: str, reason: str, overdue: bool = False
) -> bool:
    """Lose the active attempts that meet a condition, or fail them if they are overdue; return whether a run was queued
    again."""
    queued = False
    chosen = select(Attempt.id, Attempt.run_id).where(is_active(), which).order_by(Attempt.run_id)
    for attempt_id, run_id in session.execute(chosen.limit(200)).all():
        run = session.get_one(Run, run_id, with_for_update=LOCKED)
        attempt = session.scalars(
            select(Attempt)
            .where(Attempt.id == attempt_id, is_active(), which)
            .with_for_update(**LOCKED)
            .execution_options(populate_existing=True)
        ).first()
        if attempt is None:  # a heartbeat, a result or another server was faster
            continue
        facts = _facts(session, attempt, run)
        change = rules.overrun(facts) if overdue else rules.expire(facts, settings.max_losses)
        changes.make(session, Cause(actor, facts.now, reason), run, change.run, attempt, change.attempt)
        if overdue:
            attempt.error = deadline_error(run)
            run.error = attempt.error if run.state == "failed" else None
        else:
            run.losses += 1
            attempt.error = {"slug": "lost", "detail": "no heartbeat before the lease expired, or the worker restarted"}
            if run.state == "quarantined":
                run.error = {"slug": "quarantined", "detail": f"lost {run.losses} times; not retried automatically"}
        queued = queued or run.state == "queued"
        said = attempt.id, run.id, attempt.state, run.state
        warn = functools.partial(log.warning, "attempt %s of run %s is %s; the run is %s", *said)
        event.listen(session, "after_commit", lambda _, warn=warn: warn(), once=True)  # a full disk may undo it
    return queued
