"""Comparability of two results: one table of the facts that must agree."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpt2core.spec.series import COMMIT
from taskloom.analysis.processes import Process, distinct

# Keys of a result's `environment`, with the meaning of a difference.
FINGERPRINT: Mapping[str, str] = {
    "node": "the machine",
    "cpu_model": "the processor",
    "machine": "the instruction set",
    "cores_online": "cores of the machine",
    "smt": "simultaneous multithreading",
    "governor": "the frequency governor",
    "turbo": "turbo frequencies",
    "huge_pages": "transparent huge pages",
    "memory_bytes": "memory of the machine",
    "kernel": "the operating system's kernel",
    "python": "Python",
    "numba": "Numba",
    "llvmlite": "Numba's LLVM",
    "numba_settings": "Numba's settings that affect compiled code",
    "numpy": "NumPy",
    "blas": "the library of the matrix products",
    "core_hash": "the trainer's sources",
    "clock": "the clock",
}
# Momentary observations, and values that follow from `threads`, `scheduler` and `ranks`.
# A commit may have changed other files than the trainer's sources (`core_hash`).
NOT_FINGERPRINT = (*COMMIT, "load_average", "cores_allowed", "cores", "threads", "peaks", "scheduler", "mpi")
# The bits of a result may depend on these.
ROUNDING = ("cpu_model", "machine", "llvmlite", "numba", "numba_settings", "numpy", "blas", "core_hash")


def differing(values: Iterable[Mapping[str, Any]], keys: Iterable[str]) -> list[str]:
    """`key: one value / another` for each key on which the mappings do not all agree."""
    mappings = list(values)
    found = []
    for key in keys:
        if not mappings or _all_alike([mapping.get(key) for mapping in mappings]):
            continue
        distinct = list(dict.fromkeys(_text(mapping.get(key)) for mapping in mappings))
        if len(distinct) > 1:
            found.append(f"{key}: {' / '.join(distinct)}")
    return found


def _all_alike(values: Sequence[Any]) -> bool:
    """Whether all values are equal, without the cost of formatting them."""
    first, kind = values[0], type(values[0])
    return all(value is first or (type(value) is kind and value == first) for value in values)


def environment_differences(processes: Sequence[Process]) -> list[str]:
    """Differences between environments, known keys first."""
    environments = [facts.environment for facts in distinct(processes)]
    unknown = {key for environment in environments for key in environment} - {*FINGERPRINT, *NOT_FINGERPRINT}
    return [*differing(environments, [*FINGERPRINT, *sorted(unknown)]), *runtime_differences(processes)]


def runtime_differences(processes: Sequence[Process]) -> list[str]:
    """Differences between OpenMP runtimes (file, version, settings) of processes that requested the same runtime, and
    between the MPI libraries of processes with several ranks."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for facts in distinct(processes):
        how = tuple(facts.config.get(name) for name in ("scheduler", "runtime", "threads"))
        groups.setdefault(how, []).append(facts.environment)
    found = [d for group in groups.values() for d in differing(group, ["scheduler"])]
    connected = [facts.environment for facts in distinct(processes) if "mpi" in facts.environment]
    return list(dict.fromkeys([*found, *differing(connected, ["mpi"])]))


def core_differences(processes: Sequence[Process]) -> list[str]:
    """Differences between the cores of processes with the same number of threads."""
    by_threads: dict[int, list[Mapping[str, Any]]] = {}
    for facts in distinct(processes):
        by_threads.setdefault(facts.config["threads"], []).append(facts.environment)
    return list(dict.fromkeys(d for group in by_threads.values() for d in differing(group, ["cores"])))


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
