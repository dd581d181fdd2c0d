"""The queue in claim order, and the attempts of workers."""

from __future__ import annotations

from sqlalchemy import func, select, tuple_
from sqlalchemy.orm import load_only

from taskloom.contract.demand import QueuedRun, QueuedRunPage
from taskloom.contract.workers import WorkerAttempt, WorkerAttemptPage
from taskloom.server import paging
from taskloom.server.db import Database, existing, utc
from taskloom.server.queue.attempts.lifecycle import summary
from taskloom.server.queue.runs.queue import Outlook
from taskloom.server.queue.tables.attempts import Attempt
from taskloom.server.queue.tables.experiments import Experiment
from taskloom.server.queue.tables.runs import Run, is_queued
from taskloom.server.queue.tables.workers import Worker
from taskloom.server.read.lists import keyset
from taskloom.server.read.lists.keyset import Look, Order
from taskloom.server.settings import Settings


def queue(database: Database, settings: Settings, cursor: str | None, limit: int) -> QueuedRunPage:
    """Queued runs as they are claimed. Raises BadCursor."""
    with database.read(snapshot=True) as session:
        ids, next_cursor = keyset.page(session, Look(Run.id, Order(Run.rank), [(is_queued(),)]), cursor, limit)
        # Not the specs, which are most of a run.
        needed = load_only(Run.experiment_id, Run.variant, Run.block, Run.rank, Run.queued_at, Run.timeout_s)
        query = select(Run, Experiment.name).join(Experiment, Experiment.id == Run.experiment_id).options(needed)
        rows = {run.id: (run, name) for run, name in session.execute(query.where(Run.id.in_(ids)))}
        total = session.execute(select(func.count()).where(is_queued())).scalar_one()
        outlook = Outlook(session, settings, [rows[run_id][0] for run_id in ids])
        items, before = [], 0
        if ids:
            first, _ = rows[ids[0]]
            ahead = select(func.count()).where(is_queued(), tuple_(Run.rank, Run.id) < tuple_(first.rank, first.id))
            before = session.execute(ahead).scalar_one()
        for i, run_id in enumerate(ids):
            run, name = rows[run_id]
            reason, text = outlook.waiting_for(outlook.wish(run), before + i)
            items.append(
                QueuedRun(
                    position=before + i + 1,
                    run_id=run.id,
                    experiment_id=run.experiment_id,
                    experiment_name=name,
                    variant=run.variant,
                    block=run.block,
                    priority=-run.rank,
                    queued_at=utc(run.queued_at),
                    reason=reason,
                    waiting_for=text,
                )
            )
    return QueuedRunPage(items=items, next_cursor=next_cursor, total=total)


def attempts(database: Database, worker_id: str, cursor: str | None, limit: int) -> WorkerAttemptPage:
    """Attempts of a worker, newest first. Raises NotFound or BadCursor."""
    before = paging.decode_id(cursor)
    query = select(Attempt, Run.experiment_id).join(Run, Run.id == Attempt.run_id)
    query = query.where(Attempt.worker_id == worker_id).order_by(Attempt.id.desc()).limit(limit + 1)
    if before is not None:
        query = query.where(Attempt.id < before)
    with database.read() as session:
        existing(session, Worker, worker_id)
        rows, more = paging.split(session.execute(query).all(), limit)
    return WorkerAttemptPage(
        items=[
            WorkerAttempt(
                **summary(attempt).model_dump(),
                experiment_id=experiment_id,
                cores=[int(core) for core in filter(None, attempt.core_set.split(","))],
            )
            for attempt, experiment_id in rows
        ],
        next_cursor=paging.encode(rows[-1][0].id) if more else None,
    )
