"""The live curve of a run from its heartbeats, stored until the run has a result, which contains every step."""

from __future__ import annotations

from itertools import pairwise

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from taskloom.contract.attempts import STEPPING, Progress
from taskloom.contract.runs import ProgressCurve, ProgressPoint
from taskloom.server.db import Database, existing, utc
from taskloom.server.queue.tables.attempts import Attempt
from taskloom.server.queue.tables.attempts import ProgressPoint as Row
from taskloom.server.queue.tables.runs import Run

MOST = 2000  # points of an attempt: more than eight hours of heartbeats every 15 s


def add(session: Session, attempt: Attempt, progress: Progress, at: float) -> None:
    """Store a point if the trainer has progressed. The attempt must be locked."""
    if progress.stage not in STEPPING or not progress.step:
        return
    known = select(func.max(Row.step), func.count()).where(Row.attempt_id == attempt.id)
    last, count = session.execute(known).one()
    if count < MOST and (last is None or progress.step > last):
        session.add(
            Row(
                attempt_id=attempt.id,
                step=progress.step,
                run_id=attempt.run_id,
                at=at,
                loss=progress.loss,
                tokens_per_s=progress.tokens_per_s,
            )
        )


def forget(session: Session, run: Run) -> None:
    """Delete the points of a run that has a result."""
    session.execute(delete(Row).where(Row.run_id == run.id))


def of_run(database: Database, run_id: int) -> ProgressCurve:
    """Raises NotFound."""
    with database.read() as session:
        existing(session, Run, run_id)
        query = select(Row, Attempt.attempt_no).join(Attempt, Attempt.id == Row.attempt_id)
        rows = session.execute(query.where(Row.run_id == run_id).order_by(Row.attempt_id, Row.step)).all()
    before = {now[0]: last[0] for last, now in pairwise(rows) if last[0].attempt_id == now[0].attempt_id}
    return ProgressCurve(
        run_id=run_id,
        items=[
            ProgressPoint(
                attempt_no=attempt_no,
                step=row.step,
                at=utc(row.at),
                loss=row.loss,
                tokens_per_s=row.tokens_per_s,
                step_s=(row.at - before[row].at) / (row.step - before[row].step) if row in before else None,
            )
            for row, attempt_no in rows
        ],
    )
