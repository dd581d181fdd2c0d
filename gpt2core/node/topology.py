"""Order in which threads take the cores of a node, read from /sys. Standard library only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from gpt2core.node import host
from gpt2core.node.host import read_int, read_text


def spread(cores: Iterable[int], root: Path | None = None) -> tuple[int, ...]:
    """These cores in the order in which threads take them.

    One logical core of each physical core comes first, then the second ones, and so on, because two threads on one
    physical core share its arithmetic units. Within each round, cores with a common last-level cache are neighbours.
    Otherwise the given order stays, and cores that the machine does not describe count as physical ones. root: the
    folder of the `cpuN` folders.
    """
    given, root = tuple(dict.fromkeys(cores)), root or host.CPU
    physical = [read_text(root / f"cpu{core}/topology/thread_siblings_list") or str(core) for core in given]
    caches = [_last_level_cache(root / f"cpu{core}/cache") for core in given]
    rounds = [physical[:place].count(siblings) for place, siblings in enumerate(physical)]
    return tuple(given[place] for place in sorted(range(len(given)), key=lambda i: (rounds[i], _first(caches, i))))


def _last_level_cache(folder: Path) -> str | None:
    """Cores that share the last-level cache, as the kernel lists them."""
    last = max(folder.glob("index[0-9]*"), key=lambda index: read_int(index / "level") or 0, default=None)
    return None if last is None else read_text(last / "shared_cpu_list")


def _first(caches: Sequence[str | None], place: int) -> int:
    """First place with the same cache; 0 if no cache is known, so that the given order stays."""
    return 0 if caches[place] is None else caches.index(caches[place])
