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
# Settings of Numba that do not affect code. NUMBA_DISABLE_JIT would: compile/compiler.py removes it.
NOT_CODE = (
    "NUMBA_CACHE_DIR", "NUMBA_COLOR_SCHEME", "NUMBA_DEBUG_CACHE", "NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING",
    "NUMBA_DISABLE_JIT", "NUMBA_FULL_TRACEBACKS", "NUMBA_NUM_THREADS", "NUMBA_THREADING_LAYER", "NUMBA_WARNINGS",
)  # fmt: skip


class NoHome(ConfigError):
    """This user has no home folder, which arbitrary users of containers lack."""

    def __init__(self, instead: str) -> None:
        super().__init__("HOME", None, f"a home folder; or set {instead}")
        self.args = (f"no home folder: set {instead}",)


def home(instead: str) -> Path:
    """This user's home folder. Raises NoHome, which says what to set instead."""
    try:
        return Path.home()
    except RuntimeError:
        raise NoHome(instead) from None


def expanded(path: Path, instead: str) -> Path:
    """A path that may begin with ~. Raises NoHome."""
    try:
        return path.expanduser()
    except RuntimeError:
        raise NoHome(instead) from None


def cache_folder() -> Path:
    """TASKLOOM_CACHE_DIR: folder of compiled code, proven graphs, tables of products and peaks. Raises NoHome."""
    chosen = os.environ.get("TASKLOOM_CACHE_DIR")
    return Path(chosen) if chosen else home("TASKLOOM_CACHE_DIR") / ".cache" / "taskloom"


def make_cache_folder() -> Path:
    """The cache folder, created if it is missing. Raises ConfigError if it is not writable."""
    return _writable("TASKLOOM_CACHE_DIR", cache_folder())


def numba_cache() -> str | None:
    """NUMBA_CACHE_DIR: Numba's own name for the folder of compiled code, which takes precedence over ours; or None."""
    return os.environ.get("NUMBA_CACHE_DIR") or None


def make_numba_cache() -> None:
    """Create the folder NUMBA_CACHE_DIR, if it is set. Raises ConfigError if it is not writable."""
    chosen = numba_cache()
    if chosen is not None:
        _writable("NUMBA_CACHE_DIR", Path(chosen))


def _writable(name: str, folder: Path) -> Path:
    """The folder that a variable names, created if it is missing. Raises ConfigError if it is not writable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError(name, str(folder), f"a folder that this user may write to ({error.strerror})") from error
    return folder


def numba_settings() -> list[str]:
    """Settings of Numba that affect compiled code, each as NAME=value."""
    found = (item for item in os.environ.items() if item[0].startswith("NUMBA_") and item[0] not in NOT_CODE)
    return [f"{name}={value}" for name, value in sorted(found)]


def numba_processor() -> tuple[str | None, str | None]:
    """(NUMBA_CPU_NAME, NUMBA_CPU_FEATURES): the processor that code is compiled for; None: this one's name or
    features."""
    name, features = os.environ.get("NUMBA_CPU_NAME"), os.environ.get("NUMBA_CPU_FEATURES")
    return name, "" if features is None and (name or "").lower() == "generic" else features


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
