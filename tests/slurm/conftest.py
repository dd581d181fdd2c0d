from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from taskloom import Client
from tests.support.cluster import Cluster, cluster, missing
from tests.support.processes import House, Process, house

POOL: dict[str, Any] = {
    "partition": "main", "cores": 2, "memory": "1GiB", "walltime": "00:10:00", "max_jobs": 2, "max_pending": 2,
    "exclusive": False, "idle_exit": 4, "peaks": "never",
}  # fmt: skip


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    absent = missing()
    assert not absent, f"not installed: {', '.join(absent)} (Debian: slurm-wlm, munge)"
    with cluster(tmp_path_factory.mktemp("slurm")) as found:
        yield found


@pytest.fixture
def home(slurm: Cluster, tmp_path: Path, database_url: str) -> Iterator[House]:
    for name, value in slurm.environment.items():
        os.environ[name] = value
    # A block leaves the node of a killed worker after 15 s. Until then no job is submitted for it.
    settings = {"heartbeat_s": 0.5, "lease_s": 6, "reap_every_s": 0.5, "block_release_s": 15, "analysis_processes": 0}
    with house(tmp_path, database_url, **settings) as found:
        yield found
        slurm.cancel_all()


@pytest.fixture
def client(home: House) -> Iterator[Client]:
    with Client(home.url) as connected:
        yield connected


@pytest.fixture
def provision(home: House) -> Callable[..., Process]:
    """Start a provisioner. `pools` has the changes to POOL for each pool, by name."""

    def start(*options: str, pools: dict[str, dict[str, Any]], **environment: str) -> Process:
        path = home.folder / "pools.toml"
        path.write_text(pools_file(home, pools))
        command = [sys.executable, "-P", "-m", "taskloom.provisioner", str(path), *options]
        return home.run("provisioner", command, XDG_STATE_HOME=str(home.folder / "state"), **environment)

    return start


def pools_file(home: House, pools: dict[str, dict[str, Any]]) -> str:
    """A pools file whose jobs use the `taskloom` of this environment."""
    lines = [f'name = "t"\nserver = "{home.url}"\ninterval = 1\nlog_folder = "{home.folder}/jobs"']
    exports = {
        "PATH": f"{Path(sys.executable).parent}:$PATH",
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "XDG_STATE_HOME": str(home.folder / "state"),
    }
    prelude = "\n".join(f"export {name}={value}" for name, value in exports.items())
    for name, changes in pools.items():
        lines.append(f"[pools.{name}]")
        for key, value in {**POOL, "prelude": prelude, **changes}.items():
            text = str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')
            lines.append(f"{key} = {text}")
    return "\n".join(lines)
