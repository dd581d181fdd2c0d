"""Execute docs/how-to/slurm.md block by block, as a user without root."""

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

from gpt2core.spec.version import RELEASE
from taskloom import Client
from tests.support.cluster import Cluster, cluster, exposing
from tests.support.patience import until
from tests.support.processes import House, Process

pytestmark = pytest.mark.slurm

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/how-to/slurm.md"
NOBODY = 65534
NOT_COPIED = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "node_modules", "results", "tests")
PATIENCE_S = 600.0  # time limit of a block; packages come from the network, and kernels are compiled


@pytest.fixture
def slurm() -> Iterator[Cluster]:
    """A cluster on whose nodes every user can run the Python of the tests' environment."""
    # Not in pytest's folder: each start of pytest closes that to other users.
    with tempfile.TemporaryDirectory(prefix="taskloom-slurm-", ignore_cleanup_errors=True) as folder:
        path = Path(folder)
        with cluster(path, exposed=exposing([Path(sys.base_prefix)], path)) as found:
            yield found


@pytest.mark.timeout(1500)
def test_the_page_holds_for_a_user_without_root(slurm: Cluster, home: House, client: Client) -> None:
    folder = slurm.folder / "user"
    shutil.copytree(ROOT, folder / "checkout", symlinks=True, ignore=NOT_COPIED)
    pip = Path.home() / ".config/pip/pip.conf"  # it may name this machine's package index
    if pip.exists():
        (folder / ".config/pip").mkdir(parents=True)
        shutil.copy(pip, folder / ".config/pip")
    as_user: list[str] = []
    if os.getuid() == 0:
        subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", str(folder)], check=True)
        user = f"setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups"
        as_user = ["unshare", "--mount", "sh", "-ec", f'{slurm.exposed}\ncd {folder}\nexec {user} "$@"', "sh"]
    environment = {
        "HOME": str(folder),
        # Commands that the block `install` creates take precedence.
        "PATH": f"{folder}/taskloom/bin:{sys.base_prefix}/bin:{os.environ['PATH']}",
        "PYTHONPATH": "",
        "PIP_COMPILE": "0",  # Python compiles what it imports, which is a small part
        "PIP_CONSTRAINT": str(folder / "checkout/constraints.txt"),
        # The copy has no .git, so its wheel has the release's version.
        "WHEEL": f"{folder}/checkout/dist/taskloom-{RELEASE}-py3-none-any.whl",
        "TASKLOOM_SERVER": home.url,
        "WORKER_KEY": "unused",
    }
    provisioner: Process | None = None
    run = []
    for kind, text in re.findall(r"^```(\w+(?: \S+)?)\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE):
        if kind == "toml pools.toml":
            here = text.replace("http://taskloom.example:8321", home.url).replace("interval = 30 ", "interval = 1 ")
            here = here.replace("idle_exit = 120 ", "idle_exit = 4 ")
            assert here.count("\n") == text.count("\n")
            (folder / "pools.toml").write_text(here)
        elif kind == "sh background":
            provisioner = home.run("user", [*as_user, "bash", "-c", f"cd {folder} && exec {text}"], **environment)
        else:
            place = folder / "checkout" if kind == "sh checkout" else folder
            done = subprocess.run(
                [*as_user, "bash", "-eu", "-c", f"cd {place}\n{text}"], env={**os.environ, **environment},
                capture_output=True, text=True, timeout=PATIENCE_S, check=False,
            )  # fmt: skip
            assert done.returncode == 0, (text, done.stdout, done.stderr)
            run.append(kind)
    assert provisioner is not None
    assert run == ["sh checkout", "sh install", "sh", "sh", "sh"]
    assert {item.state for item in client.runs(experiment_id=1)} == {"succeeded"}
    assert oct((folder / ".config/taskloom/worker.key").stat().st_mode)[-2:] == "00"
    until(lambda: slurm.jobs() == [], "the workers to leave", PATIENCE_S)
    provisioner.popen.terminate()
    assert provisioner.wait() == 0
