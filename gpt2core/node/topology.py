"""Which cores of a node threads take, and in which order, read from /sys. Standard library only."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from gpt2core.node import host
from gpt2core.node.host import read_text
from gpt2core.spec.errors import ConfigError


def choose_cores(chosen: tuple[int, ...] | None, threads: int, oversubscribe: bool) -> tuple[int, ...]:
    """A core for each thread, of the wanted cores or of those that this process may use, in the order of `spread`.

    Raises ConfigError if a wanted core is not available here, or if there are fewer cores than threads.
    """
    allowed = sorted(os.sched_getaffinity(0))
    cores = list(spread(chosen if chosen is not None else allowed))
    missing = [core for core in cores if core not in allowed]
    if missing:
        raise ConfigError("cores", list(cores), f"cores this process may use: {allowed}")
    if threads > len(cores) and not oversubscribe:
        raise ConfigError("threads", threads, f"at most the number of cores ({len(cores)}: {cores})")
    return tuple(cores[i % len(cores)] for i in range(threads))


def spread(cores: Iterable[int], root: Path | None = None) -> tuple[int, ...]:
    """These cores in the order in which threads take them.

    One logical core of each physical core comes first, then the second ones, and so on, because two threads on one
    physical core share its arithmetic units. Within each round, the faster cores of a hybrid processor come first, and
    cores with a common last-level cache are neighbours.
    Otherwise the given order stays, and cores that the machine does not describe count as physical ones. root: the
    folder of the `cpuN` folders.
    """
    given, root = tuple(dict.fromkeys(cores)), root or host.CPU
    physical = [host.smt_siblings(core, root) or str(core) for core in given]
    lasts = [host.last_level_cache(core, root) for core in given]
    caches = [None if last is None else read_text(last / "shared_cpu_list") for last in lasts]
    rounds = [physical[:place].count(siblings) for place, siblings in enumerate(physical)]
    speeds = [host.capacity(core, root) for core in given]
    ordered = sorted(range(len(given)), key=lambda i: (rounds[i], -speeds[i], _first(caches, i)))
    return tuple(given[place] for place in ordered)


def _first(caches: Sequence[str | None], place: int) -> int:
    """First place with the same cache; 0 if no cache is known, so that the given order stays."""
    return 0 if caches[place] is None else caches.index(caches[place])
