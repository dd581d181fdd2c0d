"""Runs: listed, shown, cancelled, retried, and their raw results."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Select, select, union_all
from sqlalchemy.orm import Session

from gpt2core.spec.config import PHASES
from taskloom.contract.runs import RunDetail, RunPage, RunState, RunSummary, SampleList, SampleRow
from taskloom.server import paging
from taskloom.server.db import LOCKED, Database, now, utc
from taskloom.server.errors import NoResult, NotFound
from taskloom.server.queue.attempts import payload as payloads
from taskloom.server.queue.attempts.models import Attempt, Result
from taskloom.server.queue.attempts.service import summary as attempt_summary
from taskloom.server.queue.experiments import blocks
from taskloom.server.queue.experiments.models import Experiment
from taskloom.server.queue.runs import changes, queue
from taskloom.server.queue.runs.changes import Cause
from taskloom.server.queue.runs.models import Run
from taskloom.server.queue.runs.states import ACTIVE
from taskloom.server.settings import Settings

# What lists show: the columns of _common.
SUMMARY = (
    Run.id, Run.experiment_id, Run.variant, Run.repetition, Run.block, Run.position, Run.state, Run.attempts,
    Run.created_at, Run.started_at, Run.finished_at, Run.median_step_s, Run.tokens_per_s, Run.final_loss,
)  # fmt: skip


def _common(run: Any) -> dict[str, Any]:
    """The summary of a run, or of a row of its SUMMARY."""
    return {
        "id": run.id,
        "experiment_id": run.experiment_id,
        "variant": run.variant,
        "repetition": run.repetition,
        "block": run.block,
        "position": run.position,
        "state": run.state,
        "attempts": run.attempts,
        "created_at": utc(run.created_at),
        "started_at": None if run.started_at is None else utc(run.started_at),
        "finished_at": None if run.finished_at is None else utc(run.finished_at),
        "median_step_s": run.median_step_s,
        "tokens_per_s": run.tokens_per_s,
        "final_loss": run.final_loss,
    }


def _detail(session: Session, settings: Settings, run: Run) -> RunDetail:
    attempts = session.scalars(select(Attempt).where(Attempt.run_id == run.id).order_by(Attempt.attempt_no))
    return RunDetail(
        **_common(run),
        queue=queue.place(session, settings, run),
        spec=run.spec,
        history=[attempt_summary(a) for a in attempts],
        error=run.error,
    )


def page(
    database: Database, experiment_id: int | None, states: list[RunState], cursor: str | None, limit: int
) -> RunPage:
    """Runs in the order in which they were planned. Raises BadCursor."""
    after = paging.decode_id(cursor)

    def first(*columns: Any, state: RunState | None = None) -> Select[Any]:
        query = select(*columns).order_by(Run.id).limit(limit + 1)
        if experiment_id is not None:
            query = query.where(Run.experiment_id == experiment_id)
        if state is not None:
            query = query.where(Run.state == state)
        return query if after is None else query.where(Run.id > after)

    if len(states) < 2:
        query = first(*SUMMARY, state=states[0] if states else None)
    else:  # the first of each state, found along its index, then the first of those: one look at all would sort them
        each = [select(first(Run.id, state=state).subquery().c.id) for state in dict.fromkeys(states)]
        ids = union_all(*each).subquery().c.id
        query = select(*SUMMARY).where(Run.id.in_(select(ids))).order_by(Run.id).limit(limit + 1)
    with database.read() as session:
        rows, more = paging.split(session.execute(query).all(), limit)
    return RunPage(
        items=[RunSummary(**_common(run)) for run in rows], next_cursor=paging.encode(rows[-1].id) if more else None
    )


def show(database: Database, settings: Settings, run_id: int) -> RunDetail:
    """Raises NotFound."""
    with database.read() as session:
        return _detail(session, settings, _get(session, run_id))


def result(database: Database, run_id: int) -> tuple[dict[str, Any], int]:
    """The raw TrainResult that the run is known by, and its attempt_no. Raises NotFound or NoResult."""
    with database.read() as session:
        run = _get(session, run_id)
        row = session.execute(
            select(Result.payload, Attempt.attempt_no)
            .join(Attempt, Attempt.id == Result.attempt_id)
            .where(Result.run_id == run_id, Result.canonical)
        ).first()
        found = payloads.unpack(row.payload).get("result") if row is not None and run.timed else None
        if row is None or found is None:
            raise NoResult(f"run {run_id} is {run.state}", current=run.state, error=run.error)
        return found, row.attempt_no


def samples(database: Database, run_id: int) -> SampleList:
    """Every step, derived from the raw result. Raises NotFound or NoResult."""
    found, attempt_no = result(database, run_id)
    return SampleList(run_id=run_id, attempt_no=attempt_no, items=sample_rows(found))


def sample_rows(found: dict[str, Any]) -> list[SampleRow]:
    """Every step of a raw result."""
    warmup, phase_s = found["config"]["warmup"], found["phase_s"]
    rows = zip(found["losses"], found["step_s"], strict=True)
    return [
        SampleRow(step=i, warmup=i < warmup, loss=loss, step_s=step_s, phase_s={p: phase_s[p][i] for p in PHASES})
        for i, (loss, step_s) in enumerate(rows)
    ]


def cancel(database: Database, settings: Settings, run_id: int, actor: str) -> RunDetail:
    """A queued run at once, one under way by the answer to its next heartbeat. Raises NotFound or InvalidTransition."""
    with database.write() as session:
        run = _get(session, run_id, lock=True)
        cancel_locked(session, run, Cause(actor, now(session)))
        session.flush()
        return _detail(session, settings, run)


def cancel_locked(session: Session, run: Run, cause: Cause) -> None:
    """Raises InvalidTransition."""
    if run.state == "cancelled":
        return
    if run.state in ACTIVE:
        if run.cancel_requested_at is None:
            run.cancel_requested_at = cause.at
            changes.note(session, cause, run, "request-cancel")
        return
    # One that waits to be traced has its result: what is cancelled is the tracing.
    changes.make(session, cause, run, "succeed" if run.purpose == "tracing" and run.state == "queued" else "cancel")
    run.cancel_requested_at = cause.at


def retry(database: Database, settings: Settings, run_id: int, actor: str) -> RunDetail:
    """Queue a run that failed, was cancelled or quarantined once more. Raises NotFound or InvalidTransition."""
    with database.write() as session:
        # Before the run: as a cancellation locks them.
        experiment = session.get_one(Experiment, _get(session, run_id).experiment_id, with_for_update=LOCKED)
        blocks.reopen(experiment)
        run = _get(session, run_id, lock=True)
        retry_locked(session, run, Cause(actor, now(session)))
        session.flush()
        return _detail(session, settings, run)


def retry_locked(session: Session, run: Run, cause: Cause) -> None:
    """Raises InvalidTransition."""
    changes.make(session, cause, run, "retry")
    run.losses = 0
    run.started_at = run.cancel_requested_at = run.error = None


def _get(session: Session, run_id: int, lock: bool = False) -> Run:
    run = session.get(Run, run_id, with_for_update=LOCKED if lock else None, populate_existing=lock)
    if run is None:
        raise NotFound(f"there is no run {run_id}")
    return run
