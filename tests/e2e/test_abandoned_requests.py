"""Requests whose client has disconnected do not delay heartbeats or the end of the server."""

from __future__ import annotations

import contextlib
import json
import select
import signal
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from taskloom import Client
from tests.support.processes import house
from tests.support.runs import ended, submit, training

CONNECTIONS = 45
BEGUN_S = 2.0  # after this time the server has read all requests
LEASE_S = 10.0  # an agent gives up its run if it gets no answer for this long
STOPS_S = 25.0  # shorter than the stop timeouts in the shipped files for systemd and Compose


def abandon(url: str, head: str, body: bytes = b"") -> None:
    """Send CONNECTIONS requests at once, each on its own connection. Close the connections once the work has begun."""
    where = urlsplit(url)
    assert where.hostname
    lines = (head, f"Host: {where.netloc}", "Content-Type: application/json", f"Content-Length: {len(body)}", "", "")
    with contextlib.ExitStack() as open_ones:
        for _ in range(CONNECTIONS):
            connection = open_ones.enter_context(socket.create_connection((where.hostname, where.port or 80), 30))
            connection.sendall("\r\n".join(lines).encode() + body)
        select.select([connection], [], [], BEGUN_S)  # the answer to the last request is no longer needed


def dry_runs(url: str, of: int) -> None:
    """Send dry runs of 10,000 runs each, and abandon them. Their seeds differ for each `of`."""
    seeds = list(range(of * 10_000, of * 10_000 + 10_000))
    body = json.dumps({"base": {"model": "tiny"}, "axes": {"seed": seeds}}).encode()
    abandon(url, "POST /api/v1/experiments?dry_run=true HTTP/1.1", body)


@pytest.mark.slow
def test_control_goes_on_beside_requests_that_nobody_waits_for(tmp_path: Path, database_url: str) -> None:
    settings = {"heartbeat_s": 0.2, "lease_s": LEASE_S, "reap_every_s": 0.2}
    with house(tmp_path, database_url, **settings) as home, Client(home.url) as user:
        gate = tmp_path / "gate"
        home.start_worker("gated", FAKE_TRAINER_GATE=str(gate))
        run_id = submit(user)
        training(user, run_id)
        for of in range(3):
            dry_runs(home.url, of)
        gate.touch()
        assert ended(user, run_id).state == "succeeded"
        assert user.run(run_id).attempts == 1  # a delayed heartbeat would have lost the lease
        dry_runs(home.url, 3)
        home.server.popen.send_signal(signal.SIGTERM)
        assert home.server.popen.wait(STOPS_S) == 0
