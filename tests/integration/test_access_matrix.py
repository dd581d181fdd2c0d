"""Every route with every kind of caller. A route that is missing in REQUESTS or in the table of scopes fails."""

from __future__ import annotations

import hashlib
import json

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
# For each route: its status if allowed, its path if that has parameters, and its body.
REQUESTS = {
    "server_health": (200, None, None),
    "server_ready": (200, None, None),
    "server_metrics": (200, None, None),
    "server_index": (307, None, None),
    "server_dashboard": (307, None, None),
    "server_dashboard_file": (200, "/ui/", None),
    "server_docs": (200, None, None),
    "server_document": (200, None, None),
    "server_problem_types": (200, None, None),
    "server_problem_type": (200, "/problems/not-found", None),
    "experiments_submit": (201, None, {"base": {"model": "tiny"}}),
    "experiments_index": (200, None, None),
    "overview_overview": (200, None, None),
    "exports_show": (200, "/api/v1/exports/runs", None),
    "runs_progress": (200, "/api/v1/runs/1/progress", None),
    "keys_whoami": (200, None, None),
    "queue_runs": (200, None, None),
    "workers_attempts": (200, "/api/v1/workers/w1/attempts", None),
    "workers_remove": (409, "/api/v1/workers/w1", None),
    "experiments_variants": (200, "/api/v1/experiments/1/variants", None),
    "events_stream": (200, "/api/v1/events?topic=run:1", None),
    "experiments_show": (200, "/api/v1/experiments/1", None),
    "experiments_change": (200, "/api/v1/experiments/1", {"tags": ["nightly"]}),
    "experiments_changes": (200, "/api/v1/experiments/1/changes", None),
    "experiments_cancel": (200, "/api/v1/experiments/1/cancel", None),
    "experiments_retry": (200, "/api/v1/experiments/2/retry", None),
    "runs_index": (200, None, None),
    "runs_show": (200, "/api/v1/runs/1", None),
    "runs_samples": (200, "/api/v1/runs/1/samples", None),
    "runs_result": (200, "/api/v1/runs/1/result", None),
    "samples_index": (200, "/api/v1/samples?runs=1,2", None),
    "runs_log": (200, "/api/v1/runs/1/log", None),
    "runs_changes": (200, "/api/v1/runs/1/changes", None),
    "runs_cancel": (200, "/api/v1/runs/3/cancel", None),
    "runs_retry": (200, "/api/v1/runs/3/retry", None),
    "events_run": (200, "/api/v1/runs/1/events", None),
    "events_experiment": (200, "/api/v1/experiments/2/events", None),
    "artifacts_put": (200, ARTIFACT, None),
    "artifacts_index": (200, "/api/v1/runs/1/artifacts", None),
    "artifacts_trace": (404, "/api/v1/runs/1/trace", None),
    "artifacts_show": (200, "/api/v1/runs/1/artifacts/kept.txt", None),
    "analysis_compare": (200, "/api/v1/analysis/compare?a=1&b=1", None),
    "analysis_scaling": (200, "/api/v1/analysis/scaling?experiment_id=1", None),
    "analysis_sweep": (200, "/api/v1/analysis/sweep?experiment_id=1", None),
    "analysis_efficiency": (200, "/api/v1/analysis/efficiency?experiment_id=1", None),
    "analysis_roofline": (200, "/api/v1/analysis/roofline?experiment_id=1", None),
    "analysis_forecast": (200, "/api/v1/analysis/forecast?experiment_id=1", None),
    "analysis_memory": (200, "/api/v1/analysis/memory?experiment_id=1", None),
    "analysis_history": (200, None, None),
    "history_index": (200, None, None),
    "history_show": (200, "/api/v1/analysis/history/series/1", None),
    "history_points": (200, "/api/v1/analysis/history/series/1/points", None),
    "history_changes": (200, "/api/v1/analysis/history/series/1/changes", None),
    "runs_steps": (200, "/api/v1/runs/1/steps", None),
    "analysis_calibration": (200, None, None),
    "analysis_report": (200, "/api/v1/analysis/report?experiment_id=1", None),
    "server_report": (200, "/reports/1", None),
    "analysis_alerts": (200, None, None),
    "analysis_confirm": (201, "/api/v1/analysis/history/1/confirm", None),
    "workers_index": (200, None, None),
    "workers_show": (200, "/api/v1/workers/w1", None),
    "workers_register": (200, None, REGISTRATION),
    "queue_demand": (200, None, None),
    "queue_pools": (200, None, None),
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
    "webhooks_index": (200, None, None),
    "webhooks_remove": (404, "/api/v1/webhooks/1", None),
    "webhooks_deliveries": (404, "/api/v1/webhooks/1/deliveries", None),
    "keys_create": (201, None, {"scope": "read"}),
    "keys_index": (200, None, None),
    "keys_revoke": (200, "/api/v1/keys/7/revoke", None),
}  # fmt: skip
WORKERS_OWN = {"workers_register", "workers_put", "workers_leave", "queue_report", "attempts_lease", "attempts_show",
               "attempts_heartbeat", "attempts_finish", "artifacts_put"}  # fmt: skip


REFUSED = ("forbidden", "not-your-worker", "not-your-pool")


OPERATIONS = operations(create_app(Settings(database_url="sqlite:////never-opened.db")))
PAGES = sorted(name for name, (_, route) in OPERATIONS.items() if route.access.without_key == "loopback")


def test_every_route_is_in_the_matrix():
    assert set(OPERATIONS) == set(REQUESTS)


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
    access, allowed = OPERATIONS[name][1].access, REQUESTS[name][0]
    scopes = access.scopes
    if access.without_key == "everywhere" or (access.without_key == "loopback" and not public):
        return allowed
    if caller in NO_KEY:
        return 401
    scope = caller.removeprefix("other-")
    if scope not in scopes or (caller == "other-worker" and name in WORKERS_OWN):
        return 403
    return allowed


@pytest.mark.parametrize("name", sorted(REQUESTS))
def test_every_caller_gets_what_the_table_says(house, name):
    _, address, body = REQUESTS[name]
    declared, route = OPERATIONS[name]
    path = address or declared
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
    path = REQUESTS[name][1] or OPERATIONS[name][0]
    assert api.http.get(path).status_code == expected(name, "none", public=True) == 401
