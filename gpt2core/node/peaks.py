"""Peaks of this node: matrix products and memory bandwidth by number of threads, measured once and kept.

Standard library only. A worker measures them before its first claim or while it is idle, `taskloom doctor --peaks` at
any time (gpt2core.run.roof). Every result's environment contains the kept peaks of its node, or null.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpt2core.node import cache, host
from gpt2core.spec.settings import numba_settings

SCHEMA = "taskloom.peaks/4"  # 3: with the peak of vector registers; 4: with the libraries of bfloat16 products
PRODUCTS = ("gflop_per_s", "bf16_gflop_per_s")  # figures that depend on the library


@dataclass(frozen=True)
class Everything:
    """Settings of gpt2core.run.roof, which has none."""

    threads: int = 1
    cores: tuple[int, ...] | None = None
    allow_oversubscription: bool = False

    def to_dict(self) -> dict[str, Any]:
        return {}


def path(cores: Sequence[int] | None = None) -> Path:
    """File of this node's peaks. A node is a processor, kernel, memory size and set of cores (default: those that this
    process may use). Settings of Numba that affect compiled code also tell peaks apart."""
    of = sorted(os.sched_getaffinity(0) if cores is None else cores)
    about = [SCHEMA, platform.node(), host.cpu_model(), platform.release(), host.memory_info_bytes("MemTotal"), of,
             *numba_settings()]  # fmt: skip
    return cache.path("peaks", about, ".json")


def read(cores: Sequence[int] | None = None) -> dict[str, Any] | None:
    """Peaks measured on this node, or None."""
    try:
        found = cache.read_json(path(cores))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and found.get("schema") == SCHEMA else None


def keep(found: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the better figures of this and the earlier measurement; return them. Raises UnreadableFile."""
    earlier = read()
    kept = dict(found) if earlier is None else better(earlier, found)
    cache.write_json(path(), kept)
    return kept


def better(earlier: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """The better of two measurements, figure by figure: a peak is the rate of the undisturbed node.

    Products of different libraries are not comparable, so the later figure is kept. `earlier` describes the
    earlier measurement if some of its figures were kept.
    """
    products = () if earlier.get("blas") == found.get("blas") else PRODUCTS
    threads = {count: dict(row) for count, row in found["threads"].items()}
    taken = 0
    for count, mine in threads.items():
        for name, value in earlier["threads"].get(count, {}).items():
            if name not in products and value is not None and value > (mine.get(name) or 0.0):
                mine[name], taken = value, taken + 1
    note = {"measured_at": earlier.get("measured_at"), "busy_cores": earlier.get("busy_cores"), "figures": taken}
    return {**found, "threads": threads, **({"earlier": note} if taken else {})}


def command(result: Path) -> list[str]:
    """The argument list of gpt2core.run.roof."""
    return [sys.executable, "-P", "-m", "gpt2core.run.roof", "--result", str(result)]


def thread_counts(cores: int) -> list[int]:
    """Numbers of threads to measure with: all up to 8, then doubled, and all cores."""
    return sorted({*range(1, min(cores, 8) + 1), *(n for n in (16 << i for i in range(16)) if n < cores), cores})
