"""Spools of real workers: results reach the server despite faults, and a spool belongs to one worker."""

from __future__ import annotations

import datetime
import shutil
import signal
import threading

import httpx
import psutil
import pytest

from taskloom import Client
from taskloom.worker.client import ServerClient
from taskloom.worker.delivery import Delivery
from taskloom.worker.execution import Verdict, upload
from taskloom.worker.report import Report
from taskloom.worker.spool import Entry, Spool
from tests.support.patience import DEADLINE_S, until
from tests.support.processes import House, trainer_of
from tests.support.runs import ended, submit, training
from tests.support.wire import Message, Send, Wire


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
    worker.popen.kill()  # another worker delivers the result
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
    home.server.popen.send_signal(signal.SIGSTOP)  # the server answers no request
    gate.touch()
    worker.event("finished")
    waiting = until(lambda: list(home.spool.glob("*.json")), "the result in the spool")
    text = waiting[0].read_text()
    home.server.popen.send_signal(signal.SIGCONT)
    worker.event("delivered")
    assert worker.popen.poll() is None
    worker.popen.send_signal(signal.SIGTERM)
    assert worker.wait() == 0
    waiting[0].write_text(text)  # as after a lost acknowledgement
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
        for _ in range(3):  # one heartbeat may have been in flight
            before = lease_end()
            until(lambda: lease_end() > before, "another beat")  # noqa: B023 (called at once)
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


@pytest.mark.slow
def test_two_workers_never_share_a_spool(home: House) -> None:
    home.start_worker().event("registered")
    second = home.start_worker()
    assert second.wait() == 2
    assert "another worker uses the spool" in second.log.read_text()


@pytest.mark.slow
def test_a_result_that_is_refused_is_set_aside_and_changes_nothing(home: House, client: Client) -> None:
    home.start_worker("gated", FAKE_TRAINER_GATE=str(home.folder / "gate"))
    run_id = submit(client, steps=4)
    attempt = training(client, run_id).history[-1]
    # Another result for this attempt: the server must not accept it.
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
    same = home.folder / "same"  # the same spool for the server; its lock is invisible, as on some network file systems
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
    until(lambda: "active with another spool" in second.log.read_text(), "what it waits for")
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
