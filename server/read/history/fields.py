"""The names that filters of series know."""

from __future__ import annotations

from sqlalchemy import select

from taskloom.server.queue.tables.runs import Series
from taskloom.server.read.lists.fields import Field, fields, settings_in

SERIES_FIELDS = fields(
    [
        Field("node", "text", "the machine", Series.node, stored=select(Series.node).distinct(), nullable=False),
        Field("runs", "integer", "number of its runs", Series.runs, nullable=False),
        Field("last_at", "instant", "time of its newest result", Series.last_at),
    ],
    settings_in(Series.config, lambda value: select(value).distinct()),
)
