"""Users without a home folder, as containers have them: an arbitrary uid without a passwd entry, and no HOME."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpt2core.spec.settings import cache_folder
from tests.support import fake_slurm
from tests.support.command_line import TINY
from tests.support.processes import House

pytestmark = pytest.mark.slow

POOLS = '[pools.a]\ncores = 1\nmemory = "1GiB"\nwalltime = 600\nmax_jobs = 1\n'
WORKER = ("worker", "--idle-exit", "1s", "--peaks", "never")
TRAIN = ("train", *TINY)
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Execute `taskloom` as such a user. Python imports sitecustomize when it starts."""
    (tmp_path / "site").mkdir()
    no_entry = "import pwd\ndef getpwuid(_): raise KeyError\npwd.getpwuid = getpwuid\n"
    (tmp_path / "site/sitecustomize.py").write_text(no_entry)
    slurm = fake_slurm.commands(tmp_path / "slurm")
    (tmp_path / "pools.toml").write_text(POOLS)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "TASKLOOM_", "HOME"))}

    def run(*arguments: str, **more: str) -> tuple[int, str]:
        environment = {
            **kept, "PATH": f"{slurm}:{os.environ['PATH']}", "PYTHONPATH": str(tmp_path / "site"), **more,
        }  # fmt: skip
        command = [str(Path(sys.executable).with_name("taskloom")), *arguments]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240, check=False
        )
        return done.returncode, done.stderr

    return run


@pytest.mark.parametrize(
    ("arguments", "variable"),
    [
        (WORKER, "--spool or TASKLOOM_SPOOL"), (TRAIN, "TASKLOOM_CACHE_DIR"), (("doctor",), "TASKLOOM_CACHE_DIR"),
        (("provision", "pools.toml", "--plan"), "--state"),
        (("provision", "pools.toml", "--plan", "--state", "x/s.json"), "log_folder to a whole path"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)  # fmt: skip
def test_what_to_set_is_said_in_one_line(run: Run, arguments: tuple[str, ...], variable: str, tmp_path: Path) -> None:
    if "log_folder" in variable:
        (tmp_path / "pools.toml").write_text('log_folder = "~/jobs"\n' + POOLS)
    assert run(*arguments) == (2, f"error: no home folder: set {variable}\n")


def test_with_it_everything_works(run: Run, home: House) -> None:
    cache = {"TASKLOOM_CACHE_DIR": str(cache_folder())}
    for arguments, more in (
        (TRAIN, cache), (("doctor",), cache | {"TASKLOOM_SPOOL": "spool"}),
        ((*WORKER, "--server", home.url, "--spool", "spool"), {}),
        (("provision", "pools.toml", "--plan", "--state", "state/s.json", "--server", home.url), {}),
    ):  # fmt: skip
        code, printed = run(*arguments, **more)
        assert code == 0, printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(WORKER, "--spool or TASKLOOM_SPOOL = "), (("provision", "pools.toml", "--plan"), "--state = ")],
    ids=["worker", "provision"],
)
def test_a_home_folder_that_cannot_be_written_is_named(run: Run, arguments: tuple[str, ...], message: str) -> None:
    code, printed = run(*arguments, HOME="/proc/1")
    assert (code, printed.count("\n")) == (2, 1)
    assert message in printed
