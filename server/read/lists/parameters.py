"""Parameters of lists: instants, settings, sort orders."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Query
from sqlalchemy import ColumnElement, Text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from gpt2core.spec.config import NAMES
from gpt2core.spec.models import preset_name
from taskloom.contract import durations
from taskloom.contract.bodies import MOST
from taskloom.server.context import Ctx
from taskloom.server.db import now
from taskloom.server.errors import InvalidRequest
from taskloom.server.queue.tables.experiments import Experiment
from taskloom.server.queue.tables.runs import Run
from taskloom.server.read.analysis.selection import value_of

INSTANT = f"an instant such as 2026-11-22T10:00:00Z, or how long ago: {durations.EXAMPLES}"

Instant = Annotated[str | None, Query(max_length=40, description=INSTANT, examples=["7d"])]
Labels = Annotated[
    list[str] | None,
    Query(max_length=20, description="KEY=VALUE: a label that the experiment requires; several: all must match"),
]
Total = Annotated[bool, Query(description="whether the answer contains the number of rows of all pages")]


def refused(parameter: str, value: object, accepted: str) -> InvalidRequest:
    """The problem of a query parameter."""
    return InvalidRequest(
        [{"pointer": f"#query/{parameter}", "field": parameter, "value": value, "accepted": accepted}]
    )


@dataclass(frozen=True)
class Period:
    """Bounds of submission (from `since`, before `until`) and of the end; seconds since 1970."""

    since: float | None = None
    until: float | None = None
    finished_since: float | None = None
    finished_until: float | None = None

    def conditions(self, table: type[Run] | type[Experiment]) -> dict[str, ColumnElement[bool]]:
        """SQL of each bound that is set, by its name."""
        given: dict[str, ColumnElement[bool]] = {}
        if self.since is not None:
            given["since"] = table.created_at >= self.since
        if self.until is not None:
            given["until"] = table.created_at < self.until
        if self.finished_since is not None:
            given["finished_since"] = table.finished_at >= self.finished_since
        if self.finished_until is not None:
            given["finished_until"] = table.finished_at < self.finished_until
        return given


EVER = Period()
# The bounds of each column by which a list can be sorted.
BOUNDS = {"created_at": ("since", "until"), "finished_at": ("finished_since", "finished_until")}


def _period(
    context: Ctx,
    since: Instant = None,
    until: Instant = None,
    finished_since: Instant = None,
    finished_until: Instant = None,
) -> Period:
    given = {"since": since, "until": until, "finished_since": finished_since, "finished_until": finished_until}
    asked = {name: text for name, text in given.items() if text is not None}
    if not asked:
        return EVER
    with context.database.read() as session:
        at = now(session)
    return Period(**{name: _instant(name, text, at) for name, text in asked.items()})


Periods = Annotated[Period, Depends(_period)]


def _instant(parameter: str, text: str, at: float) -> float:
    """Seconds since 1970. Raises InvalidRequest."""
    ago_s = durations.seconds(text)
    if ago_s is not None:
        return at - ago_s
    try:
        given = datetime.datetime.fromisoformat(text)
        seconds = given.timestamp()
    except (OverflowError, ValueError):
        raise refused(parameter, text, INSTANT) from None
    if given.tzinfo is None:
        raise refused(parameter, text, f"{INSTANT}; an instant needs a time zone")
    return seconds


def labels(parameter: str, texts: Sequence[str]) -> list[str]:
    """Labels of KEY=VALUE in the form of the table RequiredLabel. Raises InvalidRequest."""
    pairs = [text.partition("=") for text in texts]
    for text, (_, equals, _) in zip(texts, pairs, strict=True):
        if not equals:
            raise refused(parameter, text, "KEY=VALUE")
    return [json.dumps([key, value]) for key, _, value in pairs]


def settings(parameter: str, texts: Iterable[str]) -> dict[str, Any]:
    """Settings and their values from NAME=VALUE. Raises InvalidRequest."""
    wanted: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or name not in NAMES or name in wanted:
            raise refused(parameter, text, "NAME=VALUE, each setting once; settings: " + ", ".join(NAMES))
        wanted[name] = value_of(value)
    return wanted


class json_text(FunctionElement[str]):
    """The JSON text of an object's member: json_text(column, name)."""

    type = Text()
    inherit_cache = True


@compiles(json_text, "sqlite")
@compiles(json_text, "postgresql")
def _json_text(element: json_text, compiler: SQLCompiler, **options: Any) -> str:
    column, *names = (compiler.process(clause, **options) for clause in element.clauses)
    path = " -> ".join([column, *names])
    return f"({path})" if compiler.dialect.name == "sqlite" else f"(({path})::text)"


def has(spec: Any, name: str, value: Any) -> ColumnElement[bool]:
    """SQL: the settings have this value."""
    if name == "model" and isinstance(value, str):
        return json_text(spec, "model", "name").in_(_spellings(preset_name(value)))
    return json_text(spec, name).in_(_spellings(value))


def _spellings(value: Any) -> list[str]:
    """Texts of a JSON value in databases: SQLite omits spaces, and 1 equals 1.0."""
    same = [value]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MOST:
        same.append(float(value))
    elif isinstance(value, float) and math.isfinite(value) and value.is_integer():
        same.append(int(value))
    return sorted({json.dumps(each, separators=between) for each in same for between in ((", ", ": "), (",", ":"))})
