"""Insert many rows with few statements. The values are one JSON text, which the database unpacks. With a parameter for
each value, drivers and SQLAlchemy take several times as long.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from sqlalchemy import Dialect, TextClause, text
from sqlalchemy.orm import Session

from taskloom.server.db import Base

CHUNK = 1000  # rows per statement, which bounds its memory


def insert(
    session: Session,
    table: type[Base],
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    same: Mapping[str, Any],
) -> None:
    """Insert rows, in their order, with a value for each of `columns`; a JSON column takes the JSON text.

    same: values by column that all rows share. All other columns get their defaults.
    """
    statement = _statement(session.get_bind().dialect, table, tuple(columns), tuple(same))
    for first in range(0, len(rows), CHUNK):
        session.execute(statement, {**same, "rows": orjson.dumps(rows[first : first + CHUNK]).decode()})


@functools.lru_cache(maxsize=32)
def _statement(dialect: Dialect, table: type[Base], columns: Sequence[str], same: Sequence[str]) -> TextClause:
    if dialect.name == "sqlite":
        values = [f":{name}" for name in same]
        values += [f"json_extract(value, '$[{place}]')" for place in range(len(columns))]
        source = "json_each(:rows)"
    else:
        kinds = {column.name: column.type.compile(dialect) for column in table.__table__.columns}
        values = [f"CAST(:{name} AS {kinds[name]})" for name in same]
        values += [f"CAST(value ->> {place} AS {kinds[name]})" for place, name in enumerate(columns)]
        source = "jsonb_array_elements(CAST(:rows AS jsonb)) WITH ORDINALITY AS given(value, key)"
    names = ", ".join((*same, *columns))
    return text(f"INSERT INTO {table.__tablename__} ({names}) SELECT {', '.join(values)} FROM {source} ORDER BY key")
