"""Opens regular files, and replaces files completely or not at all. Standard library only."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from gpt2core.spec import files
from gpt2core.spec.errors import ConfigError, UnreadableFile


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
    """As `spec.files.replacing`. Raises UnreadableFile if the file cannot be written."""
    try:
        with files.replacing(path) as part:
            yield part
    except OSError as error:
        raise unreadable(path, error) from error


@contextlib.contextmanager
def output(setting: str, path: str | Path) -> Iterator[None]:
    """A block that writes the file that a setting names. Raises ConfigError if the file cannot be written."""
    try:
        yield
    except OSError as error:
        accepted = f"a file in a folder that exists and can be written ({error.strerror or error})"
        raise ConfigError(setting, str(path), accepted) from error


def check_output(setting: str, path: str | Path) -> None:
    """Check a file that work will write, before the work. Raises ConfigError if it could not be written."""
    with output(setting, path):
        files.check(path)
