"""docs/how-to/slurm.md, block by block, as a user without root."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import Cluster, cluster, exposing
from patience import until
from processes import House, Process

from taskloom import Client

pytestmark = pytest.mark.slurm

PAGE = Path(__file__).parents[2] / "docs/how-to/slurm.md"
NOBODY = 65534
PYTHON = [Path(sys.base_prefix), Path(sys.prefix), PAGE.parents[2]]


@pytest.fixture
def slurm() -> Iterator[Cluster]:
    """A cluster whose nodes show every user the Python that the tests run with."""
    # Not in pytest's folder, which every start of pytest closes for other users.
    with tempfile.TemporaryDirectory(prefix="taskloom-slurm-", ignore_cleanup_errors=True) as folder:
        path = Path(folder)
        with cluster(path, exposed=exposing(PYTHON, path)) as found:
            yield found


def test_the_page_holds_for_a_user_without_root(slurm: Cluster, home: House, client: Client) -> None:
    folder = slurm.folder / "user"
    folder.mkdir()
    (folder / "taskloom").symlink_to(sys.prefix)  # what the block `install` makes
    as_user: list[str] = []
    if os.getuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
        user = f"setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups"
        as_user = ["unshare", "--mount", "sh", "-ec", f'{slurm.exposed}\ncd {folder}\nexec {user} "$@"', "sh"]
    path = f"{folder}/taskloom/bin:{os.environ['PATH']}"
    environment = {"HOME": str(folder), "PATH": path, "TASKLOOM_SERVER": home.url, "WORKER_KEY": "unused"}
    cache = Path(os.environ.get("TASKLOOM_CACHE_DIR") or Path.home() / ".cache/taskloom")
    shutil.copytree(cache, folder / ".cache/taskloom")  # kernels that are compiled already
    if as_user:
        subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", str(folder / ".cache")], check=True)
    provisioner: Process | None = None
    run = 0
    for kind, text in re.findall(r"^```(\w+(?: \S+)?)\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE):
        if kind == "toml pools.toml":
            here = text.replace("http://taskloom.example:8321", home.url).replace("interval = 30 ", "interval = 1 ")
            here = here.replace("idle_exit = 120 ", "idle_exit = 4 ")
            assert here.count("\n") == text.count("\n")
            (folder / "pools.toml").write_text(here)
        elif kind == "sh background":
            provisioner = home.run("user", [*as_user, "bash", "-c", f"cd {folder} && exec {text}"], **environment)
        elif kind == "sh":
            done = subprocess.run(
                [*as_user, "bash", "-eu", "-c", text], cwd=folder, env={**os.environ, **environment},
                capture_output=True, text=True, timeout=280, check=False,
            )  # fmt: skip
            assert done.returncode == 0, (text, done.stdout, done.stderr)
            run += 1
    assert provisioner is not None
    assert run == 3
    assert {item.state for item in client.runs(experiment_id=1)} == {"succeeded"}
    assert oct((folder / ".config/taskloom/worker.key").stat().st_mode)[-2:] == "00"
    until(lambda: slurm.jobs() == [], "the workers to leave", 60)
    provisioner.popen.terminate()
    assert provisioner.wait() == 0
