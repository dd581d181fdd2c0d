"""Checks of the surroundings: variables, folders and files that a process takes from the machine and its user.

Each process has one list, which it runs before its work; `taskloom doctor` prints these lists. Standard library only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from gpt2core.spec import addresses, locks, printed, settings
from gpt2core.spec.errors import ConfigError, FileError, InputError

OPTION = "--preflight"  # of our processes: print the list as JSON and exit
BEGIN = '[{"name": '  # of what `tell` writes


@dataclass(frozen=True)
class Check:
    """look: what was found. It raises InputError, which names the variable or file and says what to do."""

    name: str
    look: Callable[[], str]


@dataclass(frozen=True)
class Finding:
    """What a check found. advice: the error, if the process cannot start like this."""

    name: str
    found: str
    advice: str = ""


def require(checks: Iterable[Check]) -> None:
    """Raises InputError for the first check that fails."""
    for check in checks:
        check.look()


def examine(checks: Iterable[Check]) -> list[Finding]:
    """What each check finds. An error that several checks meet is found once."""
    found = {each.advice or each.name: each for each in reversed([_finding(check) for check in checks])}
    return list(reversed(found.values()))


def _finding(check: Check) -> Finding:
    try:
        return Finding(check.name, check.look())
    except InputError as error:
        return Finding(check.name, "not usable", str(error))


def tell(checks: Iterable[Check], out: IO[str]) -> None:
    """Write the findings as JSON, for `read`."""
    out.write(json.dumps([asdict(each) for each in examine(checks)]) + "\n")


def read(text: str) -> list[Finding]:
    """Findings that another process printed, among what libraries print. Raises ValueError."""
    return [Finding(**each) for each in printed.document(text, BEGIN)]


def _variables() -> str:
    """The trainer's settings."""
    settings.check()
    given = sorted(name for name in settings.TRAINERS if os.environ.get(name))
    return ", ".join(f"{name}={os.environ[name]}" for name in given) or "none"


def _processes() -> str:
    try:
        Path("/proc/self/stat").read_bytes()
    except OSError as error:
        raise FileError("/proc", f"{error.strerror}: mount it, it tells what threads and machine do") from None
    return f"{len(os.sched_getaffinity(0))} of {os.cpu_count()} processors"


def _mask() -> str:
    mask = os.umask(0o077)
    os.umask(mask)
    if mask & 0o700:
        raise ConfigError("umask", f"{mask:04o}", "one that leaves new files to their owner, such as 0022")
    return f"{mask:04o}"


def _temporary() -> str:
    return str(settings.temporary_folder())


def _cache() -> str:
    folder = settings.make_cache_folder()
    try:
        with (folder / "locks").open("a") as file:
            return str(folder) if locks.lock(file, shared=True) else f"{folder}, whose file system has no locks"
    except OSError as error:
        raise FileError(folder / "locks", f"cannot be locked ({error.strerror}); set TASKLOOM_CACHE_DIR") from error


def _numba() -> str:
    settings.make_numba_cache()
    settings.check_numba()
    given = [f"NUMBA_CACHE_DIR={folder}"] if (folder := settings.numba_cache()) else []
    return ", ".join(given + settings.numba_settings()) or "none"


UMASK = Check("umask", _mask)
SETTINGS = (
    UMASK, Check("temporary folder", _temporary), Check("address space", addresses.check),
    Check("processors", _processes), Check("variables of the trainer", _variables),
)  # fmt: skip
TRAINING = (*SETTINGS, Check("cache folder", _cache), Check("variables of Numba", _numba))
