"""Exports are written by other processes into pipes, so that their rows never are in the server's memory, and an unread
export stops its process and not the server. A few run at once; others wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio import CapacityLimiter, to_thread
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from taskloom.server.access.guard import while_connected
from taskloom.server.db import Database
from taskloom.server.errors import OutOfResources, ServerError, TooManyExports
from taskloom.server.read import work
from taskloom.server.read.experiments import listing as experiments
from taskloom.server.read.exports import formats, tables
from taskloom.server.read.exports.formats import MEDIA_TYPES, Format
from taskloom.server.read.exports.tables import Kind
from taskloom.server.read.pool import rebuilt
from taskloom.server.read.processes import in_process
from taskloom.server.read.runs import listing as runs
from taskloom.server.read.sources import Refusal
from taskloom.server.settings import Settings

log = logging.getLogger("taskloom.server")
READ_BYTES = 64 << 10
END_S = 5.0  # for a writer to see that nobody reads


@dataclass(frozen=True)
class Export:
    """What is exported."""

    table: str
    form: Format
    columns: Mapping[str, Kind]
    filters: runs.Filters | experiments.Filters
    sort: str


def write(database: Database, price: float | None, export: Export, pipe: str) -> Refusal | None:
    """Write an export into a named pipe, until its reader is gone. price: of an hour of a node."""
    with Path(pipe).open("wb", buffering=0) as file:
        try:
            rows = tables.rows(database, export.table, export.columns, export.filters, export.sort, price)
            for piece in formats.written(export.form, export.columns, rows):
                _write_all(file.fileno(), piece)
        except BrokenPipeError:
            return None
        except ServerError as error:
            return Refusal.of(error)
    return None


def _write_all(handle: int, piece: bytes) -> None:
    rest = memoryview(piece)
    while rest:
        rest = rest[os.write(handle, rest) :]


class Exports:
    """Exports that run or wait; used from one event loop."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database, self._settings = database, settings
        self._turns = CapacityLimiter(settings.exports_at_once)
        self._waiting = 0

    def answer(self, export: Export, headers: dict[str, str]) -> StreamingResponse:
        return _Answer(self, export, headers)

    @contextlib.asynccontextmanager
    async def open(self, export: Export) -> AsyncIterator[AsyncIterator[bytes]]:
        """The pieces of an export. It ends with the block. Raises TooManyExports and the errors of the table, before
        the first piece."""
        async with self._turn(), self._pieces(export) as pieces:
            yield pieces

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        refusal = TooManyExports(f"{self._settings.exports_at_once} exports run at once, and others wait")
        refusal.headers["Retry-After"] = "5"
        if self._waiting >= self._settings.max_questions:
            raise refusal
        self._waiting += 1
        try:
            with anyio.fail_after(self._settings.analysis_s):
                await self._turns.acquire()
        except TimeoutError:
            raise refusal from None
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._turns.release()

    @contextlib.asynccontextmanager
    async def _pieces(self, export: Export) -> AsyncIterator[AsyncIterator[bytes]]:
        with _named_pipe() as pipe:
            source = os.fdopen(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0)
            reader = asyncio.StreamReader(READ_BYTES)
            transport, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(reader), source
            )
            writing = asyncio.create_task(self._write(export, str(pipe)))
            try:
                first = await self._first(reader, writing)
                yield _rest(first, reader, writing)
            finally:
                transport.close()  # ends a writer that still writes
                with anyio.move_on_after(END_S, shield=True):  # its process is kept then; another starts slowly
                    await asyncio.wait([writing])
                writing.cancel()
                await asyncio.wait([writing])

    async def _write(self, export: Export, pipe: str) -> Refusal | None:
        if not self._settings.processes:
            price = self._settings.price_per_node_hour
            return await to_thread.run_sync(write, self._database, price, export, pipe, limiter=CapacityLimiter(1))
        given = (self._settings.model_dump_json(), export, pipe)
        return await in_process(write_in_process, *given)

    @staticmethod
    async def _first(reader: asyncio.StreamReader, writing: asyncio.Task[Refusal | None]) -> bytes:
        """The first piece. Raises the errors of the table."""
        reading = asyncio.create_task(reader.read(READ_BYTES))
        try:
            await asyncio.wait([reading, writing], return_when=asyncio.FIRST_COMPLETED)
            if writing.done() or not await reading:  # the end of the pipe, of which the writer says why
                refusal = await writing
                if refusal is not None:
                    raise rebuilt(refusal)
            return await reading
        finally:
            reading.cancel()


@contextlib.contextmanager
def _named_pipe() -> Iterator[Path]:
    """A named pipe in the temporary folder, removed with the block. Raises OutOfResources."""
    with contextlib.ExitStack() as kept:
        try:
            pipe = Path(kept.enter_context(tempfile.TemporaryDirectory(prefix="taskloom-export-"))) / "pipe"
            os.mkfifo(pipe, 0o600)
        except OSError as error:
            log.error("an export needs the temporary folder (TMPDIR): %s", error)
            raise OutOfResources("the server's temporary folder cannot be written; its log has the reason") from error
        yield pipe


async def _rest(
    first: bytes, reader: asyncio.StreamReader, writing: asyncio.Task[Refusal | None]
) -> AsyncIterator[bytes]:
    piece = first
    while piece:
        yield piece
        piece = await reader.read(READ_BYTES)
    refusal = await writing
    if refusal is not None:  # the client sees that its file is incomplete, since the answer has no end
        raise rebuilt(refusal)


def write_in_process(settings: str, export: Export, pipe: str) -> Refusal | None:
    """Entry point of a process: `write`."""
    with work.as_reader(settings) as sources:
        return write(sources.database, sources.settings.price_per_node_hour, export, pipe)


class _Answer(StreamingResponse):
    """An export as an answer; it ends with its client."""

    def __init__(self, exports: Exports, export: Export, headers: dict[str, str]) -> None:
        super().__init__(_nothing(), media_type=MEDIA_TYPES[export.form], headers=headers)
        self._exports, self._export = exports, export

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        async def stream() -> None:
            async with self._exports.open(self._export) as pieces:
                self.body_iterator = pieces
                await self.stream_response(send)

        await while_connected(receive, stream())


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""
