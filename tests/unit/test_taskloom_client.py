"""The Python SDK against a real HTTP server."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from gpt2core.spec.errors import ConfigError
from taskloom import Client, Problem, ServerUnreachable
from taskloom.contract.experiments import ExperimentRequest
from taskloom.errors import BadRequest, Conflict, Forbidden, NotUnderstood, TaskloomError
from tests.support.http_double import Script, scripted

EXPERIMENT = {
    "id": 3, "name": "", "state": "active", "runs": 1, "by_state": {"queued": 1}, "created_at": "2026-01-01T00:00:00Z",
    "request": {},
}  # fmt: skip


@pytest.fixture
def script() -> Iterator[Script]:
    with scripted() as found:
        yield found


@pytest.fixture
def client(script: Script) -> Iterator[Client]:
    with Client(script.url + "/", token="key") as made:
        yield made


def test_a_submission_has_a_key_of_its_own_unless_it_is_given_one(script: Script, client: Client) -> None:
    request = ExperimentRequest.model_validate({"base": {"threads": 2}})
    for key in (None, None, "mine"):
        script.answer(201, EXPERIMENT)
        assert client.submit(request, key).id == 3
    keys = [asked.headers["Idempotency-Key"] for asked in script.asked]
    assert len(set(keys)) == 3
    assert keys[2] == "mine"
    assert json.loads(script.asked[0].body) == {"base": {"threads": 2}}
    assert script.asked[0].headers["Authorization"] == "Bearer key"


def test_lists_are_followed_to_their_end(script: Script, client: Client) -> None:
    summary = {k: v for k, v in EXPERIMENT.items() if k != "request"}
    script.answer(200, {"items": [summary, summary], "next_cursor": "abc"})
    script.answer(200, {"items": [summary], "next_cursor": None})
    assert len(list(client.experiments())) == 3
    assert [asked.path for asked in script.asked] == ["/api/v1/experiments", "/api/v1/experiments?cursor=abc"]


def test_histories_and_alerts_are_lists(script: Script, client: Client) -> None:
    change = {
        "id": 1, "run_id": 7, "experiment_id": 3, "at": "2026-01-01T00:00:00Z", "verb": "submit", "state": "queued",
        "attempt_no": None, "attempt_state": None, "actor": "key:1", "reason": None,
    }  # fmt: skip
    alert = {
        "id": 1, "run_id": 7, "state": "suspected", "ratio": 1.1, "reason": "", "confirming_experiment_id": None,
        "raised_at": "2026-01-01T00:00:00Z", "changed_at": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    infers = {**alert, "mode": "infer"}
    for item, cursor in ((change, "abc"), (change, None), (change, None), (alert, None), (infers, None)):
        script.answer(200, {"items": [item], "next_cursor": cursor})
    assert [each.verb for each in client.run_changes(7)] == ["submit", "submit"]
    assert [each.actor for each in client.experiment_changes(3)] == ["key:1"]
    assert [(each.ratio, each.mode) for each in client.alerts("suspected")] == [(1.1, "train")]
    assert [each.mode for each in client.alerts(mode="infer")] == ["infer"]
    assert [asked.path.removeprefix("/api/v1") for asked in script.asked] == [
        "/runs/7/changes", "/runs/7/changes?cursor=abc", "/experiments/3/changes",
        "/analysis/alerts?state=suspected", "/analysis/alerts?mode=infer",
    ]  # fmt: skip


def test_an_analysis_without_rows_is_not_understood(script: Script, client: Client) -> None:
    script.answer(200, {"status": "ok"})
    with pytest.raises(NotUnderstood, match="/analysis/memory"):
        client.memory(3)


@pytest.mark.parametrize(
    ("status", "kind", "exit_code"),
    [
        (400, BadRequest, 2), (404, BadRequest, 2), (413, BadRequest, 2), (422, BadRequest, 2), (409, Conflict, 3),
        (401, Forbidden, 3), (403, Forbidden, 3), (500, Problem, 3), (503, Problem, 3),
    ],
)  # fmt: skip
def test_problems_are_errors_of_their_kind(
    script: Script, client: Client, status: int, kind: type[TaskloomError], exit_code: int
) -> None:
    script.answer(status, {"type": "/problems/x", "title": "T", "status": status, "detail": "No.", "current": "failed"})
    with pytest.raises(kind, match="T: No") as raised:
        client.run(1)
    assert type(raised.value) is kind
    assert raised.value.exit_code == exit_code
    assert raised.value.to_dict()["current"] == "failed"
    assert ("T: No; set TASKLOOM_TOKEN" in str(raised.value)) is (status == 401)


def test_a_problem_with_fields_names_them(script: Script, client: Client) -> None:
    errors = [{"pointer": "/base/threads", "field": "threads", "value": 0, "accepted": "1 or more"}]
    script.answer(422, {"type": "/problems/i", "title": "T", "status": 422, "detail": "d", "errors": errors})
    with pytest.raises(BadRequest, match="threads = 0 is not accepted: 1 or more"):
        client.run(1)


def test_what_is_no_taskloom_server_is_told_apart(script: Script, client: Client) -> None:
    script.answer(200, b"<html>\n<b>router\nlogin</b>\n</html>")
    script.answer(200, {"id": "x"})
    script.answer(502, b"<html>\nbad\ngateway</html>")
    script.answer(302, b"", Location="https://user:w0rd@login.invalid/x")
    with pytest.raises(NotUnderstood, match=r"/runs/1: it is no JSON: <html> <b>router login</b> </html>$"):
        client.run(1)
    with pytest.raises(NotUnderstood, match=r"/runs/1: id: Input should be a valid integer, unable[a-z ]+$"):
        client.run(1)
    with pytest.raises(Problem, match=r"^502 Bad Gateway: not from a Taskloom server: <html> bad gateway</html>$"):
        client.run(1)
    with pytest.raises(Problem, match=r"302 Found: .* leads to https://login.invalid/x: without content"):
        client.run(1)


@pytest.mark.parametrize("end", ["#/runs", "?view=runs", "/#"])
def test_the_address_of_a_page_is_none_of_a_server(script: Script, end: str) -> None:
    with pytest.raises(ServerUnreachable, match="a server's address has no "):
        Client(f"{script.url}/{end}")


@pytest.mark.parametrize(
    "server", ["http://127.0.0.1:9", "http://no-such-host.invalid", "nonsense", "http://[", "ftp://x"]
)
def test_no_server_is_said_with_its_address(server: str) -> None:
    with pytest.raises(ServerUnreachable) as raised, Client(server) as client:
        client.run(1)
    assert server in str(raised.value)
    assert raised.value.exit_code == 3


@pytest.mark.parametrize("token", ["wörong", "two words", "a\nb", "tab\t"])
def test_a_key_that_no_header_can_carry_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(ConfigError, match=r"token = .* is not accepted: a key alone") as raised:
        Client("http://127.0.0.1:9", token=token)
    assert token not in str(raised.value)


def test_the_address_comes_from_the_environment_if_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKLOOM_SERVER", "http://elsewhere:1/")
    with Client() as client:
        assert client.server == "http://elsewhere:1"
