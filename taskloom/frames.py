"""Tables as data frames. Neither library is a dependency."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from taskloom.errors import FrameLibraryMissing

LIBRARIES = ("pandas", "polars")
Make = Callable[[bytes, str | Sequence[str] | None], Any]


def maker(library: str | None) -> Make:
    """Function that makes a data frame from NDJSON rows. Raises FrameLibraryMissing."""
    names = LIBRARIES if library is None else (library,)
    for name in names:
        if name in LIBRARIES and importlib.util.find_spec(name) is not None:
            return {"pandas": _pandas, "polars": _polars}[name]
    raise FrameLibraryMissing(f"a data frame needs {' or '.join(names)}: pip install {names[0]}")


def _pandas(lines: bytes, columns: str | Sequence[str] | None) -> Any:
    import pandas

    rows = _rows(lines)
    return pandas.DataFrame(rows, columns=None if rows else _names(columns))


def _polars(lines: bytes, columns: str | Sequence[str] | None) -> Any:
    import polars

    rows = _rows(lines)
    return polars.DataFrame(rows or None, schema=None if rows else _names(columns), infer_schema_length=None)


def _rows(lines: bytes) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in lines.splitlines()]
    for row in rows:
        for name, value in row.items():
            if name.endswith("_at") and isinstance(value, str):
                row[name] = datetime.fromisoformat(value)
    return rows


def _names(columns: str | Sequence[str] | None) -> list[str]:
    return [] if columns is None else columns.split(",") if isinstance(columns, str) else list(columns)
