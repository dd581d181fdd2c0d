"""A run as routes and lists show it, and its raw result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from sqlalchemy import select
from sqlalchemy.orm import Session

from gpt2core.spec import networks
from gpt2core.spec.phases import by_phase
from gpt2core.spec.roles import MAIN
from taskloom.contract.runs import MainSettings, RunDetail, SampleList, SampleRow
from taskloom.server.db import Database, existing, utc
from taskloom.server.errors import NoResult
from taskloom.server.queue.attempts import commits, node_time
from taskloom.server.queue.attempts import payload as payloads
from taskloom.server.queue.attempts.lifecycle import summary as attempt_summary
from taskloom.server.queue.runs import cost, queue
from taskloom.server.queue.tables.attempts import Attempt, Result
from taskloom.server.queue.tables.runs import Run
from taskloom.server.settings import Settings

# Columns of `summary`, for lists.
SUMMARY = (
    Run.id, Run.experiment_id, Run.variant, Run.repetition, Run.block, Run.position, Run.state, Run.attempts,
    Run.created_at, Run.started_at, Run.finished_at, Run.median_step_s, Run.tokens_per_s, Run.final_loss, Run.spec,
    Run.node, Run.flagged_steps, Run.error, Run.purpose, Run.resolved, *commits.TRAINER,
)  # fmt: skip


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
        "resolved": run.resolved,
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


def detail(session: Session, settings: Settings, run: Run) -> RunDetail:
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
        return detail(session, settings, existing(session, Run, run_id))


def result(database: Database, run_id: int) -> tuple[dict[str, Any], int]:
    """The canonical raw TrainResult and its attempt_no. Raises NotFound or NoResult."""
    with database.read() as session:
        run = existing(session, Run, run_id)
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
