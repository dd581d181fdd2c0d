"""Writes rows as bytes, in pieces: CSV and NDJSON with the standard library, Parquet and Arrow with pyarrow."""

from __future__ import annotations

import csv
import datetime
import importlib.util
import io
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

from taskloom.server.read.exports.tables import Kind, Row

Format = Literal["csv", "ndjson", "parquet", "arrow"]
MEDIA_TYPES: dict[Format, str] = {
    "csv": "text/csv",
    "ndjson": "application/x-ndjson",
    "parquet": "application/vnd.apache.parquet",
    "arrow": "application/vnd.apache.arrow.file",
}
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # as OWASP lists them, with wide forms
ROWS_AT_ONCE = 1000
ROWS_OF_A_GROUP = 50_000  # large groups make reading Parquet fast


def is_available(form: Format) -> bool:
    """Whether this installation can write the format."""
    return form in ("csv", "ndjson") or importlib.util.find_spec("pyarrow") is not None


def written(form: Format, columns: Mapping[str, Kind], rows: Iterable[Row]) -> Iterator[bytes]:
    """The table in pieces."""
    make: Callable[[Mapping[str, Kind], Iterable[Row]], Iterator[bytes]] = {
        "csv": _csv, "ndjson": _ndjson, "parquet": _parquet, "arrow": _arrow,
    }[form]  # fmt: skip
    return make(columns, rows)


def _batches(rows: Iterable[Row], size: int) -> Iterator[list[Row]]:
    source = iter(rows)
    while batch := list(itertools.islice(source, size)):
        yield batch


def _csv(columns: Mapping[str, Kind], rows: Iterable[Row]) -> Iterator[bytes]:
    """CSV with a header line; null is empty. Text that a spreadsheet would read as a formula begins with an
    apostrophe."""
    lines = _Lines()
    writer = csv.writer(lines, lineterminator="\r\n")  # so that text with a carriage return is quoted, too
    writer.writerow(columns)
    for batch in _batches(rows, ROWS_AT_ONCE):
        writer.writerows([_cell(row[name]) for name in columns] for row in batch)
        yield lines.take()
    yield lines.take()


class _Lines:
    """Collects the lines of a CSV writer, which end with a line feed here."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def write(self, line: str) -> None:
        self._lines.append(line.removesuffix("\r\n") + "\n")

    def take(self) -> bytes:
        lines, self._lines = self._lines, []
        return "".join(lines).encode()


def _ndjson(columns: Mapping[str, Kind], rows: Iterable[Row]) -> Iterator[bytes]:
    for batch in _batches(rows, ROWS_AT_ONCE):
        lines = (json.dumps({name: _plain(row[name]) for name in columns}) for row in batch)
        yield ("\n".join(lines) + "\n").encode()


def _cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else _plain(value)


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime.datetime) else value


def _parquet(columns: Mapping[str, Kind], rows: Iterable[Row]) -> Iterator[bytes]:
    import pyarrow
    import pyarrow.parquet

    schema = _schema(columns)

    def pieces() -> Iterator[bytes]:
        sink = Sink()
        with pyarrow.parquet.ParquetWriter(sink, schema, compression="zstd") as writer:
            group: list[Any] = []  # in columns, which take a tenth of the memory of rows
            for batch in _batches(rows, ROWS_AT_ONCE):
                group.append(pyarrow.RecordBatch.from_pylist([{n: row[n] for n in columns} for row in batch], schema))
                if sum(part.num_rows for part in group) >= ROWS_OF_A_GROUP:
                    writer.write_table(pyarrow.Table.from_batches(group, schema))
                    group.clear()
                    yield sink.take()
            if group:
                writer.write_table(pyarrow.Table.from_batches(group, schema))
        yield sink.take()

    return pieces()


def _arrow(columns: Mapping[str, Kind], rows: Iterable[Row]) -> Iterator[bytes]:
    import pyarrow
    import pyarrow.ipc

    schema = _schema(columns)

    def pieces() -> Iterator[bytes]:
        sink = Sink()
        with pyarrow.ipc.new_file(sink, schema) as writer:
            for batch in _batches(rows, ROWS_AT_ONCE):
                part = pyarrow.RecordBatch.from_pylist([{n: row[n] for n in columns} for row in batch], schema)
                writer.write_batch(part)
                yield sink.take()
        yield sink.take()

    return pieces()


def _schema(columns: Mapping[str, Kind]) -> Any:
    import pyarrow

    kinds = {
        "integer": pyarrow.int64(),
        "number": pyarrow.float64(),
        "text": pyarrow.string(),
        "boolean": pyarrow.bool_(),
        "instant": pyarrow.timestamp("us", tz="UTC"),
    }
    return pyarrow.schema([(name, kinds[kind]) for name, kind in columns.items()])


class Sink(io.RawIOBase):
    """A write-only file whose bytes are consumed as they are written."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        part = bytes(data)
        self._parts.append(part)
        self._size += len(part)
        return len(part)

    def tell(self) -> int:
        return self._size

    def take(self) -> bytes:
        """Bytes written since the last call."""
        parts, self._parts = self._parts, []
        return b"".join(parts)
