"""Memory of the machine: how much this process may use, huge pages, first touch."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import psutil

from gpt2core.machine.jit import kernel, pointer_i64

PAGE_INT64 = 512  # of a 4 KiB page


def available_bytes() -> int:
    """What this process may still allocate: the machine's available memory, or what its cgroups leave of theirs."""
    free = [int(psutil.virtual_memory().available)]
    for limit, used in _cgroup_files():
        try:
            text = limit.read_text(encoding="ascii").strip()
            if text.isdecimal():
                free.append(max(0, int(text) - int(used.read_text(encoding="ascii"))))
        except OSError:
            continue  # a cgroup without this controller sets no limit
    return min(free)


def _cgroup_files() -> list[tuple[Path, Path]]:
    """(limit, usage) of this process's memory cgroup and its parents, version 2 and 1."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines()
    except OSError:
        return []
    out = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        for folder in (Path(path), *Path(path).parents):
            relative = str(folder).lstrip("/")
            if not controllers:
                root = Path("/sys/fs/cgroup") / relative
                out.append((root / "memory.max", root / "memory.current"))
            elif "memory" in controllers.split(","):
                root = Path("/sys/fs/cgroup/memory") / relative
                out.append((root / "memory.limit_in_bytes", root / "memory.usage_in_bytes"))
    return out


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


@kernel
def touch(address, begin, end):
    """Write a zero into each page of the bytes [begin, end) after an address: they come to lie near this thread."""
    cells = pointer_i64(address)
    for i in range(begin // 8, end // 8, PAGE_INT64):
        cells[i] = 0


def peak_rss_bytes() -> int:
    """The most memory this process has had resident: VmHWM, which unlike ru_maxrss does not survive from a parent."""
    for line in Path(f"/proc/{os.getpid()}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0
