"""The names that filters and sort orders of series know."""

from __future__ import annotations

import functools

from sqlalchemy import ColumnElement, func, select

from gpt2core.spec.roles import MAIN
from taskloom.server.alerts.models import Alert
from taskloom.server.queue.tables.runs import Run, Series
from taskloom.server.read.lists.fields import Field, fields, settings_in
from taskloom.server.read.lists.members import json_value

SERIES_FIELDS = fields(
    [
        Field("node", "text", "the machine", Series.node, stored=select(Series.node).distinct(), nullable=False),
        Field("runs", "integer", "number of its runs", Series.runs, nullable=False),
        Field("last_at", "instant", "time of its newest result", Series.last_at),
    ],
    settings_in(Series.config, lambda value: select(value).distinct()),
)
_PATHS = [(name, "name") if name == "model" else (name,) for name in MAIN]
_NAME: list[ColumnElement[str]] = [func.coalesce(json_value(Series.config, *path), "") for path in _PATHS]
_OF_IT = Run.series_id == Series.id
_NEWEST = select(Run.median_step_s).where(_OF_IT, Run.finished_at.is_not(None))
_NEWEST = _NEWEST.order_by(Run.finished_at.desc(), Run.id.desc()).limit(1)
_ALERTS = select(func.count()).select_from(Run).join(Alert, Alert.run_id == Run.id).where(_OF_IT)
# Columns that are sorted and not filtered.
COLUMNS = (
    Field("id", "integer", "number of the series", Series.id),
    Field("name", "text", "model, then the other main settings", functools.reduce(lambda a, b: a + " " + b, _NAME)),
    Field("median_step_s", "number", "that of its newest run, seconds", _NEWEST.scalar_subquery()),
    Field("alerts", "integer", "number of its alerts", _ALERTS.scalar_subquery()),
)
