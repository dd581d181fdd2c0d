"""Memory of the process: huge pages, what is resident, peak."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpt2core.node import host
from gpt2core.node.files import open_regular
from gpt2core.spec.errors import UnreadableFile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAP_FIXED = 0x10  # on every processor that Linux supports but Alpha and PA-RISC


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


def map_files(paths: Sequence[Path]) -> tuple[NDArray[np.uint8], list[tuple[int, int]]]:
    """Map files read-only into one array of bytes; where each file begins in it, and its size in bytes.

    Raises UnreadableFile.
    """
    import numpy as np

    sizes: list[int] = []
    for path in paths:
        with open_regular(path) as (_, size):
            sizes.append(size)
    places, end = [], 0
    for size in sizes:
        places.append((end, size))
        end += -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    region = np.frombuffer(mmap.mmap(-1, max(end, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
    for path, (start, size) in zip(paths, places, strict=True):
        with open_regular(path) as (stream, now):
            how = mmap.MAP_PRIVATE | MAP_FIXED
            address = int(region.ctypes.data) + start
            if now != size or libc.mmap(address, size, mmap.PROT_READ, how, stream.fileno(), 0) != address:
                raise UnreadableFile(path, os.strerror(ctypes.get_errno()) if now == size else "its size changes")
    region.flags.writeable = False
    return region, places


def peak_rss_bytes() -> int:
    """Peak resident memory of this process: VmHWM, since ru_maxrss would include its parent's; 0 if unknown."""
    return _status_bytes("VmHWM")


def _status_bytes(name: str) -> int:
    return host.kib_line_bytes(Path("/proc/self/status"), name) or 0


class Residency:
    """Resident memory of the process, split by its growth between points of a run. The pieces add up to the most that
    was resident at these points: memory that is released makes none of them smaller. There are none if Linux hides
    it."""

    def __init__(self) -> None:
        self.pieces: dict[str, int] = {}
        self._most = 0
        self.grew_by("interpreter")

    def grew_by(self, piece: str) -> None:
        """Attribute the growth beyond the previous maximum to this piece."""
        most = max(self._most, _status_bytes("VmRSS"))
        if most:
            self.pieces[piece] = self.pieces.get(piece, 0) + most - self._most
        self._most = most
