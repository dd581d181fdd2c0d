"""Workers that end by their walltime or because there are no runs, and the delivery of their results."""

from __future__ import annotations

import time

import pytest

from taskloom import Client
from taskloom.contract.experiments import ExperimentRequest
from tests.support.patience import until
from tests.support.processes import House, Process
from tests.support.runs import ended, submit, training


def test_a_worker_that_knows_its_end_takes_only_what_fits_and_leaves(home: House, client: Client) -> None:
    for timeout_s in (3600, 60):
        client.submit(ExperimentRequest.model_validate({"base": {"model": "tiny"}, "limits": {"timeout_s": timeout_s}}))
    worker = home.start_worker("quick", "--walltime", "2m")
    worker.event("delivered")
    assert (client.run(1).state, client.run(2).state) == ("queued", "succeeded")
    place = client.run(1).queue
    assert place is not None
    assert place.reason == "too-little-time"
    worker.popen.terminate()
    assert worker.wait() == 0
    worker = home.start_worker("quick", SLURM_JOB_END_TIME=str(int(time.time()) + 31))
    worker.event("walltime-over")
    assert worker.wait() == 0
    assert client.run(1).attempts == 0


def test_an_idle_worker_leaves_and_says_so(home: House, client: Client) -> None:
    run_id = submit(client)
    worker = home.start_worker("quick", "--idle-exit", "2s")
    worker.event("delivered")
    worker.event("idle")
    assert worker.wait() == 0
    assert client.run(run_id).state == "succeeded"
    assert [item.left_at is not None for item in client.workers()] == [True]


def test_workers_leave_no_temporary_folders(home: House, client: Client) -> None:
    first = home.start_worker("gated", FAKE_TRAINER_GATE=str(home.folder / "gate"))
    run_id = submit(client)
    training(client, run_id)
    (left,) = home.temporary.iterdir()
    first.popen.kill()
    first.wait()
    assert left.exists()
    second = home.start_worker("quick")
    assert ended(client, run_id).attempts == 2
    assert not left.exists()
    second.popen.terminate()
    assert second.wait() == 0
    assert list(home.temporary.iterdir()) == []


@pytest.mark.slow
def test_an_idle_worker_leaves_a_server_that_does_not_answer_and_says_why(home: House) -> None:
    home.server.popen.kill()
    home.server.wait()
    worker = home.start_worker("quick", "--idle-exit", "1s")
    assert "refused" in worker.event("gave-up")["reason"]
    assert worker.wait() == 0


@pytest.mark.slow
def test_a_result_that_a_worker_on_other_cores_left_behind_is_delivered(home: House, client: Client) -> None:
    """Slurm jobs on a shared node get other cores each time, and therefore their workers have other spools."""
    spools = home.folder / "taskloom/spool"

    def start(worker_id: str, trainer: str = "quick", **environment: str) -> Process:
        options = ("--worker-id", worker_id, "--spool", str(spools / worker_id))
        return home.start_worker(trainer, *options, XDG_STATE_HOME=str(home.folder), **environment)

    gate = home.folder / "gate"
    first = start("n:0", "leaving", FAKE_TRAINER_GATE=str(gate))
    run_id = submit(client)
    training(client, run_id)
    home.server.popen.kill()
    home.server.wait()
    gate.touch()
    first.event("finished")
    until(lambda: list((spools / "n:0").glob("*.json")), "the result in the spool")
    first.popen.kill()
    first.wait()
    home.start_server()
    second = start("n:1")
    second.event("adopted")
    second.event("delivered")
    assert client.run(run_id).state == "succeeded"
    assert not list((spools / "n:0").glob("*.json"))
