"""Step times of a running attempt from its heartbeats, stored until its run has a result."""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Iterator, Sequence

from sqlalchemy import and_, delete, func, or_, select
from sqlalchemy.orm import Session, aliased

from taskloom.contract.attempts import StepsDone
from taskloom.contract.runs import StepPage, StepSeen
from taskloom.server import paging
from taskloom.server.db import Database, existing
from taskloom.server.errors import BadCursor
from taskloom.server.queue.tables.attempts import Attempt, StepTimes, is_active
from taskloom.server.queue.tables.runs import Run

MOST = 20_000  # newest steps of an attempt that are stored
NEWEST = 100  # steps in an event
Values = Sequence[float | None]  # of some steps


def add(session: Session, attempt: Attempt, sent: StepsDone) -> None:
    """Store new steps, and delete the oldest ones beyond MOST. The attempt must be locked."""
    known = select(func.max(StepTimes.last)).where(StepTimes.attempt_id == attempt.id)
    new = max(0, (session.execute(known).scalar_one() or 0) + 1 - sent.first)
    last = sent.first + len(sent.step_s) - 1
    if new >= len(sent.step_s):
        return
    old = delete(StepTimes).where(StepTimes.attempt_id == attempt.id, StepTimes.last <= last - MOST)
    session.execute(old)
    session.add(
        StepTimes(
            attempt_id=attempt.id,
            run_id=attempt.run_id,
            first=sent.first + new,
            last=last,
            step_s=json.dumps(sent.step_s[new:]).encode(),
            loss=_stored(sent.loss, sent.evaluation_loss, new),
            accuracy=_stored(sent.accuracy, sent.evaluation_accuracy, new),
        )
    )


def _stored(values: Values | None, evaluations: Values | None, new: int) -> bytes | None:
    """JSON of the new steps' values, with that of an evaluation as a pair. None: there are none."""
    if values is None and evaluations is None:
        return None
    each = itertools.zip_longest(values or [], evaluations or [])
    return json.dumps([value if other is None else (value, other) for value, other in each][new:]).encode()


def forget(session: Session, run: Run) -> None:
    """Delete the steps of a run that has a result."""
    session.execute(delete(StepTimes).where(StepTimes.run_id == run.id))


def page(database: Database, run_id: int, cursor: str | None, limit: int) -> StepPage:
    """Raises NotFound or BadCursor."""
    attempt_id, step = _place(cursor)
    after = or_(StepTimes.attempt_id > attempt_id, and_(StepTimes.attempt_id == attempt_id, StepTimes.last > step))
    query = select(StepTimes, Attempt.attempt_no).join(Attempt, Attempt.id == StepTimes.attempt_id)
    query = query.where(StepTimes.run_id == run_id, after).order_by(StepTimes.attempt_id, StepTimes.last)
    items: list[StepSeen] = []
    with database.read() as session:
        existing(session, Run, run_id)
        for row, attempt_no in session.execute(query.limit(limit)).all():  # each row has at least one step
            begin = step if row.attempt_id == attempt_id else 0
            found = [seen for seen in _seen(row, attempt_no) if seen.step > begin][: limit - len(items)]
            items += found
            attempt_id, step = row.attempt_id, found[-1].step
            if len(items) == limit:
                break
    return StepPage(run_id=run_id, items=items, cursor=paging.encode(f"{attempt_id}~{step}"))


def newest(session: Session, run_ids: Collection[int]) -> dict[int, list[StepSeen]]:
    """The newest steps of each running run, at most NEWEST."""
    other = aliased(StepTimes)
    newest_step = select(func.max(other.last)).where(other.attempt_id == Attempt.id).scalar_subquery()
    chunks = select(StepTimes, Attempt.attempt_no).join(Attempt, Attempt.id == StepTimes.attempt_id)
    chunks = chunks.where(Attempt.run_id.in_(run_ids), is_active(), StepTimes.last == newest_step)
    return {row.run_id: list(_seen(row, attempt_no))[-NEWEST:] for row, attempt_no in session.execute(chunks)}


def _seen(row: StepTimes, attempt_no: int) -> Iterator[StepSeen]:
    times = json.loads(row.step_s)
    accuracies = [None] * len(times) if row.accuracy is None else json.loads(row.accuracy)
    each = zip(times, map(_pair, json.loads(row.loss)), map(_pair, accuracies), strict=True)
    for step, (step_s, (loss, of_loss), (accuracy, of_accuracy)) in enumerate(each, row.first):
        yield StepSeen(
            attempt_no=attempt_no, step=step, step_s=step_s, loss=loss, accuracy=accuracy, evaluation_loss=of_loss,
            evaluation_accuracy=of_accuracy,
        )  # fmt: skip


def _pair(stored: list[float | None] | float | None) -> Values:
    """A step's value and that of its evaluation."""
    return stored if isinstance(stored, list) else (stored, None)


def _place(cursor: str | None) -> tuple[int, int]:
    """The last attempt and step that were read. Raises BadCursor."""
    text = paging.decode(cursor)
    if text is None:
        return 0, 0
    attempt, tilde, step = text.partition("~")
    if not tilde or not (step.isascii() and step.isdecimal() and len(step) <= 16):
        raise BadCursor
    return paging.whole_id(attempt), int(step)
