"""Record a release for tests/e2e/test_other_releases.py: what its client, worker and server say to each other, and the
database that it leaves.

    python -m tests.support.record_release tests/golden/release_0.1.0.json.gz

Run once for each release. A recording is never made again, since later versions are held to it.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import httpx

from gpt2core.spec.version import version
from taskloom import Client
from taskloom.contract.experiments import ExperimentRequest
from tests.support.processes import house
from tests.support.runs import SMALL, succeeded
from tests.support.wire import Message, Send, Wire

REQUEST = {
    "name": "recorded", "base": {**SMALL, "threads": 1}, "axes": {"scheduler": ["serial", "task"]}, "repetitions": 2,
}  # fmt: skip


class Recorder:
    """Keeps every request with its answer, in the order of the answers."""

    def __init__(self) -> None:
        self.exchanges: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def __call__(self, message: Message, send: Send) -> httpx.Response:
        answer = send(message)
        with self._lock:
            self.exchanges.append({
                "method": message.method, "path": message.path, "headers": message.headers,
                "body": message.body.decode(), "status": answer.status_code, "answer": answer.text,
            })  # fmt: skip
        return answer


def submit(client: Client) -> tuple[int, int]:
    """Submit an experiment to execute and one to cancel, and return their ids."""
    experiment = client.submit(ExperimentRequest.model_validate(REQUEST))
    other = client.submit(ExperimentRequest.model_validate({**REQUEST, "name": "cancelled"}))
    client.cancel_experiment(other.id)
    return experiment.id, other.id


def read(client: Client, experiment_id: int) -> None:
    """Read what there is to read of an ended experiment."""
    list(client.experiments())
    client.experiment(experiment_id)
    runs = list(client.runs(experiment_id))
    for run in runs:
        client.run(run.id)
        client.result(run.id)
        client.samples(run.id)
        list(client.run_changes(run.id))
        client.log(run.id)
    list(client.experiment_changes(experiment_id))
    list(client.workers())
    list(client.series())
    client.overview()
    client.variants(experiment_id)
    a, b = (f"experiment_id={experiment_id},scheduler={name}" for name in ("serial", "task"))
    client.compare(a, b)
    client.scaling(experiment_id)
    client.report(experiment_id)
    client.report_card(experiment_id)


def record(folder: Path) -> dict[str, Any]:
    """Let a server, a worker with a fake trainer and a client work. Return what was said and the database."""
    of_run, of_reading = Recorder(), Recorder()
    file = folder / "release.db"
    with house(folder, f"sqlite:///{file}", heartbeat_s=0.5) as home, Wire(home.url, of_run) as wire:
        with Client(wire.url) as client:
            experiment_id, _ = submit(client)
        options = ("--server", wire.url, "--worker-id", "w1", "--wait-s", "1")
        worker = home.start_worker("varied", *options)
        with Client(home.url) as unrecorded:
            succeeded(unrecorded, experiment_id, 4)
        worker.end()
        with Wire(home.url, of_reading) as reading, Client(reading.url, timeout_s=120) as client:
            read(client, experiment_id)
        home.server.end()
    with sqlite3.connect(file) as connection:
        database = list(connection.iterdump())
    return {
        "version": version(), "experiment_id": experiment_id, "run": of_run.exchanges, "read": of_reading.exchanges,
        "database": database,
    }  # fmt: skip


if __name__ == "__main__":
    target = Path(sys.argv[1])
    if target.exists():
        sys.exit(f"{target} exists: a recording is never made again")
    with tempfile.TemporaryDirectory() as folder:
        found = json.dumps(record(Path(folder)), indent=1)
    target.write_bytes(gzip.compress(found.encode(), mtime=0))
