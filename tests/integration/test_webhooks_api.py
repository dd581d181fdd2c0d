"""Webhooks with local receivers that accept, fail, hang, and get repeated messages."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from taskloom.contract.webhooks import is_genuine
from taskloom.server.webhooks import subscriptions
from tests.support.patience import DEADLINE_S, until

pytestmark = pytest.mark.both_databases


@dataclass
class Receiver:
    """A receiver of webhooks that stores requests. statuses: of its next answers, None to hang; later ones are 204."""

    url: str
    statuses: list[int | None] = field(default_factory=list)
    heard: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def deliveries(self) -> list[str]:
        return [headers["Taskloom-Delivery"] for headers, _ in self.heard]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = found.statuses.pop(0) if found.statuses else 204
            found.heard.append((dict(self.headers), body))
            if status is None:
                found.over.wait(DEADLINE_S)
                return
            self.send_response(status)
            self.send_header("Location", found.url)
            self.end_headers()

        def do_GET(self) -> None:  # the target of a redirect
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    found = Receiver(f"http://127.0.0.1:{server.server_port}/hooks")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield found
    found.over.set()
    server.shutdown()
    thread.join()
    server.server_close()


def settings(receiver: Receiver, **more: Any) -> dict[str, Any]:
    quick = {"keep_verdicts": True, "poll_s": 0.02, "webhook_retry_s": 0.01}
    return {"webhook_targets": receiver.url, **quick, **more}


def hook(api: Any, receiver: Receiver, *events: str) -> Any:
    return api.post("/webhooks", {"url": f"{receiver.url}/ci", "events": list(events or ("verdict", "alert"))}, 201)


def run_one(api: Any, make_result: Any, **request: Any) -> int:
    made = api.submit(base={"model": "tiny"}, **request)
    node = api.worker()
    node.upload(node.claim(), make_result())
    return int(made["id"])


def states(api: Any, webhook_id: int) -> list[str]:
    return [item["state"] for item in api.get(f"/webhooks/{webhook_id}/deliveries")["items"]]


def test_a_verdict_is_sent_once_and_signed(start_server, receiver, make_result):
    first = start_server(**settings(receiver))
    start_server(**settings(receiver))  # another server on this database sends messages too
    made = hook(first, receiver, "verdict")
    experiment_id = run_one(first, make_result, name="which?", tags=["ci"])
    until(lambda: states(first, made["id"]) == ["delivered"])
    ((headers, body),) = receiver.heard
    message = json.loads(body)
    assert (message["event"], headers["Taskloom-Event"]) == ("verdict", "verdict")
    sent = message["experiment"]
    assert (sent["id"], sent["name"], sent["tags"], sent["state"]) == (experiment_id, "which?", ["ci"], "finished")
    assert sent["verdict"]["verdict"] == "none"
    assert is_genuine(made["secret"], headers["Taskloom-Signature"], body)
    assert not is_genuine(made["secret"], headers["Taskloom-Signature"], body + b" ")
    assert not is_genuine("another", headers["Taskloom-Signature"], body)
    assert first.get("/webhooks")["items"] == [{k: v for k, v in made.items() if k != "secret"}]


@pytest.mark.parametrize("failure", [500, 404, 302])
def test_what_a_receiver_does_not_take_is_sent_again(start_server, receiver, make_result, failure):
    receiver.statuses = [failure, failure]
    api = start_server(**settings(receiver))
    made = hook(api, receiver)
    run_one(api, make_result)
    until(lambda: states(api, made["id"]) == ["delivered"])
    assert receiver.deliveries() == ["1", "1", "1"]
    (delivery,) = api.get(f"/webhooks/{made['id']}/deliveries")["items"]
    assert (delivery["tries"], delivery["status"], delivery["error"], delivery["next_at"]) == (3, 204, None, None)


def test_a_receiver_that_hangs_is_tried_again_and_keeps_nobody_waiting(start_server, receiver, make_result):
    receiver.statuses = [None]
    api = start_server(**settings(receiver, webhook_timeout_s=0.5))
    made = hook(api, receiver)
    run_one(api, make_result)
    until(lambda: states(api, made["id"]) == ["delivered"])
    assert len(receiver.heard) >= 2
    assert set(receiver.deliveries()) == {"1"}  # both have one id, so a receiver recognises the repetition
    assert len({body for _, body in receiver.heard}) == 1


def test_what_nobody_takes_is_given_up(start_server, receiver, make_result):
    receiver.statuses = [503] * 3
    api = start_server(**settings(receiver, webhook_tries=3))
    made = hook(api, receiver)
    run_one(api, make_result)
    until(lambda: states(api, made["id"]) == ["given-up"])
    (delivery,) = api.get(f"/webhooks/{made['id']}/deliveries")["items"]
    assert (delivery["tries"], delivery["status"], delivery["error"]) == (3, 503, "status 503")


def test_a_restart_loses_nothing(start_server, receiver, make_result):
    receiver.statuses = [None]
    first = start_server(**settings(receiver, webhook_timeout_s=30.0))
    made = hook(first, receiver)
    run_one(first, make_result)
    until(lambda: receiver.heard, "the message that is not answered")
    assert states(first, made["id"]) == ["waiting"]
    first.sql("UPDATE webhook_delivery SET next_at = 0")  # due now, after that server has ended
    second = start_server(**settings(receiver))
    until(lambda: states(second, made["id"]) == ["delivered"])
    assert receiver.deliveries() == ["1", "1"]


def test_alerts_are_sent_whenever_they_change(start_server, receiver, make_result):
    api = start_server(**settings(receiver, confirm_alerts=True))
    made = hook(api, receiver, "alert")
    node = api.worker()
    for level in (1.0, 1.1):
        api.submit(base={"token_slice": 64, "batch_slice": 1}, repetitions=6)
        for noise in (1.0, 1.002, 0.998, 1.001, 0.999, 1.0):
            s = noise * level
            node.upload(node.claim(), make_result([9, s, s, s], environment={"core_hash": f"at {level}"}))
    until(lambda: states(api, made["id"]) == ["delivered"] * 2)
    alerts = [json.loads(body)["alert"] for _, body in receiver.heard]
    assert sorted(alert["state"] for alert in alerts) == ["confirming", "suspected"]
    assert {alert["id"] for alert in alerts} == {1}


def test_a_key_that_is_revoked_has_nothing_sent(start_server, receiver, make_result):
    api = start_server(**settings(receiver))
    admin = api.post("/keys", {"scope": "admin"}, 201)["token"]
    api.use(admin)
    submit, other = (api.post("/keys", {"scope": "submit"}, 201) for _ in range(2))
    api.use(submit["token"])
    mine = hook(api, receiver)
    assert mine["owner"] == f"key:{submit['id']}"
    api.use(other["token"])
    assert api.get("/webhooks")["items"] == []
    assert api.get(f"/webhooks/{mine['id']}/deliveries", 404)["type"] == "/problems/not-found"
    assert api.http.delete(f"/api/v1/webhooks/{mine['id']}").status_code == 404
    api.use(admin)
    assert len(api.get("/webhooks")["items"]) == 1
    kept = hook(api, receiver)
    api.post(f"/keys/{submit['id']}/revoke")
    run_one(api, make_result)
    until(lambda: states(api, kept["id"]) == ["delivered"])
    assert states(api, mine["id"]) == []
    assert api.http.delete(f"/api/v1/webhooks/{kept['id']}").status_code == 204
    assert api.sql("SELECT count(*) FROM webhook_delivery") == [(0,)]


@pytest.mark.parametrize("end", ["revoked", "expired"])
def test_messages_that_wait_are_given_up_when_the_key_ends(start_server, receiver, make_result, end):
    receiver.statuses = [500]
    api = start_server(**settings(receiver, webhook_retry_s=3600))
    admin = api.post("/keys", {"scope": "admin"}, 201)["token"]
    api.use(admin)
    submit = api.post("/keys", {"scope": "submit"}, 201)
    api.use(submit["token"])
    made = hook(api, receiver)
    api.use(admin)
    run_one(api, make_result)
    until(lambda: [item["error"] for item in api.get(f"/webhooks/{made['id']}/deliveries")["items"]] == ["status 500"])
    if end == "revoked":
        api.post(f"/keys/{submit['id']}/revoke")
    else:
        api.sql(f"UPDATE api_key SET expires_at = 1 WHERE id = {submit['id']}")
    api.sql("UPDATE webhook_delivery SET next_at = 0")
    until(lambda: states(api, made["id"]) == ["given-up"])
    (delivery,) = api.get(f"/webhooks/{made['id']}/deliveries")["items"]
    assert delivery["error"] == "the key of the webhook is revoked or has expired"
    assert len(receiver.heard) == 1


def test_only_addresses_that_the_operator_allowed_are_taken(start_server, receiver):
    api = start_server(webhook_targets=receiver.url, max_webhooks=1)
    refused = api.post("/webhooks", {"url": "http://127.0.0.1:1/hooks", "events": ["verdict"]}, 422)
    assert "TASKLOOM_WEBHOOK_TARGETS" in refused["errors"][0]["accepted"]
    hook(api, receiver)
    body = {"url": receiver.url, "events": ["verdict"]}
    assert api.post("/webhooks", body, 422)["type"] == "/problems/too-many-webhooks"


def test_an_address_that_is_not_allowed_any_more_is_sent_nothing(start_server, receiver, make_result):
    first = start_server(**settings(receiver, poll_s=3600))
    made = hook(first, receiver)
    second = start_server(**settings(receiver, webhook_targets="http://127.0.0.1:1/"))
    run_one(first, make_result)
    until(lambda: states(second, made["id"]) == ["given-up"])
    assert receiver.heard == []


def test_no_more_wait_than_are_kept(start_server, receiver, make_result, monkeypatch):
    monkeypatch.setattr(subscriptions, "MOST_WAITING", 1)
    receiver.statuses = [500] * 1000
    api = start_server(**settings(receiver, webhook_retry_s=3600))
    made = hook(api, receiver)
    run_one(api, make_result)
    until(lambda: states(api, made["id"]) == ["waiting"])
    run_one(api, make_result)
    until(lambda: states(api, made["id"]) == ["waiting", "given-up"])
    assert "were waiting" in api.get(f"/webhooks/{made['id']}/deliveries")["items"][1]["error"]
