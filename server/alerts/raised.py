"""Rows of alerts: summaries for answers, and changes of state, of which webhooks get messages."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import and_, func, or_, select
from sqlalchemy.orm import Session

from gpt2core.spec.config import DEFAULTS
from taskloom.contract.analysis import AlertKind, AlertSummary
from taskloom.contract.webhooks import AlertChanged
from taskloom.server.alerts.models import Alert
from taskloom.server.db import utc
from taskloom.server.queue.tables.runs import Run
from taskloom.server.webhooks import subscriptions

mode_of_run = func.coalesce(Run.spec["mode"].as_string(), DEFAULTS["mode"])  # those of earlier workers lack it


def summaries(session: Session, rows: Sequence[Alert]) -> list[AlertSummary]:
    """Alerts for a list."""
    of_runs = select(Run.id, mode_of_run.label("mode")).where(Run.id.in_([row.run_id for row in rows]))
    modes = {row.id: row.mode for row in session.execute(of_runs)}
    return [_summary(row, modes[row.run_id]) for row in rows]


def _summary(row: Alert, mode: str) -> AlertSummary:
    return AlertSummary(
        id=row.id,
        kind=row.kind,
        run_id=row.run_id,
        mode=mode,
        state=row.state,
        ratio=row.ratio,
        reason=row.reason,
        confirming_experiment_id=row.confirming_experiment_id,
        raised_at=utc(row.raised_at),
        changed_at=utc(row.changed_at),
    )


def new(session: Session, kind: AlertKind, run_id: int, at: float) -> Alert:
    """A new alert at a run, whose state is not yet known."""
    row = Alert(kind=kind, run_id=run_id, raised_at=at, state="", changed_at=at)
    session.add(row)
    return row


def of_threshold(session: Session, series_id: int, run_id: int | None = None) -> Alert | None:
    """The alert of a series' threshold that is open, or was raised at this run."""
    is_open = and_(Run.series_id == series_id, Alert.state.in_(("above", "below")))
    query = select(Alert).join(Run, Run.id == Alert.run_id).where(Alert.kind == "threshold")
    return session.scalars(query.where(or_(is_open, Run.id == run_id)).order_by(Alert.id.desc())).first()


def update(session: Session, row: Alert, state: str, ratio: float, reason: str, at: float) -> None:
    """Store what is known of an alert; webhooks get a message if its state is new."""
    is_new = row.state != state
    if is_new:
        row.state, row.changed_at = state, at
    row.ratio, row.reason = ratio, reason
    if is_new:
        session.flush()  # gives a new row its id
        (alert,) = summaries(session, [row])
        subscriptions.enqueue(session, "alert", AlertChanged(alert=alert))
