"""Locks between processes. Some file systems have none: Lustre mounted without `flock`, NFS without its lock daemon."""

from __future__ import annotations

import errno
import fcntl
from typing import IO, Any

# What flock fails with where there are no locks, or a sandbox forbids them; 524: the kernel's own ENOTSUPP, which some
# file systems pass on. EWOULDBLOCK alone means that another process holds the lock.
LACKING = (
    errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EBADF, errno.EINVAL, errno.EPERM, errno.ENOTTY, 524,
)  # fmt: skip


class Taken(Exception):
    """Another process holds the lock."""


def lock(file: IO[Any], shared: bool = False, wait: bool = True) -> bool:
    """Lock an open file until it is closed. False: its file system has no locks. Raises Taken unless it may wait,
    OSError with the file's name for a disk error."""
    how = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB)
    try:
        fcntl.flock(file, how)
    except BlockingIOError as error:
        raise Taken from error
    except OSError as error:
        if error.errno in LACKING:
            return False
        raise OSError(error.errno, error.strerror, file.name) from error
    return True
