"""Opens regular files, and replaces files completely or not at all. Standard library only."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from gpt2core.spec.errors import UnreadableFile


def unreadable(path: str | Path, error: OSError) -> UnreadableFile:
    return UnreadableFile(path, error.strerror or str(error))


@contextlib.contextmanager
def open_regular(path: str | Path) -> Iterator[tuple[BinaryIO, int]]:
    """The file, open for reading, and its size in bytes. Raises UnreadableFile, also if it is not a regular file."""
    try:
        if not stat.S_ISREG(Path(path).stat().st_mode):  # before opening, which would block on a pipe without a writer
            raise UnreadableFile(path, "not a regular file")
        with Path(path).open("rb") as stream:
            yield stream, os.fstat(stream.fileno()).st_size
    except OSError as error:
        raise unreadable(path, error) from error


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A new empty file beside `path` that takes its place, synced to disk, if the block ends without an exception.

    At every moment `path` is either the old file or the complete new one. Raises UnreadableFile if it cannot be
    written.
    """
    try:
        final = Path(path).resolve()
        if final.exists() and not final.is_file():
            raise UnreadableFile(path, "exists and is not a regular file")
        part = final.with_name(f".{final.name[:64]}.{os.urandom(6).hex()}.part")
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        mode = part.stat().st_mode & 0o777
        try:
            yield part
            part.chmod(mode)  # a library may have put a file of its own, readable by its owner alone, in the place
            _sync(part)
            part.replace(final)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        _sync(final.parent)
    except OSError as error:
        raise unreadable(path, error) from error


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
