"""A process of the analysis pool. It opens the database read-only, computes one answer at a time, and writes answers
to the cache's files, so that results and answers do not pass through the server's process.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import os
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from gpt2core.spec.locks import lock
from taskloom.server.artifact_store import Store, storing
from taskloom.server.db import Database
from taskloom.server.errors import AnalysisTooLong, ServerError
from taskloom.server.read.sources import Refusal, Sources
from taskloom.server.settings import Settings

NICENESS = 10  # claims and heartbeats have priority


def answer_in_process(settings: str, name: str, args: tuple[Any, ...], path: str | None) -> bytes | Refusal:
    """Entry point of a process: compute an answer with `answer`, within `analysis_s` of processor time."""
    with as_reader(settings) as sources, _within(sources.settings.analysis_s):
        return answer(sources, name, args, path)


@contextlib.contextmanager
def as_reader(settings: str) -> Iterator[Sources]:
    """What a process of the pool reads from. It gives way to claims and heartbeats."""
    _behave()
    try:
        yield _sources(settings)
    finally:
        _give_memory_back()


def answer(sources: Sources, name: str, args: tuple[Any, ...], path: str | None) -> bytes | Refusal:
    """The answer as bytes, or b"" if it was written to the file `path`."""
    from taskloom.server.read.questions import QUESTIONS  # not above: it would load all analyses in the server

    try:
        if path is None:
            return b"".join(QUESTIONS[name].answer(sources, args))
        file = Path(path)
        with _alone(file):
            if not file.exists():
                _write_whole(file, QUESTIONS[name].answer(sources, args))
                _forget_oldest(file.parent, sources.settings.max_answer_bytes)
    except ServerError as error:
        return Refusal.of(error)
    return b""


@contextlib.contextmanager
def _within(most_s: float) -> Iterator[None]:
    """Raises AnalysisTooLong, wherever the process is, once the block has taken this much processor time."""

    def stop(*_: object) -> None:
        raise AnalysisTooLong(most_s, " of processor time")

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, most_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)


@functools.cache
def _sources(settings: str) -> Sources:
    given = Settings.model_validate_json(settings)
    database = Database(given.database_url, given.busy_timeout_s, read_only=True)
    return Sources(database, Store(given.artifact_folder), given)


@functools.cache
def _behave() -> None:
    gc.disable()  # thousands of results are in use, so a collection takes long and finds little
    from taskloom.server.read import questions  # noqa: F401 (loads all analyses)

    gc.collect()
    gc.freeze()  # the collection after an answer would scan all loaded objects: 45 ms
    os.nice(NICENESS)  # at last: beside other load, loading would take minutes


def _give_memory_back() -> None:
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # the C library is not glibc
        ctypes.CDLL(None).malloc_trim(0)


@contextlib.contextmanager
def _alone(file: Path) -> Iterator[None]:
    """A lock, so that only one process of all servers on the folder computes an answer."""
    with contextlib.ExitStack() as kept:
        with storing("answers"):
            file.parent.mkdir(parents=True, exist_ok=True)
            opened = kept.enter_context((file.parent / f"{file.name[:2]}.lock").open("w"))
            lock(opened)  # without locks it is computed more than once
        yield


def _write_whole(file: Path, pieces: Iterable[bytes]) -> None:
    partial = file.with_suffix(".partial")
    try:
        with storing("answers"):
            content = partial.open("wb")
        try:
            for piece in pieces:
                with storing("answers"):
                    content.write(piece)
            with storing("answers"):
                content.flush()
        finally:
            with contextlib.suppress(OSError):  # what is still buffered finds no space either
                content.close()
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)


def _forget_oldest(folder: Path, most_bytes: int) -> None:
    """Delete the least recently used answers until the rest has at most `most_bytes`. The newest always stays."""
    kept = []
    for file in folder.glob("*.answer"):
        with contextlib.suppress(FileNotFoundError):  # another process deletes too
            status = file.stat()
            kept.append((status.st_mtime, status.st_size, file))
    newest, *older = sorted(kept, reverse=True)
    total = newest[1]
    for _, size, file in older:
        total += size
        if total > most_bytes:
            file.unlink(missing_ok=True)
