"""Temporary folders that are deleted even if their process is killed.

A process holds a lock on each of its folders. A process that makes its first one deletes this user's unlocked folders
on this node, since their processes have ended.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import stat
import tempfile
from pathlib import Path

from gpt2core.spec.locks import Taken, lock
from gpt2core.spec.preflight import UMASK, require
from gpt2core.spec.settings import temporary_folder

LOCK, FILES = "lock", "files"


class TemporaryFolder:
    """A folder for the files of this process, below `parent` or the system's temporary folder (TMPDIR).

    path: the folder itself. lock: a locked file. A child process that inherits it keeps the folder too. Raises
    ConfigError for a umask that would keep this process out.
    """

    def __init__(self, parent: Path | None = None) -> None:
        require([UMASK])
        parent = parent or temporary_folder()
        _delete_abandoned(parent)
        self._root = Path(tempfile.mkdtemp(prefix=_prefix(), dir=parent))
        self.path = self._root / FILES
        self.path.mkdir()
        new = self._root / f"{LOCK}.new"
        self.lock = new.open("w")
        if lock(self.lock):  # otherwise nobody else deletes the folder
            new.rename(self._root / LOCK)  # others never see it unlocked

    def close(self) -> None:
        """Delete the folder; may be called again. Raises OSError."""
        try:
            _delete(self._root)
        finally:
            self.lock.close()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()


def _prefix() -> str:
    return f"taskloom-{os.uname().nodename}-"  # if nodes share the parent, each deletes only its own


@functools.cache
def _delete_abandoned(parent: Path) -> None:
    for root in parent.iterdir():
        if not root.name.startswith(_prefix()):
            continue
        with contextlib.suppress(OSError, Taken):  # no folder of ours, or just deleted; the next process tries again
            about = root.lstat()
            if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid():
                continue
            with (root / LOCK).open("r+") as file:
                if lock(file, wait=False):
                    _delete(root)


def _delete(root: Path) -> None:
    """Delete the lock after the files, so that the next process can complete an interrupted deletion."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(root / FILES)
    for file in root.glob(f"{LOCK}*"):
        file.unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
        root.rmdir()
