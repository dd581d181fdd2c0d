"""Results on disk until the server has acknowledged them: they outlive the worker, the server and the network."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from contract.runs import ResultUpload


@dataclass(frozen=True)
class Entry:
    """A result on its way."""

    attempt_id: int
    upload: ResultUpload


class SpoolTaken(Exception):
    """Another worker uses this spool."""


class Spool:
    """A folder with one file an attempt. Raises OSError when the disk does not play along."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._lock = (folder / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise SpoolTaken(
                f"{folder}: another worker uses this spool; one of them needs another --worker-id"
            ) from error

    def close(self) -> None:
        self._lock.close()

    def put(self, entry: Entry) -> None:
        """Write an entry so that it is there, whole, whatever happens after this returns."""
        text = json.dumps({"attempt_id": entry.attempt_id, "upload": entry.upload.model_dump()})
        write_durably(self._path(entry.attempt_id), text)

    def entries(self) -> Iterator[Entry]:
        """What waits, oldest attempt first. A file that holds no entry is set aside."""
        names = [path.stem for path in self.folder.glob("*.json") if path.stem.isdecimal()]
        for attempt_id in sorted(map(int, names)):
            try:
                stored = json.loads(self._path(attempt_id).read_bytes())
                yield Entry(int(stored["attempt_id"]), ResultUpload.model_validate(stored["upload"]))
            except (ValueError, KeyError, TypeError, ValidationError):
                self.set_aside(attempt_id)

    def remove(self, attempt_id: int) -> None:
        """The server has it."""
        self._path(attempt_id).unlink(missing_ok=True)
        _sync_folder(self.folder)

    def set_aside(self, attempt_id: int) -> Path:
        """The server will never take it: keep it out of the way, for people to look at."""
        aside = self.folder / "refused"
        aside.mkdir(exist_ok=True)
        target = aside / f"{attempt_id}.json"
        with contextlib.suppress(FileNotFoundError):
            self._path(attempt_id).replace(target)
        return target

    def _path(self, attempt_id: int) -> Path:
        return self.folder / f"{attempt_id}.json"


def write_durably(path: Path, text: str) -> None:
    """Replace a file by a complete new one that survives a power cut."""
    new = path.with_suffix(".new")
    try:
        with new.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
