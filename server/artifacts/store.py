"""Files by the hash of their content, below one folder: <root>/<aa>/<sha256>. The same bytes are stored once."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType


class Incoming:
    """A file on its way into the store; what is not kept is gone when it is closed."""

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
        """On the disk, whatever happens next."""
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
    """The folder, made when its first file comes. Raises OSError when the disk does not play along."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, sha256: str) -> Path:
        return self.root / sha256[:2] / sha256

    def incoming(self) -> Incoming:
        folder = self.root / "incoming"
        folder.mkdir(parents=True, exist_ok=True)
        return Incoming(folder)

    @contextlib.contextmanager
    def keeping(self, incoming: Incoming) -> Iterator[None]:
        """Put the file in its place; what is done inside, its recording, is over before anyone sweeps."""
        incoming.sync()
        with self._locked(fcntl.LOCK_SH):
            target = self.path(incoming.sha256)
            new = not target.parent.exists()
            target.parent.mkdir(exist_ok=True)
            incoming.path.replace(target)
            for folder in (target.parent, self.root) if new else (target.parent,):
                _sync_folder(folder)
            yield

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
