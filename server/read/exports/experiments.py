"""The list of experiments as a table: the fields of its rows, and their verdicts, flat."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args

from sqlalchemy import select

from taskloom.contract.experiments import ExperimentSummary, Verdict
from taskloom.server.db import Database
from taskloom.server.queue.experiments import details
from taskloom.server.queue.tables.experiments import Experiment
from taskloom.server.read.experiments.listing import Filters, Sort, look
from taskloom.server.read.lists import keyset

if TYPE_CHECKING:
    from taskloom.server.read.exports.tables import Kind

AT_ONCE = 100  # experiments per read
UNKNOWN = ("eta_s", "eta_basis")  # fields that only the list itself estimates
OF_VERDICT = ("verdict", "a", "b", "ratio", "low", "high", "primary", "sentence")
KINDS: dict[Any, Kind] = {float: "number", int: "integer", bool: "boolean", datetime: "instant"}


def _kind(annotation: Any) -> Kind:
    """The kind of a field; lists, objects and choices are text."""
    types = get_args(annotation) if NoneType in get_args(annotation) else (annotation,)
    return next((kind for of, kind in KINDS.items() if of in types), "text")


COLUMNS: dict[str, Kind] = {
    "experiment_id": "integer",
    **{name: _kind(field.annotation) for name, field in ExperimentSummary.model_fields.items()
       if name not in ("id", "verdict", *UNKNOWN)},
    **{name: _kind(Verdict.model_fields[name].annotation) for name in OF_VERDICT},
}  # fmt: skip


def rows(database: Database, filters: Filters, sort: Sort) -> Iterator[dict[str, Any]]:
    """A row for each experiment, by pages; each page is its own transaction. Raises InvalidRequest."""
    cursor: str | None = None
    while True:
        with database.read(snapshot=True) as session:
            ids, cursor = keyset.page(session, look(session, filters, sort), cursor, AT_ONCE)
            found = {row.id: row for row in session.scalars(select(Experiment).where(Experiment.id.in_(ids)))}
            page = details.summaries(session, [found[experiment_id] for experiment_id in ids])
        for item in page:
            verdict = {name: getattr(item.verdict, name, None) for name in OF_VERDICT}
            fields = {name: _flat(getattr(item, name)) for name in COLUMNS.keys() - {"experiment_id", *OF_VERDICT}}
            yield {"experiment_id": item.id, **fields, **verdict}
        if cursor is None:
            return


def _flat(value: Any) -> Any:
    """Lists of words as words, and other lists and objects as JSON."""
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return " ".join(value)
    return json.dumps(value) if isinstance(value, list | dict) else value
