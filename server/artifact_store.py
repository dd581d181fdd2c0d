"""Content-addressed files below one folder: <root>/<aa>/<sha256>. Equal bytes are stored once."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import TracebackType

from gpt2core.spec.files import sync
from gpt2core.spec.locks import lock
from taskloom.server.errors import StoreUnavailable

INCOMING = "incoming"
LEFT_S = 86400.0  # age at which an incomplete upload counts as abandoned


@contextlib.contextmanager
def storing(what: str) -> Iterator[None]:
    """Raises StoreUnavailable if the disk fails, is full or cannot be written."""
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(f"{what} cannot be stored: {error.strerror or error}") from error


class Incoming:
    """An upload into the store, deleted on close unless it is kept."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = tempfile.NamedTemporaryFile(dir=folder, delete=False)  # noqa: SIM115 - closed by __exit__
        self._hash = hashlib.sha256()
        self.path, self.size_bytes = Path(self._file.name), 0

    def write(self, chunk: bytes) -> None:
        with storing("artifacts"):
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
        with contextlib.suppress(OSError):  # what is still buffered finds no place either
            self._file.close()
        self.path.unlink(missing_ok=True)


class Store:
    """A store in a folder, which is created with the first file. Raises StoreUnavailable where a file is stored."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, sha256: str) -> Path:
        return self.root / sha256[:2] / sha256

    def incoming(self) -> Incoming:
        with storing("artifacts"):
            return Incoming(self.root / INCOMING)

    @contextlib.contextmanager
    def keeping(self, incoming: Incoming) -> Iterator[None]:
        """Move the file to its place. The block records the file; a sweep waits until the block has ended."""
        with contextlib.ExitStack() as kept:
            with storing("artifacts"):
                incoming.sync()
                kept.enter_context(self._locked(shared=True))
                target = self.path(incoming.sha256)
                new = not target.parent.exists()
                target.parent.mkdir(exist_ok=True)
                incoming.path.replace(target)
                for folder in (target.parent, self.root) if new else (target.parent,):
                    sync(folder)
            yield

    def sweep(self, needed: Callable[[], Collection[str]], dry_run: bool) -> tuple[int, int]:
        """Delete files whose hash is not `needed`, and abandoned uploads; return their number and bytes.

        `needed` is called while no file is being kept.
        """
        if not self.root.is_dir():
            return 0, 0
        files = size_bytes = 0
        with self._locked() as locked:
            kept = needed()
            # Without locks a file may just be kept by another process, which has not recorded it yet.
            before = time.time() - LEFT_S
            for path in self.root.glob("*/*"):
                is_old = path.stat().st_mtime < before
                unneeded = is_old if path.parent.name == INCOMING else path.name not in kept and (locked or is_old)
                if unneeded:
                    files, size_bytes = files + 1, size_bytes + path.stat().st_size
                    if not dry_run:
                        path.unlink()
        return files, size_bytes

    @contextlib.contextmanager
    def _locked(self, shared: bool = False) -> Iterator[bool]:
        """Hold the folder's lock. False: its file system has none."""
        with (self.root / "lock").open("a") as file:
            yield lock(file, shared)

    def try_out(self) -> None:
        """Write a file as uploads do, and take their lock. Raises StoreUnavailable."""
        with storing("artifacts"), self.incoming() as file:
            file.write(b"ready?")
            file.sync()
            with self._locked(shared=True):
                pass
