"""Checks of a provisioner's surroundings."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from gpt2core.spec.errors import ConfigError, InputError
from gpt2core.spec.preflight import UMASK, Check
from gpt2core.spec.settings import expanded, state_folder, writable
from gpt2core.spec.wording import counted
from taskloom.contract.http import reached
from taskloom.provisioner.pools import Pools, read

COMMANDS = ("sbatch", "squeue", "scancel")


def default_state(name: str) -> Path:
    """Path of a provisioner's state file."""
    return state_folder("--state") / "taskloom" / f"provision-{name}.json"


def _slurm() -> str:
    found = {name: shutil.which(name) for name in COMMANDS}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        raise ConfigError("PATH", os.environ.get("PATH"), f"a path with Slurm's commands; it lacks {missing[0]}")
    return ", ".join(map(str, found.values()))


SLURM = Check("Slurm", _slurm)


def state_file(pools: Pools, given: str | None) -> Path:
    """Path of the file that lists a provisioner's jobs. given: --state."""
    return expanded(Path(given), "--state") if given else default_state(pools.name)


def checks(pools: Pools, state: str | None = None) -> tuple[Check, ...]:
    """The checks before provisioning. state: --state."""

    def folders() -> str:
        log = expanded(pools.log_folder, "log_folder to a whole path")
        return f"{writable('log_folder', log)}, {writable('--state', state_file(pools, state).parent)}"

    return (
        UMASK, SLURM, Check("folders of the provisioner", folders),
        Check("way of the provisioner to its server", lambda: reached(pools.server, pools.token())),
    )  # fmt: skip


def checks_of(file: str | None) -> tuple[Check, ...]:
    """Those of a pools file, and the file's own; without one only Slurm's commands, which all files need."""
    if file is None:
        return (SLURM,)

    def pools_file() -> str:
        return f"{Path(file).absolute()}, with {counted(len(read(Path(file)).pools), 'pool')}"

    try:
        rest = checks(read(Path(file)))
    except InputError:  # pools_file says it
        rest = (UMASK, SLURM)
    return (Check("pools file", pools_file), *rest)
