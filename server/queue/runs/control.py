"""Cancels runs and queues them again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row
from sqlalchemy.orm import Session

from taskloom.contract.runs import RunDetail
from taskloom.server.db import LOCKED, Database, existing, now
from taskloom.server.queue.runs import details
from taskloom.server.queue.tables.experiments import Experiment
from taskloom.server.queue.tables.runs import Run
from taskloom.server.queue.tables.states import ACTIVE
from taskloom.server.queue.transitions import changes, ends
from taskloom.server.queue.transitions.changes import Cause
from taskloom.server.settings import Settings

# Columns that decide about cancelling and retrying a run.
DECIDING = (Run.id, Run.state, Run.purpose, Run.cancel_requested_at)


def cancel(database: Database, settings: Settings, run_id: int, actor: str) -> RunDetail:
    """Cancel a queued run at once, a running one with its next heartbeat. Raises NotFound or InvalidTransition."""
    with database.write() as session:
        run = existing(session, Run, run_id, lock=True)
        cancel_locked(session, [run], Cause(actor, now(session)))
        session.refresh(run)
        return details.detail(session, settings, run)


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
        experiment = session.get(Experiment, existing(session, Run, run_id).experiment_id, with_for_update=LOCKED)
        run = existing(session, Run, run_id, lock=True)  # both may have been deleted meanwhile
        assert experiment is not None
        ends.reopen(experiment)
        retry_locked(session, [run], Cause(actor, now(session)))
        session.flush()
        session.refresh(run)
        return details.detail(session, settings, run)


def retry_locked(session: Session, runs: Sequence[Run | Row[Any]], cause: Cause) -> None:
    """Queue locked runs again. runs: objects, or rows of DECIDING. Raises InvalidTransition."""
    from_here = {"losses": 0, "started_at": None, "cancel_requested_at": None, "error": None}
    changes.make_all(session, cause, runs, "retry", **from_here)
