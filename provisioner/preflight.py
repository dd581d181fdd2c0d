"""Checks of a provisioner's surroundings."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from gpt2core.spec.errors import ConfigError
from gpt2core.spec.preflight import UMASK, Check
from gpt2core.spec.settings import expanded, state_folder, writable
from taskloom.contract.http import reached
from taskloom.provisioner.pools import Pools

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


def checks(pools: Pools, state: Path) -> tuple[Check, ...]:
    """The checks before provisioning."""

    def folders() -> str:
        log = expanded(pools.log_folder, "log_folder to a whole path")
        return f"{writable('log_folder', log)}, {writable('--state', state.parent)}"

    return (
        UMASK, SLURM, Check("folders of the provisioner", folders),
        Check("way to the server", lambda: reached(pools.server, pools.token())),
    )  # fmt: skip
