"""Identity of compiled code (sources, compiler, processor) and the folder that keeps it."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path

import llvmlite.binding as llvm

from gpt2core.spec import settings
from gpt2core.spec.sources import source_hash

FEATURES = llvm.get_host_cpu_features()
# Source files and folders of compiled code.
COMPILED = (
    "compile", "gemm", "layers", "measure", "node/openmp.py", "optimizers", "run/memory.py", "schedulers",
    "step/control.py", "step/signature.py", "taskbench",
)  # fmt: skip
# Settings of Numba that do not affect code.
NOT_CODE = ("NUMBA_CACHE_DIR", "NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING", "NUMBA_NUM_THREADS")


def _clock() -> str:
    """Name of the clock: tsc (the processor's counter) where its rate is constant, else clock_gettime."""
    if platform.machine() == "x86_64":
        try:
            flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("flags")[2].partition("\n")[0].split()
        except OSError:
            flags = []
        if "constant_tsc" in flags:
            return "tsc"
    return "clock_gettime"


CLOCK = settings.clock() or _clock()


@functools.cache
def identity() -> str:
    """A hash of everything besides the function on which compiled code depends: our sources, the compiler, the
    processor."""
    numba = sorted(item for item in os.environ.items() if item[0].startswith("NUMBA_") and item[0] not in NOT_CODE)
    about = (
        source_hash(COMPILED), version("numba"), version("llvmlite"), sys.implementation.cache_tag,
        llvm.get_process_triple(), llvm.get_host_cpu_name(), FEATURES.flatten(), CLOCK, numba,
    )  # fmt: skip
    return hashlib.sha256(repr(about).encode()).hexdigest()


def compiled_folder() -> Path:
    """The folder of compiled code: NUMBA_CACHE_DIR, or one for each identity in our cache folder."""
    chosen = settings.numba_cache()
    return Path(chosen) if chosen else settings.cache_folder() / f"numba-{identity()[:16]}"
