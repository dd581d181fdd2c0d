"""Output of trainers, stored line by line up to a limit per attempt."""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from taskloom.contract.attempts import OutputLines
from taskloom.contract.runs import LogLine, LogPage
from taskloom.server import paging
from taskloom.server.db import Database, existing, utc
from taskloom.server.queue.tables.attempts import Attempt, OutputLine
from taskloom.server.queue.tables.runs import Run

NO_MORE = "(the lines after this one are not kept)"


def add(session: Session, attempt: Attempt, sent: OutputLines, at: float, most: int) -> None:
    """Store the lines that are new. The attempt must be locked."""
    known = select(func.max(OutputLine.line_no)).where(OutputLine.attempt_id == attempt.id)
    last = session.execute(known).scalar_one() or 0
    for line_no, line in enumerate(sent.lines, sent.first):
        if last < line_no <= most:
            # PostgreSQL rejects null characters.
            text = NO_MORE if line_no == most else line.replace("\0", "\ufffd")
            session.add(OutputLine(attempt_id=attempt.id, run_id=attempt.run_id, line_no=line_no, at=at, text=text))


def after(session: Session, run_id: int, last_id: int, limit: int) -> list[tuple[int, LogLine]]:
    """Lines of a run with their ids, in the order of arrival."""
    query = (
        select(OutputLine, Attempt.attempt_no)
        .join(Attempt, Attempt.id == OutputLine.attempt_id)
        .where(OutputLine.run_id == run_id, OutputLine.id > last_id)
        .order_by(OutputLine.id)
        .limit(limit)
    )
    return [
        (row.id, LogLine(run_id=run_id, attempt_no=attempt_no, line_no=row.line_no, at=utc(row.at), text=row.text))
        for row, attempt_no in session.execute(query)
    ]


def _before_tail(session: Session, run_id: int, lines: int) -> int:
    """The id of the line before the last `lines` lines of a run; 0 if the run has no more lines."""
    newest = select(OutputLine.id).where(OutputLine.run_id == run_id).order_by(OutputLine.id.desc())
    return session.execute(newest.offset(lines).limit(1)).scalar() or 0


def page(database: Database, run_id: int, cursor: str | None, limit: int, tail: int | None) -> LogPage:
    """A page of lines; with `tail`, at most this many lines, the last ones. Raises NotFound or BadCursor."""
    last_id = paging.decode_id(cursor) or 0
    with database.read(snapshot=True) as session:
        existing(session, Run, run_id)
        if tail is not None:
            last_id, limit = max(last_id, _before_tail(session, run_id, tail)), tail
        rows = after(session, run_id, last_id, limit)
    return LogPage(items=[line for _, line in rows], cursor=paging.encode(rows[-1][0] if rows else last_id))
