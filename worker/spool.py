"""Results on disk until the server has acknowledged them. They survive failures of worker, server and network.

The folder of an attempt is in the spool, so a trainer writes its artifacts there directly.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from gpt2core.spec import files
from gpt2core.spec.errors import InputError
from gpt2core.spec.locks import Taken, lock
from taskloom.contract.attempts import ResultUpload

REFUSED = "refused"
SET_ASIDE = re.compile(r"[0-9]+\.json|[0-9]+-.+")  # of results and of artifacts
ARTIFACTS = "artifacts"  # in an attempt's folder; the trainer finds it beside its result.json


@dataclass(frozen=True)
class Entry:
    """An undelivered result."""

    attempt_id: int
    upload: ResultUpload


class SpoolTaken(InputError):
    """Another worker uses this spool."""


class Spool:
    """Folder of undelivered results and artifacts. Raises OSError on disk errors, SpoolTaken if another worker uses it,
    or may do so because there are no locks and `only_locked`."""

    def __init__(self, folder: Path, only_locked: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder.absolute()  # trainers use it from other folders
        self._lock = (folder / "lock").open("w")
        try:
            self.is_locked = lock(self._lock, wait=False)  # False: its file system has no locks
        except OSError:
            self._lock.close()
            raise
        except Taken as error:
            self._lock.close()
            raise SpoolTaken(
                f"another worker uses the spool {folder}; give one of the two another --worker-id or --spool"
            ) from error
        if only_locked and not self.is_locked:
            self._lock.close()
            raise SpoolTaken(f"another worker may use the spool {folder}, whose file system has no locks")
        for unfinished in self.folder.glob(files.UNFINISHED):  # of a worker that was killed while writing
            unfinished.unlink()
        self.id = self._lasting_id()

    def close(self) -> None:
        self._lock.close()

    def _lasting_id(self) -> str:
        """Identity of this spool, independent of its path."""
        path = self.folder / "id"
        if not path.exists() or not re.fullmatch("[0-9a-f]{32}", path.read_text(errors="replace")):
            files.write_text(path, uuid.uuid4().hex)
        return path.read_text(encoding="utf-8")

    def new_folder(self, attempt_id: int) -> Path:
        """Create an empty folder for an attempt, with a folder for its artifacts. Delete unfinished attempts."""
        self.delete_unfinished()
        folder = self._attempt_folder(attempt_id)
        if folder.exists():
            shutil.rmtree(folder)
        (folder / ARTIFACTS).mkdir(parents=True)
        return folder

    def delete_unfinished(self) -> None:
        """Delete the folders of attempts that have no result: their worker was killed."""
        for path in self.folder.glob("attempt-*"):
            if not (self.folder / f"{path.name.removeprefix('attempt-')}.json").exists():
                shutil.rmtree(path)

    def artifacts(self, attempt_id: int) -> list[Path]:
        """Undelivered artifacts of an attempt."""
        folder = self._attempt_folder(attempt_id) / ARTIFACTS
        return sorted(p for p in folder.glob("*") if p.is_file() and not p.is_symlink())

    def put(self, entry: Entry) -> None:
        """Write an entry; when this returns, it and its artifacts are complete and durable."""
        for path in self.artifacts(entry.attempt_id):
            with path.open("rb") as file:
                os.fsync(file.fileno())
        text = json.dumps({"attempt_id": entry.attempt_id, "upload": entry.upload.model_dump()})
        files.write_text(self._path(entry.attempt_id), text)

    def entries(self) -> Iterator[Entry]:
        """Undelivered entries, oldest attempt first. Unreadable files are set aside."""
        names = [path.stem for path in self.folder.glob("*.json") if re.fullmatch("[1-9][0-9]{0,17}", path.stem)]
        for attempt_id in sorted(map(int, names)):
            try:
                stored = json.loads(self._path(attempt_id).read_bytes())
                yield Entry(int(stored["attempt_id"]), ResultUpload.model_validate(stored["upload"]))
            except (ValueError, KeyError, TypeError, ValidationError):
                self.set_aside(attempt_id)

    def remove(self, attempt_id: int) -> None:
        """Delete an entry that the server has acknowledged."""
        shutil.rmtree(self._attempt_folder(attempt_id), ignore_errors=True)
        self._path(attempt_id).unlink(missing_ok=True)
        files.sync(self.folder)

    def set_aside(self, attempt_id: int) -> Path:
        """Set aside an entry that the server has rejected permanently; operators can inspect and resend it."""
        return self._refuse(self._path(attempt_id), f"{attempt_id}.json")

    def set_artifact_aside(self, attempt_id: int, path: Path) -> Path:
        """Set aside an artifact that the server has rejected permanently."""
        return self._refuse(path, f"{attempt_id}-{path.name}")

    def refused(self) -> list[Path]:
        """Results and artifacts that were set aside."""
        return sorted(path for path in (self.folder / REFUSED).glob("*") if SET_ASIDE.fullmatch(path.name))

    def take_back(self) -> int:
        """Move files that were set aside back into the spool, unless newer ones exist there; return their number."""
        taken = 0
        for path in self.refused():
            attempt_id, is_artifact, name = path.name.partition("-")
            target = self.folder / path.name
            if is_artifact:
                target = self._attempt_folder(int(attempt_id)) / ARTIFACTS / name
                target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                path.replace(target)
                taken += 1
        files.sync(self.folder)
        return taken

    def _refuse(self, path: Path, name: str) -> Path:
        aside = self.folder / REFUSED
        aside.mkdir(exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            path.replace(aside / name)
        return aside / name

    def _attempt_folder(self, attempt_id: int) -> Path:
        return self.folder / f"attempt-{attempt_id}"

    def _path(self, attempt_id: int) -> Path:
        return self.folder / f"{attempt_id}.json"


def stranded(beside: Path, of_node: str) -> Iterator[Spool]:
    """Unused spools with undelivered results in the same folder as `beside`; each is closed after its iteration.

    If jobs share a node, a later job may have other cores, and therefore another spool. In spools whose names begin
    with of_node, unfinished attempts are deleted. Other nodes may use the other ones with locks that are not visible
    here, as on some network file systems.
    """
    for folder in sorted(beside.absolute().parent.iterdir()):
        ours = folder.name.startswith(of_node)
        left = any(folder.glob("*.json")) or (ours and any(folder.glob("attempt-*")))
        if folder == beside.absolute() or not (folder / "lock").exists() or not left:
            continue
        try:
            spool = Spool(folder, only_locked=True)
        except SpoolTaken:
            continue
        try:
            if ours:
                spool.delete_unfinished()
            if any(folder.glob("*.json")):
                yield spool
        finally:
            spool.close()
