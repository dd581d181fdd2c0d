"""Environment variables of the trainer, read here only, each when it is needed.

None of them changes what a run computes; docs/reference/cli.md lists those of ours, TASKLOOM_*. Variables that a parent
process sets for its trainer (the lifeline, one thread for each BLAS call) are in process/.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from gpt2core.spec.errors import ConfigError

STALL_S = 120.0


def cache_folder() -> Path:
    """TASKLOOM_CACHE_DIR: folder of compiled code, proven graphs, tables of products and peaks."""
    return Path(os.environ.get("TASKLOOM_CACHE_DIR") or Path.home() / ".cache" / "taskloom")


def make_cache_folder() -> Path:
    """The cache folder, created if it is missing. Raises ConfigError if it is not writable."""
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        accepted = f"a folder that this user may write to ({error.strerror})"
        raise ConfigError("TASKLOOM_CACHE_DIR", str(folder), accepted) from error
    return folder


def numba_cache() -> str | None:
    """NUMBA_CACHE_DIR: Numba's own name for the folder of compiled code, which takes precedence over ours; or None."""
    return os.environ.get("NUMBA_CACHE_DIR") or None


def clock() -> str | None:
    """TASKLOOM_CLOCK: clock_gettime, to time tasks without the processor's counter; or None. Raises ConfigError."""
    wanted = os.environ.get("TASKLOOM_CLOCK") or None
    if wanted not in (None, "clock_gettime"):
        raise ConfigError("TASKLOOM_CLOCK", wanted, "clock_gettime, or nothing for the fastest available clock")
    return wanted


def stall_s() -> float:
    """TASKLOOM_STALL_S: seconds without any task ending after which a run is given up. Raises ConfigError."""
    return _number("TASKLOOM_STALL_S", STALL_S)


def proves_always() -> bool:
    """TASKLOOM_PROVE=always: task graphs are derived and proven even if proven ones are cached. Raises ConfigError."""
    wanted = os.environ.get("TASKLOOM_PROVE") or None
    if wanted not in (None, "always"):
        raise ConfigError("TASKLOOM_PROVE", wanted, "always, or nothing to prove each graph once")
    return wanted is not None


def stress() -> int | None:
    """TASKLOOM_STRESS: seed of random delays before tasks, which expose races; None without. Raises ConfigError."""
    return int(_number("TASKLOOM_STRESS", 0)) if os.environ.get("TASKLOOM_STRESS") else None


def _number(name: str, default: float) -> float:
    text = os.environ.get(name)
    try:
        return float(text) if text else default
    except ValueError:
        raise ConfigError(name, text, "a number") from None
