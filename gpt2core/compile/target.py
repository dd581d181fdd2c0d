"""What code is compiled for, and the folder that keeps what was compiled."""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path

import llvmlite.binding as llvm
import numba

from gpt2core.spec import settings
from gpt2core.spec.sources import source_hash

FEATURES = llvm.get_host_cpu_features()
# Files and folders that compiled code is made from.
COMPILED = (
    "compile", "gemm", "layers", "measure", "node/openmp.py", "optimizers", "run/memory.py", "schedulers",
    "step/control.py", "step/signature.py", "taskbench",
)  # fmt: skip


def _clock() -> str:
    """tsc, the processor's counter, where its rate is constant; else clock_gettime."""
    if platform.machine() == "x86_64":
        try:
            flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("flags")[2].partition("\n")[0].split()
        except OSError:
            flags = []
        if "constant_tsc" in flags:
            return "tsc"
    return "clock_gettime"


CLOCK = settings.clock() or _clock()


def cache_folder() -> Path:
    """Numba sees changes of a function's own file only; a folder for each state of the sources sees them all."""
    about = f"{source_hash(COMPILED)} {numba.__version__} {platform.machine()} {CLOCK}"
    return settings.cache_folder() / f"numba-{hashlib.sha256(about.encode()).hexdigest()[:16]}"
