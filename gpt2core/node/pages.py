"""Memory of the process: huge pages, what is resident, peak."""

from __future__ import annotations

import mmap
import os
from pathlib import Path


def reserve(size: int) -> mmap.mmap:
    """Zeroed memory of at least `size` bytes, page-aligned, huge pages advised, no page touched yet."""
    memory = mmap.mmap(-1, max(size, mmap.PAGESIZE), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            memory.madvise(mmap.MADV_HUGEPAGE)
        except OSError as error:
            if error.errno != 22:  # EINVAL: a kernel without transparent huge pages
                raise
    return memory


def peak_rss_bytes() -> int:
    """Peak resident memory of this process: VmHWM, since ru_maxrss would include its parent's."""
    return _status_bytes("VmHWM")


def _status_bytes(name: str) -> int:
    for line in Path(f"/proc/{os.getpid()}/status").read_text(encoding="ascii").splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    return 0


class Residency:
    """Resident memory of the process, split by its growth between points of a run. The pieces add up to the most that
    was resident at these points: memory that is released makes none of them smaller."""

    def __init__(self) -> None:
        self.pieces = {"interpreter": _status_bytes("VmRSS")}
        self._most = self.pieces["interpreter"]

    def grew_by(self, piece: str) -> None:
        """Attribute the growth beyond the previous maximum to this piece."""
        most = max(self._most, _status_bytes("VmRSS"))
        self.pieces[piece] = self.pieces.get(piece, 0) + most - self._most
        self._most = most
