"""Every route with every kind of caller. Requests are made from the OpenAPI document; REQUESTS has the others."""

from __future__ import annotations

import hashlib
import json
from urllib.parse import urlencode

import pytest

from taskloom.server import main
from taskloom.server.main import create_app
from taskloom.server.routing import Router, operations
from taskloom.server.settings import Settings

CALLERS = ("none", "unknown", "revoked", "expired", "read", "submit", "worker", "other-worker", "admin")
NO_KEY = ("none", "unknown", "revoked", "expired")
PAYLOAD = json.dumps({"result": None, "error": {"slug": "boom"}})
UPLOAD = {
    "worker_id": "w1", "attempt_no": 1, "outcome": "failed",
    "sha256": hashlib.sha256(PAYLOAD.encode()).hexdigest(), "payload": PAYLOAD,
}  # fmt: skip
REGISTRATION = {"worker_id": "w1", "boot_id": "boot-1", "node": "node-of-w1", "cores": [0, 1], "memory_bytes": 8 << 30}
NOTHING_SHA256 = hashlib.sha256(b"").hexdigest()
ARTIFACT = f"/api/v1/attempts/2/artifacts/a.txt?worker_id=w1&attempt_no=1&sha256={NOTHING_SHA256}"
# Values of required parameters, unless REQUESTS has the address.
VALUES = {"experiment_id": 1, "run_id": 1, "attempt_id": 2, "worker_id": "w1", "series_id": 1, "a": 1, "b": 1}
# Routes that answer something else than 200, take a body, or need other values: status if allowed, address, body.
REQUESTS = {
    "server_index": (307, None, None),
    "server_dashboard": (307, None, None),
    "server_dashboard_file": (200, "/ui/", None),
    "server_problem_type": (200, "/problems/not-found", None),
    "experiments_submit": (201, None, {"base": {"model": "tiny"}}),
    "exports_show": (200, "/api/v1/exports/runs", None),
    "workers_remove": (409, "/api/v1/workers/w1", None),
    "events_stream": (200, "/api/v1/events?topic=run:1", None),
    "experiments_change": (200, "/api/v1/experiments/1", {"tags": ["nightly"]}),
    "experiments_cancel": (200, "/api/v1/experiments/1/cancel", None),
    "experiments_retry": (200, "/api/v1/experiments/2/retry", None),
    "samples_index": (200, "/api/v1/samples?runs=1,2", None),
    "runs_cancel": (200, "/api/v1/runs/3/cancel", None),
    "runs_retry": (200, "/api/v1/runs/3/retry", None),
    "events_experiment": (200, "/api/v1/experiments/2/events", None),
    "artifacts_put": (200, ARTIFACT, None),
    "artifacts_trace": (404, "/api/v1/runs/1/trace", None),
    "artifacts_show": (200, "/api/v1/runs/1/artifacts/kept.txt", None),
    "server_report": (200, "/reports/1", None),
    "analysis_confirm": (201, "/api/v1/analysis/history/1/confirm", None),
    "workers_register": (200, None, REGISTRATION),
    "queue_report": (
        200,
        "/api/v1/queue/pools/p",
        {"cores": 1, "memory_bytes": 1, "walltime_s": 60, "interval_s": 30},
    ),
    "workers_leave": (204, "/api/v1/workers/w1/leave", {"boot_id": "boot-1"}),
    "workers_put": (200, "/api/v1/workers/w1", REGISTRATION),
    "attempts_lease": (201, None, {"worker_id": "w1", "boot_id": "boot-1", "wait_s": 0}),
    "attempts_show": (200, "/api/v1/attempts/2", None),
    "attempts_heartbeat": (
        200, "/api/v1/attempts/2/heartbeat", {"worker_id": "w1", "attempt_no": 1, "progress": {}},
    ),
    "attempts_finish": (200, "/api/v1/attempts/2/result", UPLOAD),
    "retention_prune": (200, None, {"older_than_s": 0, "dry_run": True}),
    "webhooks_create": (422, None, {"url": "https://ci.example.org/", "events": ["verdict"]}),
    "webhooks_remove": (404, "/api/v1/webhooks/1", None),
    "webhooks_deliveries": (404, "/api/v1/webhooks/1/deliveries", None),
    "keys_create": (201, None, {"scope": "read"}),
    "keys_revoke": (200, "/api/v1/keys/7/revoke", None),
}  # fmt: skip
WORKERS_OWN = {"workers_register", "workers_put", "workers_leave", "queue_report", "attempts_lease", "attempts_show",
               "attempts_heartbeat", "attempts_finish", "artifacts_put"}  # fmt: skip


REFUSED = ("forbidden", "not-your-worker", "not-your-pool")


APP = create_app(Settings(database_url="sqlite:////never-opened.db"))
OPERATIONS, DOCUMENT = operations(APP), APP.openapi()
PAGES = sorted(name for name, (_, route) in OPERATIONS.items() if route.access.without_key == "loopback")


def request_of(name):
    """Status if allowed, address and body of a route's request."""
    declared, route = OPERATIONS[name]
    status, address, body = REQUESTS.get(name, (200, None, None))
    if address is None:
        (method,) = route.methods
        wanted = DOCUMENT["paths"].get(declared, {}).get(method.lower(), {}).get("parameters", [])
        query = {each["name"]: VALUES[each["name"]] for each in wanted if each["in"] == "query" and each["required"]}
        address = f"{declared.format_map(VALUES)}?{urlencode(query)}"
    return status, address, body


def test_requests_are_of_routes_that_exist():
    assert set(REQUESTS) <= set(OPERATIONS)


def test_a_route_that_does_not_say_who_may_call_it_keeps_the_application_from_being_made(monkeypatch):
    careless = Router(tag="careless")
    with pytest.raises(TypeError, match="access"):
        careless.get("/open")
    careless.api.get("/open")(lambda: "open to everybody")
    monkeypatch.setattr(main, "ROUTERS", (*main.ROUTERS, careless))
    with pytest.raises(LookupError, match="/api/v1/open"):
        create_app(Settings(database_url="sqlite:////never-opened.db"))


def expected(name, caller, public):
    """The expected status of a caller at a route, from the route's declaration."""
    access, allowed = OPERATIONS[name][1].access, request_of(name)[0]
    scopes = access.scopes
    if access.without_key == "everywhere" or (access.without_key == "loopback" and not public):
        return allowed
    if caller in NO_KEY:
        return 401
    scope = caller.removeprefix("other-")
    if scope not in scopes or (caller == "other-worker" and name in WORKERS_OWN):
        return 403
    return allowed


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_every_caller_gets_what_the_table_says(house, name):
    _, path, body = request_of(name)
    route = OPERATIONS[name][1]
    got = {}
    for caller in CALLERS:
        house.use(house.tokens["admin"])
        if name == "runs_retry":
            house.post("/runs/3/cancel")
        if name == "experiments_retry":
            house.post("/experiments/2/cancel")
        house.use(house.tokens[caller])
        answer = house.http.request(next(iter(route.methods)), path, json=body)
        got[caller] = answer.status_code
        if answer.status_code in (401, 403):
            kinds = ("unauthenticated",) if answer.status_code == 401 else REFUSED
            assert answer.json()["type"].removeprefix("/problems/") in kinds
            assert ("www-authenticate" in answer.headers) == (answer.status_code == 401)
    assert got == {caller: expected(name, caller, public=False) for caller in CALLERS}


@pytest.mark.parametrize("name", PAGES)
def test_pages_take_a_key_where_others_can_reach_them(start_server, name):
    api = start_server(public=True)
    path = request_of(name)[1]
    assert api.http.get(path).status_code == expected(name, "none", public=True) == 401
