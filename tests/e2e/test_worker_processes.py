"""A real server, a real worker and trainer processes: results that must arrive, and faults that must be survived."""

from __future__ import annotations

import datetime
import os
import shutil
import signal
import threading
from pathlib import Path

import httpx
import psutil
import pytest
from patience import DEADLINE_S, until
from processes import House, Process, gone
from runs import ended, submit, training
from wire import Message, Send, Wire

from taskloom import Client
from taskloom.contract.experiments import ExperimentRequest
from taskloom.worker.client import ServerClient
from taskloom.worker.delivery import Delivery
from taskloom.worker.execution import Verdict, upload
from taskloom.worker.report import Report
from taskloom.worker.spool import Entry, Spool


def trainer_of(worker: Process) -> psutil.Process:
    """The one child of a worker."""
    return until(psutil.Process(worker.popen.pid).children, "the trainer's process")[0]


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
    assert any("shared the measured ones" in warning for warning in result["warnings"])


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
    assert worker.wait(deadline_s=10) == 0  # far less than the long poll


@pytest.mark.slow
def test_a_second_sigterm_stops_a_worker_and_its_trainer_at_once(home: House, client: Client) -> None:
    worker = home.start_worker("stubborn")
    run_id = submit(client)
    training(client, run_id)
    trainer = trainer_of(worker)
    worker.popen.send_signal(signal.SIGTERM)
    worker.popen.send_signal(signal.SIGINT)  # another number, so that the two cannot become one
    assert worker.wait(deadline_s=9) == 1  # less than the grace that a trainer gets otherwise
    gone(trainer)


def test_a_result_outlives_a_server_that_is_gone(home: House, client: Client) -> None:
    gate = home.folder / "gate"
    worker = home.start_worker("gated", FAKE_TRAINER_GATE=str(gate))
    run_id = submit(client)
    training(client, run_id)
    home.server.popen.kill()
    home.server.wait()
    gate.touch()
    worker.event("finished")
    until(lambda: list(home.spool.glob("*.json")), "the result in the spool")
    worker.popen.kill()  # nor does it need the worker that made it
    worker.wait()
    home.start_server()
    assert client.run(run_id).state == "running"
    again = home.start_worker()
    assert again.event("delivered")["canonical"] is True
    assert (client.run(run_id).state, client.run(run_id).attempts) == ("succeeded", 1)
    until(lambda: not list(home.spool.glob("*.json")), "the spool to be emptied")


@pytest.mark.slow
def test_a_result_sent_twice_is_one_result(home: House, client: Client) -> None:
    gate = home.folder / "gate"
    worker = home.start_worker("gated", FAKE_TRAINER_GATE=str(gate))
    run_id = submit(client)
    training(client, run_id)
    home.server.popen.send_signal(signal.SIGSTOP)  # nothing it is sent is answered
    gate.touch()
    worker.event("finished")
    waiting = until(lambda: list(home.spool.glob("*.json")), "the result in the spool")
    text = waiting[0].read_text()
    home.server.popen.send_signal(signal.SIGCONT)
    worker.event("delivered")
    assert worker.popen.poll() is None
    worker.popen.send_signal(signal.SIGTERM)
    assert worker.wait() == 0
    waiting[0].write_text(text)  # as if the acknowledgement had been lost
    again = home.start_worker()
    assert again.event("delivered")["state"] == "succeeded"
    run = client.run(run_id)
    assert (run.state, run.attempts, len(run.history)) == ("succeeded", 1, 1)


@pytest.mark.slow
def test_a_lease_is_kept_while_its_result_is_on_its_way(home: House, client: Client) -> None:
    arrived, go_on = threading.Event(), threading.Event()

    def carry(message: Message, send: Send) -> httpx.Response:
        if message.path.endswith("/result"):
            arrived.set()
            go_on.wait(DEADLINE_S)
        return send(message)

    def lease_end() -> datetime.datetime:
        return client.run(run_id).history[0].expires_at

    run_id = submit(client)
    with Wire(home.url, carry) as wire:
        worker = home.start_worker("quick", "--server", wire.url)
        assert arrived.wait(DEADLINE_S)
        for _ in range(3):  # one beat may have been under way
            before = lease_end()
            until(lambda before=before: lease_end() > before, "another beat")
        go_on.set()
        assert worker.event("delivered")["canonical"] is True
        worker.end()


@pytest.mark.slow
def test_the_first_word_of_a_dead_worker_changes_nothing_when_it_comes_late(home: House, client: Client) -> None:
    arrived, go_on, answers = threading.Event(), threading.Event(), list[int]()

    def carry(message: Message, send: Send) -> httpx.Response:
        arrived.set()
        go_on.wait(DEADLINE_S)
        answers.append(send(message).status_code)
        return httpx.Response(500)

    with Wire(home.url, carry) as wire:
        dead = home.start_worker("quick", "--server", wire.url)
        assert arrived.wait(DEADLINE_S)
        dead.popen.kill()
        dead.wait()
        home.start_worker("quick").event("registered")
        go_on.set()
        until(lambda: answers, "the late registration's answer")
    assert answers == [409]
    assert ended(client, submit(client)).attempts == 1


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


@pytest.mark.slow
def test_two_workers_never_share_a_spool(home: House) -> None:
    home.start_worker().event("registered")
    second = home.start_worker()
    assert second.wait() == 2
    assert "another worker uses this spool" in second.log.read_text()


@pytest.mark.slow
def test_a_result_that_is_refused_is_set_aside_and_changes_nothing(home: House, client: Client) -> None:
    home.start_worker("gated", FAKE_TRAINER_GATE=str(home.folder / "gate"))
    run_id = submit(client, steps=4)
    attempt = training(client, run_id).history[-1]
    # Somebody else's result under this attempt: the server must not take it.
    foreign = ServerClient(home.url, None)
    spool = Spool(home.folder / "other")
    entry = Entry(attempt.id, upload("someone:0", attempt.attempt_no, Verdict("failed", None, {"slug": "x"})))
    spool.put(entry)
    Delivery(foreign, spool, lambda _: False, Report(as_json=False)).deliver_waiting()
    assert [path.name for path in (home.folder / "other/refused").iterdir()] == [f"{attempt.id}.json"]
    assert not list((home.folder / "other").glob("*.json"))
    assert client.run(run_id).state == "running"
    foreign.close()
    spool.close()
    again = home.start_worker("quick", "--resend", "--spool", str(home.folder / "other"), "--worker-id", "someone:0")
    assert (again.event("resending")["count"], again.wait()) == (1, 1)
    assert [path.name for path in (home.folder / "other/refused").iterdir()] == [f"{attempt.id}.json"]
    spool.close()
    (home.folder / "gate").touch()
    assert ended(client, run_id).state == "succeeded"


@pytest.mark.slow
def test_a_worker_that_was_replaced_kills_its_trainer_and_leaves(home: House, client: Client) -> None:
    old = home.start_worker("stubborn")
    run_id = submit(client)
    training(client, run_id)
    trainer = trainer_of(old)
    same = home.folder / "same"  # the same spool for the server; its lock is not seen, as on some network file systems
    same.mkdir()
    shutil.copy(home.spool / "id", same / "id")
    home.start_worker("quick", "--spool", str(same))
    old.event("lease-lost")
    assert not trainer.is_running()
    assert old.wait() == 3
    assert "/problems/stale-boot" in "".join(old.lines)
    assert (ended(client, run_id).state, client.run(run_id).attempts) == ("succeeded", 2)


@pytest.mark.slow
def test_a_worker_with_another_spool_waits_until_the_one_at_work_has_gone(home: House, client: Client) -> None:
    first = home.start_worker("gated", FAKE_TRAINER_GATE=str(home.folder / "gate"))
    run_id = submit(client)
    training(client, run_id)
    second = home.start_worker("quick", "--spool", str(home.folder / "other"))
    until(lambda: "at work with another spool" in second.log.read_text(), "what it waits for")
    assert "another --worker-id" in second.log.read_text()
    assert client.run(run_id).state == "running"
    (home.folder / "gate").touch()
    assert ended(client, run_id).attempts == 1
    first.popen.send_signal(signal.SIGTERM)
    assert first.wait() == 0
    second.event("registered")
    assert ended(client, submit(client)).state == "succeeded"


@pytest.mark.slow
def test_a_full_disk_does_not_cost_the_result(home: House, client: Client) -> None:
    gate = home.folder / "gate"
    worker = home.start_worker("gated", FAKE_TRAINER_GATE=str(gate))
    run_id = submit(client)
    training(client, run_id)
    limit_bytes = 1200  # less than the result, more than the log
    psutil.Process(worker.popen.pid).rlimit(psutil.RLIMIT_FSIZE, (limit_bytes, limit_bytes))
    gate.touch()
    worker.event("spool-failed")
    assert ended(client, run_id).state == "succeeded"


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


@pytest.mark.slow
def test_artifacts_wait_in_the_spool_for_the_server(home: House, client: Client) -> None:
    gate = home.folder / "gate"
    worker = home.start_worker("leaving", FAKE_TRAINER_GATE=str(gate))
    run_id = submit(client)
    attempt = training(client, run_id).history[-1]
    home.server.popen.kill()
    home.server.wait()
    gate.touch()
    worker.event("finished")
    until(lambda: list(home.spool.glob("*.json")), "the result in the spool")
    worker.popen.kill()
    worker.wait()
    waiting = home.spool / f"attempt-{attempt.id}" / "artifacts"
    assert (waiting / "trace.json.gz").exists()
    home.start_server()
    home.start_worker().event("delivered")
    assert client.run(run_id).state == "succeeded"
    assert [item.name for item in client.artifacts(run_id).items] == ["profile.json.gz", "trace.json.gz"]
    assert not waiting.exists()
