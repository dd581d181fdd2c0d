"""Keyset pagination: a page is read along an index from the end of the last page, with a bounded number of rows.

Conditions that an index covers select a range of it (`along`, `within`). All other conditions (`where`) are tested row
by row, on at most WINDOW rows per page, so a page may be short or empty although a next page exists.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Double, Select, cast, literal, null, select, tuple_
from sqlalchemy.orm import InstrumentedAttribute, Session

from taskloom.contract.bodies import MOST_ID
from taskloom.server import paging
from taskloom.server.errors import BadCursor

WINDOW = 5_000

Condition = ColumnElement[bool]
Kind = type[float] | type[int] | type[str]


@dataclass(frozen=True)
class Place:
    """A place in a list: its value (None: the row has none, or the list is sorted by the id alone) and its id."""

    value: float | str | None
    id: int

    def signed(self, sign: int) -> tuple[float, int]:
        """Sort key of numbers within one part of a list. sign: 1 for ascending, -1 for descending."""
        return sign * float(self.value or 0.0), sign * self.id

    def __str__(self) -> str:
        value = f"'{self.value}" if isinstance(self.value, str) else "" if self.value is None else float(self.value)
        return paging.encode(f"{value}~{self.id}")

    @classmethod
    def parse(cls, cursor: str | None, kind: Kind) -> Place | None:
        """kind: of the list's values. Raises BadCursor."""
        text = paging.decode(cursor)
        if text is None:
            return None
        value, tilde, identity = text.rpartition("~")
        if not tilde:
            raise BadCursor
        return cls(_value(value, kind) if value else None, paging.whole_id(identity))


def _value(text: str, kind: Kind) -> float | str:
    """Raises BadCursor."""
    if kind is str:
        if not text.startswith("'") or "\0" in text:
            raise BadCursor
        return text[1:]
    try:
        number = float(text)
    except ValueError:
        raise BadCursor from None
    if not math.isfinite(number) or (kind is int and abs(number) > MOST_ID):
        raise BadCursor
    return kind(number)


@dataclass(frozen=True)
class Order:
    """Sort order of a list: a column and then the id, or the id alone. Rows without a value come last. kind: of the
    column's values; text is sorted as the database compares it."""

    column: ColumnElement[Any] | InstrumentedAttribute[Any] | None = None
    descending: bool = False
    kind: Kind = float


@dataclass(frozen=True)
class Look:
    """Conditions of a list. along: values of the leading columns of the index, whose lists are merged. within: ranges
    of the sorted column. above: conditions only for rows with a value. where: all other conditions. window: number of
    rows that a page tests, if not WINDOW."""

    identity: InstrumentedAttribute[int]
    order: Order
    along: Sequence[Sequence[Condition]] = ((),)
    within: Sequence[Condition] = ()
    above: Sequence[Condition] = ()
    where: Sequence[Condition] = ()
    window: int | None = None


def page(session: Session, look: Look, cursor: str | None, limit: int) -> tuple[list[int], str | None]:
    """The ids of a page's rows in their order, and the next page's cursor. Raises BadCursor."""
    after = Place.parse(cursor, look.order.kind)
    found: list[Place] = []
    for part in _parts(look, after):
        places, end = _next(session, look, part, limit + 1 - len(found))
        found += places
        if len(found) > limit:
            end = found[limit - 1]
        if end is not None:
            return [place.id for place in found[:limit]], str(end)
    return [place.id for place in found], None


@dataclass(frozen=True)
class _Part:
    """Remaining rows of a list: those with the last page's value, with others, or with none. here: position of a row,
    in SQL: its id, or `by_value` its value and id."""

    rows: Select[Any]
    here: Any
    by_value: bool = False

    def up_to(self, end: Place, descending: bool) -> Select[Any]:
        there = tuple_(literal(end.value), literal(end.id)) if self.by_value else end.id
        return self.rows.where(self.here >= there if descending else self.here <= there)


def _parts(look: Look, after: Place | None) -> Iterator[_Part]:
    """The rows with the value of the last page's end, those with other values, and those without; only one part if the
    list is sorted by the id. Each is a range of the index: SQLite finds no place between equal values."""
    column, identity, descending = look.order.column, look.identity, look.order.descending
    if column is not None and (after is None or after.value is not None):
        rows: Select[Any] = select(column.label("value"), identity.label("id"))
        rows = rows.where(column.is_not(None), *look.within, *look.above)
        if after is not None:
            value = literal(after.value)
            equal = rows.where(column == value, identity < after.id if descending else identity > after.id)
            yield _Part(equal.order_by(*_directed(look.order, identity)), identity)
            rows = rows.where(column < value if descending else column > value)
        yield _Part(rows.order_by(*_directed(look.order, column, identity)), tuple_(column, identity), by_value=True)
        after = None
    rest: Select[Any] = select(cast(null(), Double).label("value"), identity.label("id"))
    if column is not None:
        rest = rest.where(column.is_(None), *look.within)
    if after is not None:
        rest = rest.where(identity < after.id if descending else identity > after.id)
    yield _Part(rest.order_by(*_directed(look.order, identity)), identity)


def _next(session: Session, look: Look, part: _Part, most: int) -> tuple[list[Place], Place | None]:
    """The next places of a part, and the place where the search stopped if it did not reach the end of the part."""
    ends: list[Place] = []
    if look.where:
        for along in look.along:
            ends += _places(session, part.rows.where(*along).offset((look.window or WINDOW) - 1).limit(1))
    end = next(iter(_merged(ends, look)), None)
    rows = part.rows if end is None else part.up_to(end, look.order.descending)
    places: list[Place] = []
    for along in look.along:
        places += _places(session, rows.where(*along, *look.where).limit(most))
    return _merged(places, look), end


def _merged(places: list[Place], look: Look) -> list[Place]:
    """Places of the lists of `along` in one order. Text is in one list, since only the database knows its order."""
    if len(look.along) == 1:
        return places
    sign = -1 if look.order.descending else 1
    return sorted(places, key=lambda place: place.signed(sign))


def _places(session: Session, query: Select[Any]) -> list[Place]:
    return [Place(value, identity) for value, identity in session.execute(query)]


def _directed(order: Order, *columns: Any) -> Iterator[Any]:
    return (column.desc() if order.descending else column.asc() for column in columns)
