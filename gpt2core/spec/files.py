"""Replaces files completely or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

UNFINISHED = ".*.part"  # what a killed process leaves beside its file


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A new empty file beside `path` that takes its place, synced to disk, if the block ends without an exception.

    At every moment `path` is either the old file or the complete new one. What a pipe or a device gets is complete too.
    Raises OSError.
    """
    if _streams(path):
        with tempfile.TemporaryDirectory() as folder:
            part = Path(folder) / Path(path).name
            part.touch()
            yield part
            with part.open("rb") as content, Path(path).open("wb") as stream:
                shutil.copyfileobj(content, stream)
        return
    final, part = _begun(path)
    mode = part.stat().st_mode & 0o777
    try:
        yield part
        if part.stat().st_mode & 0o777 != mode:  # a library may have put a file of its own, for its owner alone, here
            part.chmod(mode)  # not always: some file systems have no modes, and refuse
        sync(part)
        part.replace(final)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    sync(final.parent)


def check(path: str | Path) -> None:
    """Raises OSError if `replacing` could not begin to replace this file."""
    if _streams(path):
        if not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    else:
        _begun(path)[1].unlink()


def _streams(path: str | Path) -> bool:
    """Whether it is a pipe or a device, such as /dev/stdout. Raises OSError for what is neither that nor a file."""
    try:
        mode = Path(path).stat().st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISREG(mode):
        return False
    if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
        return True
    raise OSError(errno.EINVAL, "exists and is neither a file, a pipe nor a device", str(path))


def _begun(path: str | Path) -> tuple[Path, Path]:
    """The file itself behind links, and a new empty file beside it. Raises OSError."""
    final = Path(path).resolve()
    part = final.with_name(f".{final.name[:64]}.{os.urandom(6).hex()}.part")
    os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    return final, part


def write_text(path: Path, text: str) -> None:
    """Replace a file with this text, as `replacing`."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def sync(path: Path) -> None:
    """Sync a file or a folder to the disk. Some network file systems sync no folders, and refuse: EINVAL, ENOTSUP."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP) or not path.is_dir():
            raise OSError(error.errno, f"cannot be synced to the disk ({error.strerror})", str(path)) from error
    finally:
        os.close(fd)
