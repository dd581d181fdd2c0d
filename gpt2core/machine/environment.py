"""What a result was measured on and with: everything that must agree before two results may be compared."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from gpt2core.machine import clock
from gpt2core.machine.gemm import Blas
from gpt2core.machine.jit import source_hash


def describe(blas: Blas, cores: Sequence[int]) -> dict[str, Any]:
    """The environment as JSON values; null where the machine does not say."""
    return {
        "core_version": _version("taskloom"),
        "core_hash": source_hash(),
        "python": platform.python_version(),
        "numba": _version("numba"),
        "llvmlite": _version("llvmlite"),
        "numpy": _version("numpy"),
        "blas": {"name": blas.name, "version": blas.version},
        "kernel": platform.release(),
        "machine": platform.machine(),
        "node": platform.node(),
        "cpu_model": _cpu_model(),
        "cores": list(cores),
        "cores_allowed": sorted(os.sched_getaffinity(0)),
        "cores_online": psutil.cpu_count(),
        "smt": _read("/sys/devices/system/cpu/smt/active"),
        "governor": _read(f"/sys/devices/system/cpu/cpu{cores[0]}/cpufreq/scaling_governor"),
        "turbo_off": _read("/sys/devices/system/cpu/intel_pstate/no_turbo"),
        "huge_pages": _read("/sys/kernel/mm/transparent_hugepage/enabled"),
        "memory_bytes": psutil.virtual_memory().total,
        "load_average": list(os.getloadavg()),
        "clock": clock.SOURCE,
        "argv0": Path(sys.argv[0]).name if sys.argv else "",
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return None


def _cpu_model() -> str | None:
    text = _read("/proc/cpuinfo") or ""
    for line in text.splitlines():
        if line.startswith(("model name", "Model name", "CPU implementer")):
            return line.partition(":")[2].strip()
    return None
