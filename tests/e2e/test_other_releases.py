"""Today's server with a worker and a client of earlier commits, and today's worker and client with an earlier server.

The commits come from the repository's history: a shallow clone does not have them, and the tests fail there.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from patience import DEADLINE_S, until
from processes import House, Process
from runs import ended, submit

from taskloom import Client

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
FIRST = "5563814"  # before today's import names, extensible answers and validated results
OPEN_ANSWERS = "26d03ee"  # the first whose clients ignore unknown fields
TRAINING_S = 240.0  # an earlier trainer compiles first
CLIENT = """
import json, sys
from taskloom import Client

with Client(sys.argv[1]) as client:
    run = client.run(1)
    client.workers() and list(client.workers())
    scaling = client.scaling(run.experiment_id)
    print(json.dumps([run.state, client.experiment(run.experiment_id).by_state, len(scaling.rows)]))
"""


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A folder with the files of a commit."""

    def unpack(commit: str) -> Path:
        folder = tmp_path_factory.mktemp(commit)
        packed = subprocess.run(["git", "-C", str(ROOT), "archive", commit], capture_output=True, check=False)
        assert packed.returncode == 0, f"no commit {commit} in this clone: {packed.stderr.decode()}"
        subprocess.run(["tar", "-x", "-C", str(folder)], input=packed.stdout, check=True)
        return folder

    return unpack


def start(home: House, old: Path, module: str, *options: str) -> Process:
    """A process of an earlier release."""
    settings = {"PYTHONPATH": str(old), "TASKLOOM_PEAKS": "never", "TASKLOOM_ARTIFACT_ROOT": str(home.artifacts)}
    return home.run(f"old-{module}", [sys.executable, "-P", "-m", module, *options], **settings)


def test_an_earlier_worker_works_for_todays_server(home: House, client: Client, release: Callable[[str], Path]) -> None:
    run_id = submit(client)
    worker = start(home, release(FIRST), "worker", "--server", home.url, "--spool", str(home.spool), "--json")
    worker.event("delivered", TRAINING_S)
    run = client.run(run_id)
    assert run.state == "succeeded"
    assert run.median_step_s is not None
    assert client.scaling(run.experiment_id).rows[0].step_s.median == pytest.approx(run.median_step_s)


def test_an_earlier_client_reads_todays_server(home: House, client: Client, release: Callable[[str], Path]) -> None:
    run_id = submit(client)
    home.start_worker(None)
    assert until(lambda: ended(client, run_id), "the run", TRAINING_S).state == "succeeded"
    done = subprocess.run(
        [sys.executable, "-P", "-c", CLIENT, home.url], env={"PYTHONPATH": str(release(OPEN_ANSWERS))},
        capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["succeeded", {"succeeded": 1}, 1]


def test_todays_worker_and_client_work_with_an_earlier_server_and_its_database_moves_on(
    home: House, release: Callable[[str], Path]
) -> None:
    database = f"sqlite:///{home.folder}/old.db"
    server = start(home, release(FIRST), "server", "--port", "0", "--database-url", database)
    url = server.event("listening")["url"]
    with Client(url, timeout_s=TRAINING_S) as client:
        run_id = submit(client)
        worker = home.start_worker(None, "--server", url)
        worker.event("delivered", TRAINING_S)
        before = client.run(run_id)
        assert before.state == "succeeded"
        samples = client.result(run_id)
        worker.popen.terminate()
        assert worker.wait() == 0
    server.popen.terminate()
    assert server.wait() == 0
    home.server.popen.terminate()
    home.server.wait()
    home.database_url = database
    home.start_server()
    with Client(home.url, timeout_s=TRAINING_S) as client:
        after = client.run(run_id)
        assert (after.state, after.median_step_s, after.attempts) == ("succeeded", before.median_step_s, 1)
        assert client.result(run_id) == samples
        assert client.scaling(after.experiment_id).rows[0].step_s.median == pytest.approx(before.median_step_s)
