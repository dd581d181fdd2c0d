"""A server whose database and artifacts are on a disk that becomes full: it answers reads, refuses writes with problems
that have a type, loses nothing, and goes on once there is space."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from taskloom import Client
from tests.support.patience import until
from tests.support.processes import House
from tests.support.runs import SMALL, ended, submit, training

pytestmark = pytest.mark.slow
MOUNTING = 'mount -t tmpfs -o size=8m taskloom "$0" && exec "$@"'
READS = ("/healthz", "/metrics", "/api/v1/runs", "/api/v1/runs/1", "/api/v1/overview", "/api/v1/exports/runs")


def fill(disk: Path) -> Path:
    """A file that leaves no space on the disk."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    return filler


def test_a_server_on_a_full_disk(home: House) -> None:
    home.server.end()
    disk = home.folder / "disk"
    disk.mkdir()
    alone = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", MOUNTING, str(disk)]
    if subprocess.run([*alone, "true"], check=False).returncode != 0:
        pytest.skip("this system lets nobody mount a small disk")
    command = [sys.executable, "-P", "-m", "taskloom.server", "--port", "0", "--database-url", f"sqlite:///{disk}/t.db"]
    quick = {"TASKLOOM_HEARTBEAT_S": "0.2", "TASKLOOM_ANALYSIS_PROCESSES": "0"}
    server = home.run("server", [*alone, *command], **quick)
    home.url = server.event("listening")["url"]
    seen = Path(f"/proc/{server.popen.pid}/root{disk}")  # the disk as the server sees it
    with Client(home.url, timeout_s=60) as client, httpx.Client(base_url=home.url, timeout=60) as http:
        _, gate = home.start_gated("worker")
        run_id = submit(client)
        training(client, run_id)
        filler = fill(seen)
        gate.touch()  # the result finds no space and waits in the worker's spool
        until(lambda: http.get("/readyz").status_code == 503, "the server to see that its disk is full")
        refused = http.post("/api/v1/experiments", json={"base": SMALL})
        assert (refused.status_code, refused.json()["type"]) == (503, "/problems/database-unavailable")
        assert "disk is full" in refused.json()["detail"]
        report = http.get("/api/v1/analysis/report?experiment_id=1")
        assert (report.status_code, report.json()["type"]) == (503, "/problems/store-unavailable")
        assert [http.get(path).status_code for path in READS] == [200] * len(READS)
        filler.unlink()
        assert [(a.attempt_no, a.state) for a in ended(client, run_id).history] == [(1, "succeeded")]
        until(lambda: http.get("/readyz").status_code == 200, "the server to see that its disk has space again")
    assert "Traceback" not in server.log.read_text()
