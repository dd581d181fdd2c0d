"""Converts traces to the formats of viewers, in pieces."""

from __future__ import annotations

import itertools
import zipfile
import zlib
from collections.abc import Hashable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Literal

from sqlalchemy.orm import Session

from taskloom.analysis import chrome, paraver
from taskloom.analysis.trace import Trace
from taskloom.contract.artifacts import ArtifactSummary
from taskloom.server.errors import NotFound, UnreadableTrace
from taskloom.server.queue.tables.runs import Run
from taskloom.server.read.analysis import reading
from taskloom.server.read.artifacts.lookup import chosen
from taskloom.server.read.exports.formats import Sink
from taskloom.server.read.sources import Content, Sources

LEVEL = 5  # of compression; level 6 takes twice as long and saves a tenth
LINES_AT_ONCE = 1000


def of_traces(*run_ids: int) -> Content:
    """State of the traces of runs. Raises NotFound if a run has none."""

    def content(session: Session) -> Hashable:
        found = _files(session, run_ids)
        return tuple(found[run_id].sha256 for run_id in run_ids)

    return content


def trace(sources: Sources, run_ids: Sequence[int], form: Literal["chrome", "paraver"]) -> Iterator[bytes]:
    """The file, compressed. Raises NotFound or UnreadableTrace."""
    with sources.database.read() as session:
        files = _files(session, run_ids)
    traces = [_trace(sources, run_id, files[run_id]) for run_id in run_ids]
    if form == "chrome":
        named = zip(run_ids, traces, strict=True)
        return _packed(chrome.chrome([(f"run {run_id}: {found.title}", found) for run_id, found in named]))
    return _paraver(run_ids[0], traces[0], files[run_ids[0]].received_at)


def _files(session: Session, run_ids: Sequence[int]) -> dict[int, ArtifactSummary]:
    found = chosen(session, reading.TRACE, run_ids)
    for run_id in run_ids:
        if run_id not in found:
            known = session.get(Run, run_id) is not None
            message = f"run {run_id} was not traced: submit it with `trace`" if known else f"there is no run {run_id}"
            raise NotFound(message)
    return found


def _trace(sources: Sources, run_id: int, file: ArtifactSummary) -> Trace:
    try:
        found = reading.trace(sources.store, run_id, file)
    except ValueError as error:
        raise UnreadableTrace(str(error)) from None
    if found is None:
        raise NotFound(f"the trace of run {run_id} is not in this server's store")
    return found


def _packed(pieces: Iterable[str]) -> Iterator[bytes]:
    """Text as gzip."""
    packing = zlib.compressobj(LEVEL, wbits=31)
    for text in _batches(pieces):
        yield packing.compress(text)
    yield packing.flush()


def _paraver(run_id: int, found: Trace, at: datetime) -> Iterator[bytes]:
    """The three files, in a ZIP."""
    sink = Sink()
    parts = {
        "prv": (line + "\n" for line in paraver.prv(found, at)),
        "pcf": [paraver.pcf(found)],
        "row": [paraver.row(found)],
    }
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED, compresslevel=LEVEL) as archive:
        for suffix, pieces in parts.items():
            date = (at.year, at.month, at.day, at.hour, at.minute, at.second)
            entry = zipfile.ZipInfo(f"run-{run_id}.{suffix}", date)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            with archive.open(entry, "w", force_zip64=True) as file:
                for text in _batches(pieces):
                    file.write(text)
                    yield sink.take()
    yield sink.take()


def _batches(pieces: Iterable[str]) -> Iterator[bytes]:
    source = iter(pieces)
    while batch := "".join(itertools.islice(source, LINES_AT_ONCE)):
        yield batch.encode()
