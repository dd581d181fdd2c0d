"""Parameters of lists: instants, settings, sort orders."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Query, Request
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError
from sqlalchemy import ColumnElement

from taskloom.server import queries
from taskloom.server.context import Ctx
from taskloom.server.db import Database, now
from taskloom.server.queue.tables.experiments import Experiment
from taskloom.server.queue.tables.runs import Run
from taskloom.server.read.lists import grammar
from taskloom.server.read.lists.fields import INSTANT, Fields, Refused, Stored, check_once, instant, resolved
from taskloom.server.read.lists.grammar import Every, Tree

MOST_VALUES = 200  # in the expressions of one request; SQLite nests conditions up to 1,000 deep


def _check_instant(text: str) -> str:
    """Raises PydanticCustomError."""
    try:
        instant(text, 0)
    except Refused as refusal:
        raise PydanticCustomError("instant", "{accepted}", {"accepted": str(refusal)}) from None
    return text


def _label(text: str) -> str:
    """A label of KEY=VALUE in the form of the table RequiredLabel. Raises PydanticCustomError."""
    key, equals, value = text.partition("=")
    if not equals:
        raise PydanticCustomError("label", "KEY=VALUE")
    return json.dumps([key, value])


Instant = Annotated[
    Annotated[str, AfterValidator(_check_instant)] | None, Query(max_length=40, description=INSTANT, examples=["7d"])
]
Labels = Annotated[
    list[Annotated[str, AfterValidator(_label)]] | None,
    Query(max_length=20, description="KEY=VALUE: a label that the experiment requires; several: all must match"),
]
_Expressions = Annotated[
    list[Annotated[str, Field(max_length=grammar.MOST_CHARACTERS)]] | None,
    Query(
        max_length=20,
        description="an expression such as median_step_s < 0.1 and scheduler = task; several: all must match. GET "
        "/api/v1/filters/{list} has the names",
        examples=[["threads = 2"]],
    ),
]
Total = Annotated[bool, Query(description="whether the answer contains the number of rows of all pages")]


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
    period = {name: text for name, text in given.items() if text is not None}
    if not period:
        return EVER
    with context.database.read() as session:
        at = now(session)
    return Period(**{name: instant(text, at) for name, text in period.items()})


Periods = Annotated[Period, Depends(_period)]


def where(known: Fields) -> Any:
    """A dependency: what the parameter `filter` says in these names. It is one of its own, so that it is looked at
    even where another parameter is not accepted."""

    def found(request: Request, context: Ctx, filter: _Expressions = None) -> Tree | None:
        tree, refused = _expression(context.database, filter or (), known)
        queries.refuse(request, refused)
        return tree

    return Depends(found)


def _expression(database: Database, texts: Sequence[str], known: Fields) -> tuple[Tree | None, list[queries.Entry]]:
    """The filter that these expressions are together, None without any; and those that are refused."""
    if not texts:
        return None, []
    with database.read() as session:
        stored, parts, values, errors = Stored(session), list[Tree](), 0, []
        for text in texts:
            try:
                tree = grammar.parse(text)
                values += sum(len(comparison.values) for comparison in grammar.comparisons(tree))
                if values > MOST_VALUES:
                    raise Refused(f"at most {MOST_VALUES} values in all expressions together")
                found = resolved(tree, known, stored)
                parts += found.parts if isinstance(found, Every) else [found]
                check_once(parts, known)
            except (grammar.Unparsed, Refused) as refusal:
                errors.append(queries.entry("filter", text, str(refusal)))
    return Every(tuple(parts)), errors
