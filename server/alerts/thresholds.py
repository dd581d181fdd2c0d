"""Thresholds of series: set, read, delete."""

from __future__ import annotations

from sqlalchemy.orm import Session

from taskloom.contract.thresholds import SeriesThreshold, ThresholdRequest
from taskloom.server.alerts import raised
from taskloom.server.alerts.models import Threshold
from taskloom.server.db import Database, existing, now, utc
from taskloom.server.errors import InvalidRequest, NotFound
from taskloom.server.queue.tables.runs import Series


def put(database: Database, series_id: int, request: ThresholdRequest, actor: str) -> SeriesThreshold:
    """Set the threshold of a series, or replace it. Raises NotFound or InvalidRequest."""
    if request.lower is None and request.upper is None:
        accepted = "percent such as 5, unless lower is given"
        raise InvalidRequest([{"pointer": "/upper", "field": "upper", "value": None, "accepted": accepted}])
    with database.write() as session:
        existing(session, Series, series_id, lock=True)
        at = now(session)
        row = session.get(Threshold, series_id)
        if row is None:
            row = Threshold(series_id=series_id)
            session.add(row)
        row.reference_s, row.lower, row.upper = request.reference_s, request.lower, request.upper
        row.set_at, row.set_by = at, actor
        return _summary(row)


def remove(database: Database, series_id: int, actor: str) -> None:
    """Delete the threshold of a series, and dismiss its open alert. Raises NotFound."""
    with database.write() as session:
        row = session.get(Threshold, series_id)
        if row is None:
            raise NotFound(f"series {series_id} has no threshold")
        session.delete(row)
        alert = raised.of_threshold(session, series_id)
        if alert is not None:
            raised.update(session, alert, "dismissed", alert.ratio, f"{actor} deleted the threshold", now(session))


def of_series(session: Session, series_id: int) -> SeriesThreshold | None:
    """The threshold of a series; None without one."""
    row = session.get(Threshold, series_id)
    return None if row is None else _summary(row)


def _summary(row: Threshold) -> SeriesThreshold:
    return SeriesThreshold(
        reference_s=row.reference_s, lower=row.lower, upper=row.upper, set_at=utc(row.set_at), set_by=row.set_by
    )
