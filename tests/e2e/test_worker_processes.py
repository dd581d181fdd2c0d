"""Real server, worker and trainer processes: runs end with the right outcome, and processes stop."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from taskloom import Client
from taskloom.contract.experiments import ExperimentRequest
from tests.support.patience import until
from tests.support.processes import House, gone, trainer_of
from tests.support.runs import ended, submit, training


def test_a_submitted_run_gets_its_result(home: House, client: Client) -> None:
    home.start_worker()
    run_id = submit(client, scheduler="fork-join", threads=1)
    run = ended(client, run_id)
    assert (run.state, run.attempts, run.error) == ("succeeded", 1, None)
    assert [s.loss for s in client.samples(run_id).items] == [5.5, 5.4, 5.3, 5.2]
    until(lambda: not list(home.spool.glob("*.json")), "the spool to be emptied")


def test_the_trainer_is_pinned_before_it_starts(home: House, client: Client) -> None:
    core = max(os.sched_getaffinity(0))
    home.start_worker("quick", "--cores", str(core))
    run_id = submit(client, threads=1)
    ended(client, run_id)
    result = client.result(run_id)
    assert result["config"]["cores"] == [core]
    assert [thread["observed_cores"] for thread in result["threads"]] == [[core]]
    about = result["worker"]
    assert about["agent_shared_measured_cores"] is (os.sched_getaffinity(0) == {core})
    assert core not in about["agent_cores"] or about["agent_shared_measured_cores"]


@pytest.mark.slow
def test_an_agent_without_a_core_to_itself_says_so(home: House, client: Client) -> None:
    home.start_worker()
    run_id = submit(client, threads=len(os.sched_getaffinity(0)))
    ended(client, run_id)
    result = client.result(run_id)
    assert result["worker"]["agent_shared_measured_cores"] is True
    assert any("shared the measured cores" in warning for warning in result["warnings"])


@pytest.mark.slow
def test_once_executes_one_run_and_its_exit_code_tells_how(home: House, client: Client) -> None:
    first, second = submit(client), submit(client)
    assert home.start_worker("quick", "--once").wait() == 0
    assert (client.run(first).state, client.run(second).state) == ("succeeded", "queued")
    assert home.start_worker("crash", "--once").wait() == 1
    assert client.run(second).state == "failed"


def test_a_crash_is_a_failure_with_the_last_output(home: House, client: Client) -> None:
    home.start_worker("crash")
    run = ended(client, submit(client))
    assert run.state == "failed"
    assert run.error is not None
    assert (run.error["slug"], run.error["exit_code"]) == ("exit-status", 3)
    assert run.error["output"] == ["the reactor is melting"]


@pytest.mark.slow
def test_a_killed_trainer_is_a_failure_and_the_worker_goes_on(home: House, client: Client) -> None:
    worker = home.start_worker("gated", FAKE_TRAINER_GATE=str(home.folder / "gate"))
    run_id = submit(client)
    training(client, run_id)
    trainer_of(worker).send_signal(signal.SIGKILL)
    run = ended(client, run_id)
    assert run.state == "failed"
    assert run.error is not None
    assert (run.error["slug"], run.error["signal"]) == ("killed", "SIGKILL")
    (home.folder / "gate").touch()
    assert ended(client, submit(client)).state == "succeeded"


def test_a_running_run_is_cancelled(home: House, client: Client) -> None:
    worker = home.start_worker("obedient")
    run_id = submit(client)
    training(client, run_id)
    trainer = trainer_of(worker)
    client.cancel_run(run_id)
    run = ended(client, run_id)
    assert run.state == "cancelled"
    assert not trainer.is_running()
    assert run.error is not None
    assert run.error["slug"] == "cancelled"


@pytest.mark.slow
def test_a_trainer_past_its_deadline_is_killed_though_it_takes_no_notice(home: House, client: Client) -> None:
    home.start_worker("stubborn", FAKE_GRACE_S="0.5")
    request = {"base": {"model": "tiny", "seq": 16}, "limits": {"timeout_s": 1.0}}
    experiment = client.submit(ExperimentRequest.model_validate(request))
    run = ended(client, next(iter(client.runs(experiment.id))).id)
    assert run.state == "failed"
    assert run.error is not None
    assert (run.error["slug"], run.error["signal"]) == ("timeout", "SIGKILL")


def test_sigterm_finishes_the_current_run_and_takes_no_other(home: House, client: Client) -> None:
    gate = home.folder / "gate"
    worker = home.start_worker("gated", FAKE_TRAINER_GATE=str(gate))
    first, second = submit(client), submit(client)
    training(client, first)
    worker.popen.send_signal(signal.SIGTERM)
    gate.touch()
    assert worker.wait() == 0
    assert (client.run(first).state, client.run(second).state) == ("succeeded", "queued")


@pytest.mark.slow
def test_sigterm_hands_the_current_run_back_where_asked_to(home: House, client: Client) -> None:
    worker = home.start_worker("obedient", "--drain", "release")
    run_id = submit(client)
    training(client, run_id)
    worker.popen.send_signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert client.run(run_id).state == "queued"
    home.start_worker("quick")
    assert ended(client, run_id).attempts == 2


def test_an_idle_worker_stops_at_once(home: House) -> None:
    worker = home.start_worker()
    worker.event("registered")
    worker.popen.send_signal(signal.SIGTERM)
    assert worker.wait(deadline_s=20) == 0  # sooner than a long poll ends


@pytest.mark.slow
def test_a_second_sigterm_stops_a_worker_and_its_trainer_at_once(home: House, client: Client) -> None:
    worker = home.start_worker("stubborn", "--grace", "10m")
    run_id = submit(client)
    training(client, run_id)
    trainer = trainer_of(worker)
    worker.popen.send_signal(signal.SIGTERM)
    worker.popen.send_signal(signal.SIGINT)  # another signal, since two equal ones may merge
    assert worker.wait() == 1  # sooner than its trainer's grace period
    gone(trainer)


def test_a_trainer_ends_with_its_worker_however_that_ends(home: House, client: Client) -> None:
    worker = home.start_worker(None)
    run_id = submit(client, steps=10_000_000, threads=1)
    training(client, run_id)
    trainer = trainer_of(worker)
    worker.popen.kill()
    gone(trainer)


@pytest.mark.slow
def test_a_trainer_left_by_a_killed_worker_is_ended_before_the_next_claim(home: House, client: Client) -> None:
    worker = home.start_worker("stubborn")
    run_id = submit(client)
    training(client, run_id)
    trainer = trainer_of(worker)
    worker.popen.kill()
    worker.wait()
    assert trainer.is_running()
    again = home.start_worker("quick")
    again.event("orphan-killed")
    assert ended(client, run_id).attempts == 2
    gone(trainer)


def test_names_of_files_stay_names_and_never_leave_the_root(home: House, client: Client, tmp_path: Path) -> None:
    root = tmp_path / "data"
    root.mkdir()
    (root / "corpus.bin").write_bytes(b"tokens")
    (tmp_path / "secret.bin").write_bytes(b"secret")
    (root / "escape.bin").symlink_to(tmp_path / "secret.bin")
    home.start_worker("quick", "--data-root", str(root))
    allowed = submit(client, data="corpus.bin")
    assert ended(client, allowed).state == "succeeded"
    assert client.result(allowed)["config"]["data"] == "corpus.bin"
    escaped = ended(client, submit(client, data="escape.bin"))
    assert escaped.state == "failed"
    assert escaped.error is not None
    assert (escaped.error["slug"], escaped.error["field"]) == ("refused-name", "data")


def test_what_a_trainer_leaves_is_there_when_its_run_has_succeeded(home: House, client: Client, tmp_path: Path) -> None:
    worker = home.start_worker("leaving")
    run_id = submit(client)
    assert ended(client, run_id).state == "succeeded"
    found = {item.name: item for item in client.artifacts(run_id).items}
    assert {name: item.media_type for name, item in found.items()} == dict.fromkeys(
        ("profile.json.gz", "trace.json.gz"), "application/gzip"
    )
    target = tmp_path / "trace.json.gz"
    client.download_artifact(run_id, "trace.json.gz", target)
    assert target.read_bytes() == b"trace" * 100_000
    assert worker.event("artifact-refused")["name"] == "no name.txt"
    worker.event("delivered")
    assert not list(home.spool.glob("attempt-*"))
    assert [path.read_bytes() for path in (home.spool / "refused").iterdir()] == [b"refused"]
