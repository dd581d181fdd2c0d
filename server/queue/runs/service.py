"""Runs: show, cancel, retry, raw results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Row, select
from sqlalchemy.orm import Session

from gpt2core.spec import networks
from gpt2core.spec.config import MAIN
from gpt2core.spec.phases import by_phase
from taskloom.contract.runs import MainSettings, RunDetail, SampleList, SampleRow
from taskloom.server.db import LOCKED, Database, now, utc
from taskloom.server.errors import NoResult, NotFound
from taskloom.server.queue.attempts import commits, node_time
from taskloom.server.queue.attempts import payload as payloads
from taskloom.server.queue.attempts.service import summary as attempt_summary
from taskloom.server.queue.runs import cost, queue
from taskloom.server.queue.tables.attempts import Attempt, Result
from taskloom.server.queue.tables.experiments import Experiment
from taskloom.server.queue.tables.runs import Run
from taskloom.server.queue.tables.states import ACTIVE
from taskloom.server.queue.transitions import changes, ends
from taskloom.server.queue.transitions.changes import Cause
from taskloom.server.settings import Settings

# Columns of `summary`, for lists.
SUMMARY = (
    Run.id, Run.experiment_id, Run.variant, Run.repetition, Run.block, Run.position, Run.state, Run.attempts,
    Run.created_at, Run.started_at, Run.finished_at, Run.median_step_s, Run.tokens_per_s, Run.final_loss, Run.spec,
    Run.node, Run.flagged_steps, Run.error, Run.purpose, *commits.TRAINER,
)  # fmt: skip

# Columns that decide about cancelling and retrying a run.
DECIDING = (Run.id, Run.state, Run.purpose, Run.cancel_requested_at)


def summary(run: Any, named: Mapping[str, Any]) -> dict[str, Any]:
    """The summary of a run, which may be a row of the columns SUMMARY. named: the commit of its experiment."""
    ended = run.started_at is not None and run.finished_at is not None
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
        "unit": networks.unit_of(run.spec.get("model")),
        "final_loss": run.final_loss,
        "settings": main_settings(run.spec),
        "node": run.node,
        "duration_s": run.finished_at - run.started_at if ended else None,
        "flagged_steps": run.flagged_steps,
        "traced": run.purpose == "tracing" and run.state == "succeeded",
        **named,
        **commits.of_trainer(run),
    }


def main_settings(spec: Mapping[str, Any]) -> MainSettings | None:
    """The settings that lists show; None if an older server stored others."""
    try:
        return MainSettings(model=spec["model"]["name"], **{name: spec[name] for name in MAIN if name != "model"})
    except (KeyError, TypeError, ValidationError):
        return None


def _detail(session: Session, settings: Settings, run: Run) -> RunDetail:
    attempts = session.scalars(select(Attempt).where(Attempt.run_id == run.id).order_by(Attempt.attempt_no))
    return RunDetail(
        **summary(run, commits.of_experiments(session, [run.experiment_id])[run.experiment_id]),
        queue=queue.place(session, settings, run),
        spec=run.spec,
        history=[attempt_summary(a) for a in attempts],
        error=run.error,
        **node_time.of_run(run).model_dump(),
        **cost.of_run(session, settings, run).model_dump(),
    )


def show(database: Database, settings: Settings, run_id: int) -> RunDetail:
    """Raises NotFound."""
    with database.read() as session:
        return _detail(session, settings, _get(session, run_id))


def result(database: Database, run_id: int) -> tuple[dict[str, Any], int]:
    """The canonical raw TrainResult and its attempt_no. Raises NotFound or NoResult."""
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
    warmup, phase_s = found["config"]["warmup"], by_phase(found["phase_s"])
    steps = len(found["step_s"])
    losses, accuracies = (found.get(name) or [None] * steps for name in ("losses", "accuracy"))
    rows = zip(losses, accuracies, found["step_s"], strict=True)
    evaluations = evaluations_of(found)
    return [
        SampleRow(
            step=i, warmup=i < warmup, loss=loss, accuracy=accuracy, step_s=step_s, **evaluations.get(i, {}),
            phase_s={p: s[i] for p, s in phase_s.items()},
        )
        for i, (loss, accuracy, step_s) in enumerate(rows)
    ]


def evaluations_of(found: Mapping[str, Any]) -> dict[int, dict[str, float]]:
    """Loss and accuracy of the evaluations of a raw result, by the step before each, 0-based."""
    return {
        each["step"] - 1: {f"evaluation_{name}": each[name] for name in ("loss", "accuracy")}
        for each in found.get("evaluations") or []
    }


def cancel(database: Database, settings: Settings, run_id: int, actor: str) -> RunDetail:
    """Cancel a queued run at once, a running one with its next heartbeat. Raises NotFound or InvalidTransition."""
    with database.write() as session:
        run = _get(session, run_id, lock=True)
        cancel_locked(session, [run], Cause(actor, now(session)))
        session.refresh(run)
        return _detail(session, settings, run)


def cancel_locked(session: Session, runs: Sequence[Run | Row[Any]], cause: Cause) -> None:
    """Cancel locked runs. runs: objects, or rows of DECIDING. Raises InvalidTransition."""
    requested, traced, others = [], [], []
    for run in runs:
        if run.state in ACTIVE:
            if run.cancel_requested_at is None:
                requested.append(run.id)
        elif run.purpose == "tracing" and run.state == "queued":
            traced.append(run)  # it has its result, so only the tracing is cancelled
        elif run.state != "cancelled":
            others.append(run)
    changes.mark_all(session, cause, requested, "request-cancel", cancel_requested_at=cause.at)
    changes.make_all(session, cause, traced, "succeed", cancel_requested_at=cause.at)
    changes.make_all(session, cause, others, "cancel", cancel_requested_at=cause.at)


def retry(database: Database, settings: Settings, run_id: int, actor: str) -> RunDetail:
    """Queue a failed, cancelled or quarantined run again. Raises NotFound or InvalidTransition."""
    with database.write() as session:
        # Locked before the run, in the same order as for a cancellation.
        experiment = session.get(Experiment, _get(session, run_id).experiment_id, with_for_update=LOCKED)
        run = _get(session, run_id, lock=True)  # both may have been deleted meanwhile
        assert experiment is not None
        ends.reopen(experiment)
        retry_locked(session, [run], Cause(actor, now(session)))
        session.flush()
        session.refresh(run)
        return _detail(session, settings, run)


def retry_locked(session: Session, runs: Sequence[Run | Row[Any]], cause: Cause) -> None:
    """Queue locked runs again. runs: objects, or rows of DECIDING. Raises InvalidTransition."""
    from_here = {"losses": 0, "started_at": None, "cancel_requested_at": None, "error": None}
    changes.make_all(session, cause, runs, "retry", **from_here)


def _get(session: Session, run_id: int, lock: bool = False) -> Run:
    run = session.get(Run, run_id, with_for_update=LOCKED if lock else None, populate_existing=lock)
    if run is None:
        raise NotFound(f"there is no run {run_id}")
    return run
