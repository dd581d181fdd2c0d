"""The node's cache: files that one process makes and later ones read. Standard library only.

It has machine code, proven graphs, tables of products and peaks. A file's name contains a hash of everything on which
its content depends, so other inputs are another file. A file is replaced completely or not at all. Machine code and
graphs begin with a checksum of their name and content; tables and peaks are JSON, which people read too.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gpt2core.node.files import replacing, unreadable
from gpt2core.spec import settings
from gpt2core.spec.errors import MachineError
from gpt2core.spec.locks import lock


def path(name: str, made_from: Sequence[object], suffix: str, folder: Path | None = None) -> Path:
    """The file of a content that is made from these inputs (JSON values), by default in the node's cache folder."""
    digest = hashlib.sha256(json.dumps(list(made_from)).encode()).hexdigest()
    return (folder or settings.cache_folder()) / f"{name}-{digest[:16]}{suffix}"


def read(file: Path) -> bytes | None:
    """A file's content. None: the file is missing, unreadable or damaged, or has another file's name."""
    try:
        checksum, _, content = file.read_bytes().partition(b"\n")
    except OSError:
        return None
    return content if checksum == _checksum(file, content) else None


def write(file: Path, content: bytes) -> None:
    """Store a content for `read`. Raises UnreadableFile if it cannot be written."""
    _replace(file, _checksum(file, content) + b"\n" + content)


def read_or_make(file: Path, make: Callable[[], bytes]) -> tuple[bytes, bool]:
    """A file's content, and whether it was there. A missing or damaged one is made and stored by one process, for which
    the others wait. Raises UnreadableFile if it cannot be written.
    """
    content = read(file)
    if content is not None:
        return content, True
    with locked(file):
        content = read(file)
        if content is None:
            content = make()
            write(file, content)
    return content, False


def read_json(file: Path) -> Any:
    """The value in a JSON file. None: the file is missing. Raises OSError, or ValueError for another content."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def write_json(file: Path, value: Any) -> None:
    """Store a value as JSON. Raises UnreadableFile if it cannot be written."""
    _replace(file, json.dumps(value).encode())


@contextlib.contextmanager
def revising(file: Path) -> Iterator[dict[str, Any]]:
    """The object in a JSON file, empty if the file is missing. What the block changes in it is stored at its end; until
    then other processes wait.

    Raises MachineError if the file is not a JSON object, UnreadableFile if it cannot be written.
    """
    with locked(file):
        try:
            value = dict(read_json(file) or {})
        except (OSError, ValueError, TypeError) as error:
            raise damaged(file, error) from error
        before = dict(value)
        yield value
        if value != before:
            write_json(file, value)


def damaged(file: Path, error: Exception) -> MachineError:
    return MachineError(f"{file} does not have what was stored ({error}); remove it, and it is made again")


@contextlib.contextmanager
def locked(file: Path, wait: bool = True) -> Iterator[None]:
    """Hold the lock of a file, which exists beside it only meanwhile: no other process makes the file.

    Raises Taken if another process holds the lock and this one may not wait, UnreadableFile if the folder is not
    writable. A file system without locks admits every process.
    """
    beside = file.with_suffix(".lock")
    while True:
        try:
            beside.parent.mkdir(parents=True, exist_ok=True)
            opened = beside.open("w")
        except OSError as error:
            raise unreadable(beside, error) from error
        with opened:
            lock(opened, wait=wait)
            if not _is_at(beside, opened.fileno()):  # its holder has deleted it meanwhile
                continue
            try:
                yield
            finally:
                beside.unlink(missing_ok=True)
            return


def used(file: Path) -> None:
    """Note that a file was used now, for `prune`."""
    with contextlib.suppress(OSError):  # it was pruned meanwhile, or belongs to another user
        os.utime(file)


def prune(folder: Path, most_bytes: int) -> None:
    """Delete files, the least recently used first and unfinished ones too, until at most `most_bytes` are left."""
    found = []
    for file in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # another process was faster
            about = file.stat()
            found.append((about.st_mtime, file, about.st_size))
    kept_bytes = 0
    for _, file, size in sorted(found, reverse=True):
        kept_bytes += size
        if kept_bytes > most_bytes:
            file.unlink(missing_ok=True)


def _replace(file: Path, content: bytes) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unreadable(file, error) from error
    with replacing(file) as part:
        part.write_bytes(content)


def _checksum(file: Path, content: bytes) -> bytes:
    return hashlib.sha256(file.name.encode() + b"\n" + content).hexdigest().encode()


def _is_at(file: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(file.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
