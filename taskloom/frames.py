"""Tables as files and data frames. Neither library of frames is a dependency."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from gpt2core.spec.errors import ConfigError
from taskloom.errors import FrameLibraryMissing

FORMATS = {
    "csv": "csv",
    "ndjson": "ndjson",
    "jsonl": "ndjson",
    "parquet": "parquet",
    "arrow": "arrow",
    "feather": "arrow",
}
LIBRARIES = ("pandas", "polars")
Make = Callable[[bytes, str | Sequence[str] | None], Any]


def format_of(target: Path) -> str:
    """Format of an export by its file's name. Raises ConfigError."""
    found = FORMATS.get(target.suffix.removeprefix("."))
    if found is None:
        raise ConfigError("format", target.name, f"a name that ends in .{', .'.join(FORMATS)}; or name the format")
    return found


def maker(library: str | None) -> Make:
    """Function that makes a data frame from NDJSON rows. Raises ConfigError or FrameLibraryMissing."""
    names = LIBRARIES if library is None else (library,)
    if not {*names} <= {*LIBRARIES}:
        raise ConfigError("library", library, " or ".join(LIBRARIES))
    for name in names:
        if importlib.util.find_spec(name) is not None:
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
