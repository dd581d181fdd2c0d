"""Faults of nodes and networks that a run outlives, or ends with an error that names the cause; the worker goes on."""

from __future__ import annotations

import contextlib
import datetime
import functools
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from gpt2core.node import host
from taskloom import Client
from tests.support.faketime import clock_of, library
from tests.support.patience import until
from tests.support.processes import House, short_leases, trainer_of
from tests.support.runs import check_books, ended, submit, training
from tests.support.wire import Message, Send, Wire

pytestmark = pytest.mark.slow
LEASE_S = 2.0
MEMORY_BYTES = 2_000_000_000  # of addresses: less than the arenas of LARGE, and enough to begin
LARGE = {"blas": "own", "batch": 4096, "seq": 64, "batch_slice": 4096, "token_slice": 64, "steps": 2}


@pytest.fixture
def server_settings() -> dict[str, float]:
    return short_leases(LEASE_S, heartbeat_s=0.4, reap_after_s=LEASE_S)


def test_a_truncated_result_file_is_a_failure_that_says_so(home: House, client: Client) -> None:
    worker = home.start_worker("truncated", "--once")
    run = ended(client, submit(client))
    assert run.error is not None
    assert (run.state, run.error["slug"]) == ("failed", "no-result")
    assert "differs from the one that the trainer reported" in run.error["detail"]
    assert worker.wait() == 1
    home.start_worker("quick")
    assert ended(client, submit(client)).state == "succeeded"


def test_a_truncated_entry_of_the_spool_is_set_aside(home: House, client: Client) -> None:
    home.spool.mkdir()
    (home.spool / "1.json").write_text('{"attempt_id": 1, "upl')
    home.start_worker("quick")
    assert ended(client, submit(client)).state == "succeeded"
    assert (home.spool / "refused/1.json").read_text() == '{"attempt_id": 1, "upl'
    check_books(home, 1)


def test_a_trainer_out_of_memory_is_a_failure_and_the_worker_goes_on(home: House, client: Client) -> None:
    worker = home.start_worker(None)
    worker.event("registered")
    process = psutil.Process(worker.popen.pid)
    process.rlimit(psutil.RLIMIT_AS, (MEMORY_BYTES, psutil.RLIM_INFINITY))
    run = ended(client, submit(client, **LARGE))
    assert run.error is not None
    assert (run.state, run.error["slug"]) == ("failed", "out-of-memory"), run.error
    process.rlimit(psutil.RLIMIT_AS, (psutil.RLIM_INFINITY, psutil.RLIM_INFINITY))
    assert ended(client, submit(client)).state == "succeeded"


@pytest.fixture
def small_group() -> Iterator[Path]:
    """The folder of a cgroup within this process's own, whose processes have 256 MiB of memory together."""
    group = host._cgroup_folders("memory")[0] / f"taskloom-{os.getpid()}"
    limits = [group / name for name in ("memory.max", "memory.limit_in_bytes")]
    with contextlib.suppress(OSError):
        group.mkdir()
    if not any(limit.exists() for limit in limits):
        pytest.skip("this system lets nobody limit the memory of a cgroup")
    next(limit for limit in limits if limit.exists()).write_text(str(256 << 20))
    yield group
    group.rmdir()


def test_a_trainer_that_linux_kills_for_its_cgroups_memory(small_group: Path, home: House, client: Client) -> None:
    worker = home.start_worker("greedy")
    worker.event("registered")
    (small_group / "cgroup.procs").write_text(str(worker.popen.pid))
    for _ in range(2):  # the worker goes on
        run = ended(client, submit(client))
        assert run.error is not None
        assert (run.state, run.error["slug"]) == ("failed", "out-of-memory"), run.error


def test_a_spool_that_becomes_read_only_does_not_cost_the_result(home: House, client: Client) -> None:
    gate = home.folder / "gate"
    # Permissions hold for root, too, without these capabilities.
    limited = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    worker = home.run(
        "worker", [*limited, *home.worker_command("gated")], FAKE_TRAINER="gated", FAKE_TRAINER_GATE=str(gate)
    )
    run_id = submit(client)
    training(client, run_id)
    home.spool.chmod(0o555)
    gate.touch()
    worker.event("spool-failed")
    run = ended(client, run_id)
    assert (run.state, run.attempts) == ("succeeded", 1)
    home.spool.chmod(0o755)
    assert ended(client, submit(client)).state == "succeeded"
    check_books(home, 2)


class Partition:
    """While it is open no message arrives; it loses at least one, however late a busy machine sends that."""

    def __init__(self) -> None:
        self.until = 0.0
        self.begun, self.lost = False, 0
        self._lock = threading.Lock()

    def begin(self, length_s: float) -> None:
        self.until, self.begun = time.monotonic() + length_s, True

    def __call__(self, message: Message, send: Send):
        if self.begun and (time.monotonic() < self.until or not self.lost):
            with self._lock:
                self.lost += 1
            return None
        return send(message)


@pytest.mark.parametrize("leases", [1.0, 2.0])
def test_a_partition_of_a_lease_costs_no_run_and_doubles_none(home: House, client: Client, leases: float) -> None:
    carry = Partition()
    with Wire(home.url, carry) as wire:
        _, gate = home.start_gated("apart", "--server", wire.url)
        run_id = submit(client)
        training(client, run_id)
        carry.begin(leases * LEASE_S)
        until(lambda: carry.lost > 0 and time.monotonic() > carry.until, "the end of the partition")
        gate.touch()
        run = ended(client, run_id)
    assert [(a.worker_id, a.state) for a in run.history if a.state == "succeeded"] == [("apart", "succeeded")]
    check_books(home, 1)


def test_a_worker_stopped_past_its_lease_while_another_takes_over(home: House, client: Client) -> None:
    first, first_gate = home.start_gated("first")
    run_id = submit(client)
    training(client, run_id)
    stopped = [psutil.Process(first.popen.pid), trainer_of(first)]
    for process in stopped:
        process.send_signal(signal.SIGSTOP)
    _, gate = home.start_gated("second")
    gate.touch()
    assert ended(client, run_id).history[-1].worker_id == "second"
    first_gate.touch()
    for process in stopped:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGCONT)
    until(lambda: [line for line in first.lines if "lease-lost" in line or "delivered" in line], "the first to hear")
    run = client.run(run_id)
    assert [(a.worker_id, a.state) for a in run.history if a.state == "succeeded"] == [("second", "succeeded")]
    check_books(home, 1)


JUMPS = ("+1h", "-2h", "+3d")


def changed(client: Client, run_id: int, expires_at: datetime.datetime) -> bool:
    return client.run(run_id).history[0].expires_at != expires_at


def test_a_servers_clock_that_jumps_takes_no_lease_away(home: House, client: Client) -> None:
    clock = home.folder / "clock"
    home.server.end()
    home.start_server(**clock_of(clock))
    worker, gate = home.start_gated("worker")
    run_id = submit(client)
    training(client, run_id)
    for offset in JUMPS:
        clock.write_text(f"{offset}\n")
        before = client.run(run_id).history[0].expires_at
        until(functools.partial(changed, client, run_id, before), "a heartbeat after the jump")
    gate.touch()
    worker.event("delivered")
    assert [a.state for a in ended(client, run_id).history] == ["succeeded"]
    check_books(home, 1)


def test_a_workers_clock_that_jumps_takes_no_lease_away(home: House, client: Client) -> None:
    clock = home.folder / "clock"
    jumping = clock_of(clock)
    worker, gate = home.start_gated("jumping", "--cores", str(min(os.sched_getaffinity(0))), **jumping)
    run_id = submit(client, threads=1)
    training(client, run_id)
    for offset in JUMPS:
        clock.write_text(f"{offset}\n")
        renewed = client.run(run_id).history[0].expires_at
        until(lambda: client.run(run_id).history[0].expires_at > renewed, "a heartbeat after the jump")  # noqa: B023
    gate.touch()
    worker.event("delivered")
    assert [a.state for a in ended(client, run_id).history] == ["succeeded"]
    check_books(home, 1)


@pytest.mark.parametrize(("server", "worker"), [("+0 x1.5", "+0 x0.7"), ("+0 x0.7", "+0 x1.5")])
def test_clocks_that_drift_apart_take_no_lease_away(home: House, client: Client, server: str, worker: str) -> None:
    def drifts(rate: str) -> dict[str, str]:
        return {"LD_PRELOAD": library(), "FAKETIME": rate, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}

    def renewed_often() -> bool:
        attempt = client.run(run_id).history[0]
        return (attempt.expires_at - attempt.claimed_at).total_seconds() > 2 * LEASE_S

    home.server.end()
    home.start_server(**drifts(server))
    process, gate = home.start_gated("worker", **drifts(worker))
    run_id = submit(client)
    training(client, run_id)
    until(renewed_often, "the lease to be renewed past its end")
    gate.touch()
    process.event("delivered")
    assert [a.state for a in ended(client, run_id).history] == ["succeeded"]
    check_books(home, 1)
