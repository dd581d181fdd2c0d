"""Commits in rows: those that submitters named, and those of the trainers that ran."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gpt2core.spec.version import commit_of
from taskloom.contract.commits import NAMED, OF_TRAINER, NamedCommit
from taskloom.server.db import utc
from taskloom.server.queue.tables.experiments import Experiment
from taskloom.server.queue.tables.runs import Run

COLUMNS = (Experiment.commit_id, Experiment.branch, Experiment.dirty, Experiment.committed_at, Experiment.version)
TRAINER = (
    Run.trainer_commit, Run.trainer_branch, Run.trainer_dirty, Run.trainer_committed_at, Run.trainer_version,
)  # fmt: skip
LONGEST = 255  # characters of a word that a result may say about its trainer
NONE: Mapping[str, Any] = dict.fromkeys(NAMED)


def stored(request: NamedCommit) -> dict[str, Any]:
    """Values of an experiment's columns."""
    at = request.committed_at
    return {
        "commit_id": request.commit,
        "branch": request.branch,
        "dirty": request.dirty,
        "committed_at": None if at is None else at.timestamp(),
        "version": request.version,
    }


def named(row: Any) -> dict[str, Any]:
    """The commit of an experiment, or of a row of COLUMNS, in an answer."""
    at = row.committed_at
    values = (row.commit_id, row.branch, row.dirty, None if at is None else utc(at), row.version)
    return dict(zip(NAMED, values, strict=True))


def of_experiments(session: Session, ids: Collection[int]) -> dict[int, dict[str, Any]]:
    """The commits of experiments in an answer, by their ids."""
    rows = session.execute(select(Experiment.id, *COLUMNS).where(Experiment.id.in_(set(ids))))
    return {row.id: named(row) for row in rows}


def of_trainer(run: Any) -> dict[str, Any]:
    """The trainer's commit of a run, or of a row of TRAINER, in an answer."""
    values = {name: getattr(run, name) for name in OF_TRAINER}
    at = values["trainer_committed_at"]
    return {**values, "trainer_committed_at": None if at is None else utc(at)}


def of_result(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Values of a run's columns, from the environment of its result, which may have the version only."""
    version = _word(environment.get("core_version"))
    dirty = environment.get("core_dirty")
    return {
        "trainer_commit": _word(environment.get("core_commit")) or commit_of(version or ""),
        "trainer_branch": _word(environment.get("core_branch")),
        "trainer_dirty": dirty if isinstance(dirty, bool) else None,
        "trainer_committed_at": _seconds(environment.get("core_committed_at")),
        "trainer_version": version,
    }


def _word(value: object) -> str | None:
    return value[:LONGEST] if isinstance(value, str) and value else None


def _seconds(value: object) -> float | None:
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else None
        return None if at is None or at.tzinfo is None else at.timestamp()
    except (ValueError, OverflowError):
        return None
