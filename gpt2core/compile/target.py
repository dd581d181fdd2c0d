"""Identity of compiled code (sources, compiler, processor) and the folder that keeps it."""

from __future__ import annotations

import functools
import hashlib
import platform
import sys
from importlib.metadata import version
from pathlib import Path

from gpt2core.compile import numba_target
from gpt2core.node import host
from gpt2core.spec import settings
from gpt2core.spec.sources import source_hash

# Linux's facts that determine for which processor LLVM generates code; first those of x86, then those of ARM.
PROCESSOR = (
    "vendor_id", "cpu family", "model", "model name", "stepping", "flags",
    "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision", "Features",
)  # fmt: skip
# Source files and folders of compiled code.
COMPILED = (
    "compile", "gemm", "layers", "measure", "node/openmp.py", "optimizers", "ranks", "run/first_touch.py", "schedulers",
    "step/control.py", "step/grid.py", "step/parameters.py", "step/signature.py", "taskbench",
)  # fmt: skip


@functools.cache
def about() -> dict[str, str]:
    """What Linux reports of the processor."""
    return host.processor()


@functools.cache
def features() -> frozenset[str]:
    """The features for which code is compiled, by Linux's names on x86 and ARM, such as avx512_bf16: the processor's,
    or fewer if Numba's settings name another one. Without them products are generic code. Raises ConfigError."""
    return numba_target.used(frozenset(" ".join(about().get(key, "") for key in ("flags", "Features")).split()))


def is_zen4() -> bool:
    """AMD's Zen 4: a core does one multiply-add of 512 bits a cycle, and could begin six instructions."""
    model = (about().get("vendor_id"), about().get("cpu family"))
    return model == ("AuthenticAMD", "25") and "avx512f" in features()


@functools.cache
def second_cache_bytes() -> int:
    """Bytes of the first core's second cache, by which products are cut; 0 if unknown."""
    return host.second_cache_bytes(0)


@functools.cache
def clock() -> str:
    """The processor's counter where its rate is constant, tsc or 64-bit Arm's cntvct, or clock_gettime. Raises
    ConfigError."""
    counter = "cntvct" if platform.machine() == "aarch64" else "tsc" if "constant_tsc" in features() else None
    return settings.clock() or counter or "clock_gettime"


def _processor() -> tuple[str, ...]:
    """What determines the code that LLVM generates for this processor: by Linux, or where Linux tells less, by LLVM,
    whose library takes 45 MB of memory and 25 ms to load.
    """
    if features():
        return tuple(about().get(key, "") for key in PROCESSOR)
    import llvmlite.binding as llvm

    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


@functools.cache
def identity() -> str:
    """A hash of everything besides the function on which compiled code depends: our sources, the compiler, the
    processor."""
    made_from = (
        source_hash(COMPILED), version("numba"), version("llvmlite"), sys.implementation.cache_tag,
        platform.system(), platform.machine(), _processor(), second_cache_bytes(), clock(),
        settings.numba_settings(),
    )  # fmt: skip
    return hashlib.sha256(repr(made_from).encode()).hexdigest()


def compiled_folder() -> Path:
    """The folder of compiled code: NUMBA_CACHE_DIR, or one for each identity in our cache folder."""
    chosen = settings.numba_cache()
    return Path(chosen) if chosen else settings.cache_folder() / f"numba-{identity()[:16]}"
