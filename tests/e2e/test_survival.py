"""Every run gets exactly one result despite killed and stopped processes, a crashed database and lost messages."""

from __future__ import annotations

import datetime
import os
import signal
import subprocess
from pathlib import Path

import httpx
import pytest

from taskloom import Client
from taskloom.contract.attempts import AttemptSummary
from tests.support.faketime import library
from tests.support.patience import DEADLINE_S, until
from tests.support.postgres_server import Postgres
from tests.support.processes import House, Process, short_leases
from tests.support.runs import check_books, ended, submit, submit_many, succeeded, training
from tests.support.wire import LoseOneAnswer, Unreliable, Wire

pytestmark = [pytest.mark.both_databases, pytest.mark.slow]
LEASE_S = 1.5


@pytest.fixture
def lease_s() -> float:
    """Length of a lease: a few seconds, unless a test sets another."""
    return LEASE_S


@pytest.fixture
def server_settings(lease_s: float) -> dict[str, float]:
    return short_leases(lease_s, heartbeat_s=0.3, reap_after_s=LEASE_S)


def lost(client: Client, run_id: int) -> None:
    until(lambda: client.run(run_id).history[0].state == "lost", "the first attempt to be lost")


def kill(process: Process) -> None:
    process.popen.kill()
    process.wait()


@pytest.mark.on_sqlite  # test_attempts_api.py has what the databases do
def test_a_worker_killed_for_good_costs_an_attempt_and_no_run(home: House, client: Client) -> None:
    first, first_gate = home.start_gated("first")
    run_id = submit(client)
    training(client, run_id)
    kill(first)
    _, gate = home.start_gated("second")
    gate.touch()
    run = ended(client, run_id)
    assert [(a.worker_id, a.state) for a in run.history] == [("first", "lost"), ("second", "succeeded")]
    first_gate.touch()  # ends the trainer of the killed worker
    check_books(home, 1)


@pytest.mark.on_sqlite  # what the worker does
def test_a_worker_stopped_past_its_lease_goes_on_if_nobody_took_its_run(home: House, client: Client) -> None:
    worker, gate = home.start_gated("only")
    run_id = submit(client)
    training(client, run_id)
    worker.popen.send_signal(signal.SIGSTOP)
    lost(client, run_id)
    gate.touch()
    worker.popen.send_signal(signal.SIGCONT)
    run = ended(client, run_id)
    assert [a.state for a in run.history] == ["succeeded"]
    check_books(home, 1)


@pytest.mark.on_sqlite
def test_a_worker_stopped_past_its_lease_changes_nothing_once_its_run_was_taken(home: House, client: Client) -> None:
    first, first_gate = home.start_gated("first")
    run_id = submit(client)
    training(client, run_id)
    first.popen.send_signal(signal.SIGSTOP)
    lost(client, run_id)
    _, gate = home.start_gated("second")
    training(client, run_id, attempts=2)
    first_gate.touch()  # its trainer delivers a result now, too late
    first.popen.send_signal(signal.SIGCONT)
    until(lambda: [line for line in first.lines if "lease-lost" in line or "delivered" in line], "the first to hear")
    assert client.run(run_id).state == "running"
    gate.touch()
    run = ended(client, run_id)
    assert [a.worker_id for a in run.history] == ["first", "second"]
    assert run.history[0].state in ("lost", "superseded")
    check_books(home, 1)


@pytest.mark.on_sqlite  # below, servers are killed on both databases
def test_a_server_killed_between_result_and_acknowledgement(home: House, client: Client) -> None:
    run_id = submit(client)
    carry = LoseOneAnswer("PUT", "/result", 200, then=lambda: kill(home.server))
    with Wire(home.url, carry) as wire:
        worker = home.start_worker("quick", "--server", wire.url)
        assert carry.lost.wait(DEADLINE_S)
        assert list(home.spool.glob("*.json"))
        home.start_server()
        worker.event("delivered")
        assert ended(client, run_id).attempts == 1
        assert not list(home.spool.glob("*.json"))
        assert home.start_worker("quick", "--worker-id", "other", "--spool", str(home.folder / "o")).event("registered")
        worker.end()
    check_books(home, 1)


@pytest.mark.on_sqlite
@pytest.mark.parametrize("lease_s", [60.0])  # longer than a server needs to start on a busy machine
def test_a_server_killed_between_claim_and_answer(home: House, client: Client) -> None:
    run_id = submit(client)
    carry = LoseOneAnswer("POST", "/leases", 201, then=lambda: kill(home.server))
    with Wire(home.url, carry) as wire:
        worker = home.start_worker("quick", "--server", wire.url)
        assert carry.lost.wait(DEADLINE_S)
        home.start_server()
        assert ended(client, run_id).attempts == 1  # the claim existed: the worker got the same lease again
        worker.end()
    check_books(home, 1)


def test_many_claimers_execute_every_run_once(home: House, client: Client, database_kind: str) -> None:
    servers = [home.url] if database_kind == "sqlite" else [home.url, home.start_another_server()]
    experiment = submit_many(client, 40)  # bench.server has 500 on 10,000
    fleet = home.start_fleet(20, *servers)
    succeeded(client, experiment, 40)
    fleet.popen.send_signal(signal.SIGTERM)
    assert fleet.wait() == 0
    check_books(home, 40)


def test_servers_killed_while_workers_claim_and_deliver(home: House, client: Client) -> None:
    experiment = submit_many(client, 30)
    fleet = home.start_fleet(10)
    for done in (8, 18):
        succeeded(client, experiment, done)
        kill(home.server)
        home.start_server()
    succeeded(client, experiment, 30)
    fleet.popen.send_signal(signal.SIGTERM)
    assert fleet.wait() == 0
    check_books(home, 30)


@pytest.mark.on_postgres
def test_a_database_that_crashes_under_load(home: House, client: Client, postgres: Postgres) -> None:
    experiment = submit_many(client, 40)
    fleet = home.start_fleet(10)
    for done in (8, 20):
        succeeded(client, experiment, done)
        postgres.crash()
        try:
            answers = [httpx.get(home.url + path) for path in ("/api/v1/runs", "/readyz", "/metrics", "/healthz")]
        finally:
            postgres.start()
        assert [answer.status_code for answer in answers] == [503, 503, 503, 200]
        assert answers[0].json()["type"] == "/problems/database-unavailable"
    succeeded(client, experiment, 40)
    fleet.popen.send_signal(signal.SIGTERM)
    assert fleet.wait() == 0
    assert home.server.popen.poll() is None
    printed = "".join(fleet.lines) + fleet.log.read_text()
    assert "status 503" in printed
    assert "status 500" not in printed
    check_books(home, 40)


def test_messages_that_come_late_twice_and_out_of_order(home: House, client: Client) -> None:
    experiment = submit_many(client, 30)
    carry = Unreliable(seed=7, longest_s=0.1)
    with Wire(home.url, carry) as wire:
        fleet = home.start_fleet(10, wire.url)
        succeeded(client, experiment, 30)
        fleet.popen.send_signal(signal.SIGTERM)
        assert fleet.wait() == 0
        carry.settle()
    assert len(carry.repeated) > 15
    assert max(carry.repeated) < 500
    until(lambda: not client.experiment(experiment).by_state.get("leased"), "repeated claims to run out")
    check_books(home, 30)


@pytest.mark.on_sqlite  # what the worker does
def test_a_full_disk_while_the_server_is_gone(home: House, client: Client) -> None:
    disk, gate = home.folder / "disk", home.folder / "gate"
    disk.mkdir()
    mounting = 'mount -t tmpfs -o size=64k taskloom "$0" && exec "$@"'
    alone = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mounting, str(disk)]
    if subprocess.run([*alone, "true"], check=False).returncode != 0:
        pytest.skip("this system lets nobody mount a small disk")
    command = home.worker_command("gated", "--spool", str(disk))
    worker = home.run("worker", [*alone, *command], FAKE_TRAINER="gated", FAKE_TRAINER_GATE=str(gate))
    run_id = submit(client, steps=200)  # its result does not fit beside the trainer's note
    training(client, run_id)
    seen = Path(f"/proc/{worker.popen.pid}/root{disk}")  # the disk as the worker sees it
    with pytest.raises(OSError, match="No space left"):
        (seen / "filler").write_bytes(bytes(1 << 20))
    kill(home.server)
    gate.touch()
    worker.event("spool-failed")
    assert "No space left" in worker.log.read_text()
    home.start_server()
    worker.event("delivered")
    assert ended(client, run_id).attempts == 1
    (seen / "filler").unlink()
    assert ended(client, submit(client)).state == "succeeded"
    assert "".join(worker.lines).count("spool-failed") == 1
    check_books(home, 2)


@pytest.mark.on_sqlite  # what the worker does
@pytest.mark.parametrize("lease_s", [6.0])  # heartbeats may be late by a quarter of it on a busy machine
def test_workers_whose_clocks_are_wrong_keep_their_leases(home: House, client: Client, lease_s: float) -> None:
    cores = sorted(os.sched_getaffinity(0))
    skewed = {2: home.start_gated("fast", "--cores", str(cores[0]), **clock(2))}
    skewed[-2] = home.start_gated("slow", "--cores", str(cores[-1]), **clock(-2))
    run_ids = [submit(client, threads=1) for _ in skewed]
    for run_id in run_ids:
        training(client, run_id)
    for run_id in run_ids:
        outlives_its_lease(client, run_id, lease_s)
    for skew_h, (worker, gate) in skewed.items():
        gate.touch()
        logged_at = datetime.datetime.fromisoformat(worker.log.read_text().split()[0])
        assert abs((logged_at - now()).total_seconds() - 3600 * skew_h) < 600  # the clock was indeed wrong
    for run_id in run_ids:
        (attempt,) = ended(client, run_id).history
        assert attempt.state == "succeeded"
        assert abs((now() - attempt.claimed_at).total_seconds()) < 600
    check_books(home, 2)


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


@pytest.mark.on_postgres
def test_a_server_whose_clock_is_wrong_takes_no_lease_away(home: House, client: Client) -> None:
    url = home.start_another_server(**clock(+2))
    _, gate = home.start_gated("worker", "--server", url)
    run_id = submit(client)
    training(client, run_id)
    outlives_its_lease(client, run_id)
    gate.touch()
    assert [a.state for a in ended(client, run_id).history] == ["succeeded"]
    check_books(home, 1)


def clock(skew_h: int) -> dict[str, str]:
    """Environment of a process whose clock is wrong by an offset."""
    return {"LD_PRELOAD": library(), "FAKETIME": f"{skew_h:+d}h", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


def outlives_its_lease(client: Client, run_id: int, lease_s: float = LEASE_S) -> None:
    def expires_late(attempt: AttemptSummary) -> bool:
        return (attempt.expires_at - attempt.claimed_at).total_seconds() > 2 * lease_s

    until(lambda: expires_late(client.run(run_id).history[0]), "the lease to be renewed past its first end")
