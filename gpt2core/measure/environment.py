"""Environment of a result: everything that must agree before two results may be compared."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from gpt2core.compile import target
from gpt2core.node import host, peaks
from gpt2core.spec import settings
from gpt2core.spec.sources import source_hash
from gpt2core.spec.version import origin


def describe(blas: str, blas_version: str, cores: Sequence[int]) -> dict[str, Any]:
    """The environment as JSON values; null if the machine does not report a value."""
    return {
        **{f"core_{name}": value for name, value in origin().to_dict().items()},
        "core_hash": source_hash(),
        "python": platform.python_version(),
        "numba": _version("numba"),
        "llvmlite": _version("llvmlite"),
        "numba_settings": " ".join(settings.numba_settings()) or None,
        "numpy": _version("numpy"),
        "blas": {"name": blas, "version": blas_version},
        "kernel": platform.release(),
        **host.machine(cores[0]),
        "cores": list(cores),
        "cores_allowed": sorted(os.sched_getaffinity(0)),
        "memory_bytes": host.usable_memory_bytes(),
        "load_average": host.load_average(),
        "clock": target.clock(),
        "peaks": peaks.read(),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
