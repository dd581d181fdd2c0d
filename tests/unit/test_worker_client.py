"""The worker's client against a real HTTP server."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from taskloom.contract.attempts import LeaseRequest, Progress, ResultUpload
from taskloom.contract.retry import RETRIED_STATUSES, Refused, Unreachable
from taskloom.contract.workers import WorkerRegistration
from taskloom.worker.client import ANSWER_S, ServerClient
from tests.support.http_double import Script, scripted

CLAIM = LeaseRequest(worker_id="n:0", boot_id="b", wait_s=0)
LEASE = {
    "attempt_id": 5, "attempt_no": 2, "run_id": 7, "experiment_id": 1, "spec": {"steps": 3}, "lease_s": 60,
    "heartbeat_s": 15, "expires_at": "2026-01-01T00:00:00Z", "deadline_at": "2026-01-01T01:00:00Z", "deadline_s": 3600,
}  # fmt: skip

UPLOAD = ResultUpload(worker_id="n:0", attempt_no=2, outcome="failed", sha256="0" * 64, payload="{}")


@pytest.fixture
def script() -> Iterator[Script]:
    with scripted() as found:
        yield found


@pytest.fixture
def client(script: Script) -> Iterator[ServerClient]:
    made = ServerClient(script.url, token="key")
    yield made
    made.close()


def test_a_claim_is_a_lease_or_nothing(script: Script, client: ServerClient) -> None:
    script.answer(204)
    script.answer(201, LEASE)
    assert client.claim(CLAIM) is None
    lease = client.claim(CLAIM)
    assert lease is not None
    assert (lease.attempt_id, lease.attempt_no) == (5, 2)
    assert script.asked[0].path == "/api/v1/leases"
    assert script.asked[0].headers["Authorization"] == "Bearer key"
    assert json.loads(script.asked[0].body)["wait_s"] == 0


def test_a_heartbeat_carries_progress_and_hears_of_a_cancellation(script: Script, client: ServerClient) -> None:
    script.answer(200, {"cancel": True, "expires_at": "2026-01-01T00:00:00Z"})
    answer = client.heartbeat(5, "n:0", 2, Progress(stage="training", step=3, steps=9, loss=4.5))
    assert answer.cancel is True
    assert script.asked[0].path == "/api/v1/attempts/5/heartbeat"
    assert json.loads(script.asked[0].body)["progress"]["loss"] == 4.5


@pytest.mark.parametrize("status", sorted(RETRIED_STATUSES))
def test_a_server_that_is_down_or_busy_is_worth_another_try(script: Script, client: ServerClient, status: int) -> None:
    script.answer(status, b"<html>", Retry_After="3")
    with pytest.raises(Unreachable) as raised:
        client.claim(CLAIM)
    assert raised.value.retry_after_s == 3.0


PROBLEM = {"type": "/problems/lease-lost", "title": "Lease is lost", "detail": "It is gone."}


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 409, 413, 422])
def test_a_problem_of_the_server_is_its_answer(script: Script, client: ServerClient, status: int) -> None:
    script.answer(status, PROBLEM, Content_Type="application/problem+json; charset=utf-8")
    with pytest.raises(Refused) as raised:
        client.claim(CLAIM)
    assert raised.value.status == status
    assert raised.value.problem["type"] == "/problems/lease-lost"
    assert ("It is gone; set TASKLOOM_TOKEN" in str(raised.value)) is (status == 401)


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 405, 409, 410, 413, 422])
@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"\xff<html>nothing here</html>", "text/html"),
        (PROBLEM, "application/json"),
        ({**PROBLEM, "type": "about:blank"}, "application/problem+json"),
        ({**PROBLEM, "type": "https://proxy.example/blocked"}, "application/problem+json"),
        ([1], "application/problem+json"),
        (b"{", "application/problem+json"),
    ],
)
def test_what_another_than_the_server_says_is_worth_another_try(
    script: Script, client: ServerClient, status: int, body: Any, kind: str
) -> None:
    script.answer(status, body, Content_Type=kind)
    with pytest.raises(Unreachable, match="not from a Taskloom server"):
        client.deliver(5, UPLOAD)


@pytest.mark.parametrize("body", [b"<html>welcome to the hotel's network</html>", {"state": 1}, []])
def test_a_success_that_cannot_be_read_is_worth_another_try(script: Script, client: ServerClient, body: Any) -> None:
    script.answer(200, body)
    with pytest.raises(Unreachable, match="not understood"):
        client.deliver(5, UPLOAD)


def test_what_a_newer_server_says_besides_is_left_aside(script: Script, client: ServerClient) -> None:
    script.answer(201, {**LEASE, "carbon_g": 3})
    script.answer(200, {"cancel": False, "expires_at": "2026-01-01T00:00:00Z", "pause_s": 1})
    script.answer(200, {"attempt_id": 5, "state": "failed", "canonical": True, "archived": True})
    lease = client.claim(CLAIM)
    assert lease is not None
    assert lease.attempt_id == 5
    assert not client.heartbeat(5, "n:0", 2, Progress()).cancel
    assert client.deliver(5, UPLOAD).canonical


def test_nobody_listening_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    client = ServerClient(f"http://127.0.0.1:{port}", None)
    with pytest.raises(Unreachable, match=str(port)):
        client.claim(CLAIM)
    client.close()


def test_a_beat_is_not_waited_for_as_long_as_other_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taskloom.worker.client.BEAT_ANSWER_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = ServerClient(f"http://127.0.0.1:{silent.getsockname()[1]}", None)
        asked_at = time.monotonic()
        with pytest.raises(Unreachable):
            client.heartbeat(5, "n:0", 1, Progress())
        assert time.monotonic() - asked_at < ANSWER_S / 2
        client.close()


def test_a_result_is_put_under_its_attempt(script: Script, client: ServerClient) -> None:
    script.answer(200, {"attempt_id": 5, "state": "succeeded", "canonical": True})
    upload = ResultUpload(worker_id="n:0", attempt_no=2, outcome="succeeded", sha256="a" * 64, payload="{}")
    assert client.deliver(5, upload).canonical is True
    asked = script.asked[0]
    assert (asked.method, asked.path) == ("PUT", "/api/v1/attempts/5/result")
    assert json.loads(asked.body) == upload.model_dump()


REGISTRATION = WorkerRegistration(
    worker_id="n:0", boot_id="b", spool_id="s", node="n", cores=[0], memory_bytes=1 << 30, labels={"a": "b"}
)


def test_a_worker_waits_while_another_spool_is_at_work_under_its_id(script: Script, client: ServerClient) -> None:
    refusal = {"type": "/problems/worker-elsewhere", "title": "Worker is active elsewhere", "detail": "why"}
    script.answer(409, refusal, Content_Type="application/problem+json")
    with pytest.raises(Unreachable, match="Worker is active elsewhere: why"):
        client.register(REGISTRATION)
