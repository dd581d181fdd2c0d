"""Environment variables of the trainer, read here only, each when it is needed.

None of them changes what a run computes; docs/reference/cli.md lists those of ours, TASKLOOM_*. Variables that a parent
process sets for its trainer (the lifeline, one thread for each BLAS call) are in process/.
"""

from __future__ import annotations

import math
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from gpt2core.spec.errors import ConfigError, FileError

N = TypeVar("N", int, float)
STALL_S = 120.0
MOST_SEED = (1 << 63) - 1
# Settings of Numba that do not affect code. NUMBA_DISABLE_JIT would: compile/compiler.py removes it.
NOT_CODE = (
    "NUMBA_CACHE_DIR", "NUMBA_COLOR_SCHEME", "NUMBA_DEBUG_CACHE", "NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING",
    "NUMBA_DISABLE_JIT", "NUMBA_FULL_TRACEBACKS", "NUMBA_NUM_THREADS", "NUMBA_THREADING_LAYER", "NUMBA_WARNINGS",
)  # fmt: skip
# Settings of Numba that are integers; it prints a traceback for another value and goes on with its default.
INTEGER = re.compile(
    "NUMBA_(ALWAYS_WARN_UNINIT_VAR|BOUNDSCHECK|DEBUG(INFO|_CACHE|_FRONTEND|_JIT|_NRT|_TYPEINFER)?|DEVELOPER_MODE|DIFF_IR"
    "|DISABLE_(ERROR_MESSAGE_HIGHLIGHTING|INTEL_SVML|JIT|PERFORMANCE_WARNINGS|TYPEINFER_FAIL_CACHE)"
    "|DUMP_(ANNOTATION|ASSEMBLY|BYTECODE|CFG|FUNC_OPT|IR|LLVM|OPTIMIZED|SSA)|ENABLE_(AVX|CUDASIM|PROFILING)"
    "|FULL_TRACEBACKS|FUNCTION_CACHE_SIZE|HIGHLIGHT_DUMPS|JIT_COVERAGE|LLVM_(PASS_TIMINGS|REFPRUNE_PASS)"
    "|LOOP_VECTORIZE|NRT_STATS|NUM_THREADS|PARALLEL_DIAGNOSTICS|SHOW_HELP|SLP_VECTORIZE|TRACE"
    "|USE_LLVMLITE_MEMORY_MANAGER|WARNINGS)"
)
QUOTED = re.compile(r"""(["'])((?:(?!\1).)*)\1""", re.DOTALL)
NUMBA_FILE = Path(".numba_config.yaml")  # Numba reads it from the current folder


class NoHome(ConfigError):
    """This user has no home folder, which arbitrary users of containers lack."""

    def __init__(self, instead: str) -> None:
        super().__init__("HOME", None, f"a home folder; or set {instead}")
        self.args = (f"no home folder: set {instead}",)


def trim() -> None:
    """Remove from our variables what files of variables leave around their values: line ends of Windows, and the quotes
    that `docker run --env-file` keeps. Otherwise they would be a part of names of files."""
    for name, value in os.environ.items():
        if name.startswith("TASKLOOM_"):
            quoted = QUOTED.fullmatch(value.strip())
            os.environ[name] = (quoted[2] if quoted else value).strip()


def home(instead: str) -> Path:
    """This user's home folder. Raises NoHome, which says what to set instead, also for one that would be another folder
    wherever a process starts."""
    try:
        found = Path.home()
    except RuntimeError:
        raise NoHome(instead) from None
    if not found.is_absolute():
        raise NoHome(instead)
    return found


def state_folder(instead: str) -> Path:
    """Folder of this user's state: XDG_STATE_HOME, which counts if it is a whole path, or ~/.local/state. Raises
    NoHome."""
    given = expanded(Path(os.environ.get("XDG_STATE_HOME", "")), instead)
    return given if given.is_absolute() else home(instead) / ".local/state"


def expanded(path: Path, instead: str) -> Path:
    """A path that may begin with ~. Raises NoHome."""
    try:
        return path.expanduser()
    except RuntimeError:
        raise NoHome(instead) from None


def cache_folder() -> Path:
    """TASKLOOM_CACHE_DIR: folder of compiled code, proven graphs, tables of products and peaks. Raises NoHome."""
    chosen = os.environ.get("TASKLOOM_CACHE_DIR")
    if chosen:  # ~ too: not every starter of a process expands it
        return expanded(Path(chosen), "TASKLOOM_CACHE_DIR")
    return home("TASKLOOM_CACHE_DIR") / ".cache" / "taskloom"


def make_cache_folder() -> Path:
    """The cache folder, created if it is missing. Raises ConfigError if it is not writable."""
    return writable("TASKLOOM_CACHE_DIR", cache_folder())


def numba_cache() -> str | None:
    """NUMBA_CACHE_DIR: Numba's own name for the folder of compiled code, which takes precedence over ours; or None."""
    return os.environ.get("NUMBA_CACHE_DIR") or None


def make_numba_cache() -> None:
    """Create the folder NUMBA_CACHE_DIR, if it is set. Raises ConfigError if it is not writable."""
    chosen = numba_cache()
    if chosen is not None:
        writable("NUMBA_CACHE_DIR", Path(chosen))


def writable(name: str, folder: Path) -> Path:
    """The folder that a variable names, created if it is missing. Raises ConfigError if it is not writable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError(name, str(folder), f"a folder that this user may write to ({error.strerror})") from error
    return folder


def temporary_folder() -> Path:
    """Folder of temporary files (TMPDIR). Raises ConfigError if there is none."""
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise ConfigError("TMPDIR", os.environ.get("TMPDIR"), f"a folder for temporary files ({error})") from error


def unset_if_empty(name: str) -> bool:
    """Whether this is a setting of Numba that says nothing if it is empty. Numba would try to read it; an empty list of
    features is one."""
    return name.startswith("NUMBA_") and name != "NUMBA_CPU_FEATURES"


def numba_settings() -> list[str]:
    """Settings of Numba that affect compiled code, each as NAME=value."""
    given = ((name, value) for name, value in os.environ.items() if name.startswith("NUMBA_"))
    found = ((name, value) for name, value in given if value or not unset_if_empty(name))
    return [f"{name}={value}" for name, value in sorted(found) if name not in NOT_CODE]


def check_numba() -> None:
    """Raises ConfigError for a setting that Numba would not understand, FileError for a file of settings, which no
    result would show."""
    for name in filter(INTEGER.fullmatch, os.environ):
        _number(name, 0, int, "an integer, or unset")
    if (level := os.environ.get("NUMBA_OPT") or "3") not in ("0", "1", "2", "3", "max"):
        raise ConfigError("NUMBA_OPT", level, "0, 1, 2, 3 or max")
    if NUMBA_FILE.exists():
        raise FileError(NUMBA_FILE.absolute(), "Numba would take settings from it; set its NUMBA_* variables instead")


def numba_processor() -> tuple[str | None, str | None]:
    """(NUMBA_CPU_NAME, NUMBA_CPU_FEATURES): the processor that code is compiled for; None: this one's name or
    features."""
    name, features = os.environ.get("NUMBA_CPU_NAME") or None, os.environ.get("NUMBA_CPU_FEATURES")
    return name, "" if features is None and (name or "").lower() == "generic" else features


def clock() -> str | None:
    """TASKLOOM_CLOCK: clock_gettime, to time tasks without the processor's counter; or None. Raises ConfigError."""
    value = os.environ.get("TASKLOOM_CLOCK") or None
    if value not in (None, "clock_gettime"):
        raise ConfigError("TASKLOOM_CLOCK", value, "clock_gettime, or nothing for the fastest available clock")
    return value


def stall_s() -> float:
    """TASKLOOM_STALL_S: seconds without any task ending after which a run is given up. Raises ConfigError."""
    return _number("TASKLOOM_STALL_S", STALL_S, float, "a number of seconds above 0", 0.0)


def proves_always() -> bool:
    """TASKLOOM_PROVE=always: task graphs are derived and proven even if proven ones are cached. Raises ConfigError."""
    value = os.environ.get("TASKLOOM_PROVE") or None
    if value not in (None, "always"):
        raise ConfigError("TASKLOOM_PROVE", value, "always, or nothing to prove each graph once")
    return value is not None


def stress() -> int | None:
    """TASKLOOM_STRESS: seed of random delays before tasks, which expose races; None without. Raises ConfigError."""
    accepted = f"an integer from 0 to {MOST_SEED}"
    seed = _number("TASKLOOM_STRESS", -1, int, accepted, -1.0, MOST_SEED)
    return None if seed < 0 else seed


# Each setting of the trainer with the function that reads it.
TRAINERS: dict[str, Callable[[], object]] = {
    "TASKLOOM_CLOCK": clock, "TASKLOOM_STALL_S": stall_s, "TASKLOOM_PROVE": proves_always, "TASKLOOM_STRESS": stress,
}  # fmt: skip


def check() -> None:
    """Raises ConfigError for the first of the trainer's settings that is not accepted."""
    for read in TRAINERS.values():
        read()


def _number(
    name: str, default: N, kind: Callable[[str], N], accepted: str, above: float = -math.inf, most: float = math.inf
) -> N:
    """A variable's number; the default if it is not set or empty. Raises ConfigError."""
    text = os.environ.get(name)
    try:
        found = kind(text) if text else default
        if not (found == default or (math.isfinite(found) and above < found <= most)):
            raise ValueError
    except ValueError:
        raise ConfigError(name, text, accepted) from None
    return found
