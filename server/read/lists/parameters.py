"""Parameters of lists: instants, settings, sort orders."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Query
from pydantic import Field
from sqlalchemy import ColumnElement

from taskloom.server.context import Ctx
from taskloom.server.db import Database, now
from taskloom.server.errors import InvalidRequest
from taskloom.server.queue.tables.experiments import Experiment
from taskloom.server.queue.tables.runs import Run
from taskloom.server.read.lists import grammar
from taskloom.server.read.lists.fields import INSTANT, Fields, Refused, Stored, check_once, instant, resolved
from taskloom.server.read.lists.grammar import Every, Tree

MOST_VALUES = 200  # in the expressions of one request; SQLite nests conditions up to 1,000 deep
Instant = Annotated[str | None, Query(max_length=40, description=INSTANT, examples=["7d"])]
Labels = Annotated[
    list[str] | None,
    Query(max_length=20, description="KEY=VALUE: a label that the experiment requires; several: all must match"),
]
Expressions = Annotated[
    list[Annotated[str, Field(max_length=grammar.MOST_CHARACTERS)]] | None,
    Query(
        max_length=20,
        description="an expression such as median_step_s < 0.1 and scheduler = task; several: all must match. GET "
        "/api/v1/filters/{list} has the names",
        examples=[["threads = 2"]],
    ),
]
Total = Annotated[bool, Query(description="whether the answer contains the number of rows of all pages")]


def refused(parameter: str, value: object, accepted: str) -> InvalidRequest:
    """The problem of a query parameter."""
    return InvalidRequest([_entry(parameter, value, accepted)])


def _entry(parameter: str, value: object, accepted: str) -> dict[str, object]:
    return {"pointer": f"#query/{parameter}", "field": parameter, "value": value, "accepted": accepted}


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
    bounds, errors = dict[str, float](), []
    for name, text in period.items():
        try:
            bounds[name] = instant(text, at)
        except Refused as refusal:
            errors.append(_entry(name, text, str(refusal)))
    if errors:
        raise InvalidRequest(errors)
    return Period(**bounds)


Periods = Annotated[Period, Depends(_period)]


def labels(parameter: str, texts: Sequence[str]) -> list[str]:
    """Labels of KEY=VALUE in the form of the table RequiredLabel. Raises InvalidRequest."""
    pairs = [text.partition("=") for text in texts]
    wrong = [text for text, (_, equals, _) in zip(texts, pairs, strict=True) if not equals]
    if wrong:
        raise InvalidRequest([_entry(parameter, text, "KEY=VALUE") for text in wrong])
    return [json.dumps([key, value]) for key, _, value in pairs]


def expression(database: Database, texts: Sequence[str], known: Fields, parameter: str = "filter") -> Tree | None:
    """The filter that these expressions are together; None without any. Raises InvalidRequest."""
    if not texts:
        return None
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
                check_once(parts)
            except (grammar.Unparsed, Refused) as refusal:
                errors.append(_entry(parameter, text, str(refusal)))
    if errors:
        raise InvalidRequest(errors)
    return Every(tuple(parts))
