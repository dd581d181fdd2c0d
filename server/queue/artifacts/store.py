"""Content-addressed files below one folder: <root>/<aa>/<sha256>. Equal bytes are stored once."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import TracebackType

INCOMING = "incoming"
LEFT_S = 86400.0  # age at which an incomplete upload counts as abandoned


class Incoming:
    """An upload into the store, deleted on close unless it is kept."""

    def __init__(self, folder: Path) -> None:
        self._file = tempfile.NamedTemporaryFile(dir=folder, delete=False)  # noqa: SIM115 - closed by __exit__
        self._hash = hashlib.sha256()
        self.path, self.size_bytes = Path(self._file.name), 0

    def write(self, chunk: bytes) -> None:
        self._file.write(chunk)
        self._hash.update(chunk)
        self.size_bytes += len(chunk)

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def sync(self) -> None:
        """Sync the file to the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def __enter__(self) -> Incoming:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self.path.unlink(missing_ok=True)


class Store:
    """A store in a folder, which is created with the first file. Raises OSError if the disk fails."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, sha256: str) -> Path:
        return self.root / sha256[:2] / sha256

    def incoming(self) -> Incoming:
        folder = self.root / INCOMING
        folder.mkdir(parents=True, exist_ok=True)
        return Incoming(folder)

    @contextlib.contextmanager
    def keeping(self, incoming: Incoming) -> Iterator[None]:
        """Move the file to its place. The block records the file; a sweep waits until the block has ended."""
        incoming.sync()
        with self._locked(fcntl.LOCK_SH):
            target = self.path(incoming.sha256)
            new = not target.parent.exists()
            target.parent.mkdir(exist_ok=True)
            incoming.path.replace(target)
            for folder in (target.parent, self.root) if new else (target.parent,):
                _sync_folder(folder)
            yield

    def sweep(self, needed: Callable[[], Collection[str]], dry_run: bool) -> tuple[int, int]:
        """Delete files whose hash is not `needed`, and abandoned uploads; return their number and bytes.

        `needed` is called while no file is being kept.
        """
        if not self.root.is_dir():
            return 0, 0
        files = size_bytes = 0
        with self._locked(fcntl.LOCK_EX):
            kept = needed()
            for path in self.root.glob("*/*"):
                if path.parent.name == INCOMING:
                    unneeded = path.stat().st_mtime < time.time() - LEFT_S
                else:
                    unneeded = path.name not in kept
                if unneeded:
                    files, size_bytes = files + 1, size_bytes + path.stat().st_size
                    if not dry_run:
                        path.unlink()
        return files, size_bytes

    @contextlib.contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        with (self.root / "lock").open("a") as lock:
            fcntl.flock(lock, how)
            yield


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
