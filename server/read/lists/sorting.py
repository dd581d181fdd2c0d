"""Sort orders of lists: the columns that `sort` accepts, and which of them an index sorts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import Query
from pydantic_core import PydanticCustomError
from sqlalchemy.orm import Session

from taskloom.server import queries
from taskloom.server.errors import InvalidRequest
from taskloom.server.read.lists import keyset
from taskloom.server.read.lists.fields import Field, Fields, fields, near
from taskloom.server.read.lists.keyset import Look, Order


@dataclass(frozen=True)
class Sorts:
    """Columns by which a list can be sorted. indexed: those that an index sorts, whatever the number of rows; rows are
    sorted by others only if they are few. narrowing: filters by which an index selects few."""

    known: Fields
    indexed: Sequence[str]
    narrowing: str

    @property
    def query(self) -> Any:
        """Description of the parameter `sort`."""
        text = (
            "a column; with - before it: descending. Rows without a value come last. Sorted whatever their number: "
            f"{', '.join(self.indexed)}; others with filters that leave fewer than {keyset.WINDOW:,} rows to search"
        )
        return Query(description=text, json_schema_extra={"enum": [m + name for name in self.known for m in ("", "-")]})

    def check(self, sort: str) -> str:
        """`sort`, if it is accepted. Raises PydanticCustomError."""
        name = sort.removeprefix("-")
        if name not in self.known:
            accepted = f"a column, with - before it: descending{near(name, self.known)}; columns are "
            raise PydanticCustomError("sort", "{accepted}", {"accepted": accepted + ", ".join(self.known)})
        return sort

    def order(self, sort: str, by_index: bool = False) -> Order:
        """by_index: rows are read along an index of the column; else they are read and then sorted."""
        column, kind = self.known[sort.removeprefix("-")].sorted_by
        return Order(column if by_index else column + kind(), sort.startswith("-"), kind)

    def few(self, session: Session, rows: Look, sort: str) -> Look:
        """Query that reads these rows, all of them, and sorts them. Raises InvalidRequest for more rows than a page
        reads."""
        ids, more = keyset.page(session, rows, None, rows.window or keyset.WINDOW)
        if more is not None:
            name = sort.removeprefix("-")
            accepted = (
                f"{name} only with filters that leave fewer than {rows.window or keyset.WINDOW:,} rows to search "
                f"({self.narrowing}), since no index sorts more of them; more are sorted by "
                + ", ".join(each for each in self.indexed if each != name)
            )
            raise InvalidRequest([queries.entry("sort", sort, accepted)])
        return Look(rows.identity, self.order(sort), [(rows.identity.in_(ids),)])


def sortable(known: Iterable[Field]) -> Fields:
    """The fields that have one value in each row, and an order."""
    return fields(field for field in known if field.member is None and field.kind != "json")
