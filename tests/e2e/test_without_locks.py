"""Server, worker and trainer on file systems without locks, such as Lustre without `flock`."""

from __future__ import annotations

import errno
import sys
from pathlib import Path

import httpx
import pytest

from gpt2core.compile import target
from taskloom import Client
from tests.support.command_line import TINY
from tests.support.compiled import copy_compiled
from tests.support.processes import House, Process
from tests.support.runs import ended, submit

pytestmark = pytest.mark.slow

NO_LOCKS = """
import fcntl, os
def flock(*_):
    raise OSError({number}, os.strerror({number}))
fcntl.flock = flock
"""
MISSING = {"adamw", "task_loop"}  # code that the trainer compiles itself, and in another process


BOTH = pytest.mark.parametrize("without_locks", [errno.ENOSYS, errno.ENOLCK], ids=["ENOSYS", "ENOLCK"], indirect=True)


@pytest.fixture
def without_locks(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """Variables with which Python's processes have no locks: Python imports sitecustomize when it starts."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(NO_LOCKS.format(number=getattr(request, "param", errno.ENOLCK)))
    return {"PYTHONPATH": str(tmp_path / "site")}


@BOTH
def test_a_run_with_artifacts_succeeds(home: House, client: Client, without_locks: dict[str, str]) -> None:
    home.server.end()
    home.start_server(**without_locks)
    assert httpx.get(f"{home.url}/readyz").status_code == 200
    worker = home.start_worker("leaving", **without_locks)
    worker.event("no-locks")
    assert ended(client, submit(client)).state == "succeeded"


def test_a_trainer_compiles_and_keeps_what_it_compiled(without_locks: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "cache" / target.compiled_folder().name
    copy_compiled(folder, without=MISSING)
    environment = {**without_locks, "TASKLOOM_CACHE_DIR": str(tmp_path / "cache")}
    command = [str(Path(sys.executable).with_name("taskloom")), "train", *TINY, "--json"]
    train = Process(command, tmp_path / "log", **environment)
    assert train.wait(240) == 0, (tmp_path / "log").read_text()
    assert {file.name.rpartition("-")[0] for file in folder.glob("*.o")} >= MISSING
