"""A request for every route, built from the OpenAPI document and from REQUESTS, which adds what the document lacks."""

from __future__ import annotations

import hashlib
import json
from typing import Any
from urllib.parse import urlencode

from taskloom.server.main import create_app
from taskloom.server.routing import operations
from taskloom.server.settings import Settings

APP = create_app(Settings(database_url="sqlite:////never-opened.db"))
OPERATIONS, DOCUMENT = operations(APP), APP.openapi()
PAYLOAD = json.dumps({"result": None, "error": {"slug": "boom"}})
UPLOAD = {
    "worker_id": "w1", "attempt_no": 1, "outcome": "failed",
    "sha256": hashlib.sha256(PAYLOAD.encode()).hexdigest(), "payload": PAYLOAD,
}  # fmt: skip
REGISTRATION = {"worker_id": "w1", "boot_id": "boot-1", "node": "node-of-w1", "cores": [0, 1], "memory_bytes": 8 << 30}
NOTHING_SHA256 = hashlib.sha256(b"").hexdigest()
ARTIFACT = f"/api/v1/attempts/2/artifacts/a.txt?worker_id=w1&attempt_no=1&sha256={NOTHING_SHA256}"
# Values of required parameters, where REQUESTS has no URL.
VALUES = {
    "of": "runs", "experiment_id": 1, "run_id": 1, "attempt_id": 2, "worker_id": "w1", "series_id": 1, "a": 1, "b": 1,
}  # fmt: skip
# Routes with another status than 200, a body or other values: (status for an allowed caller, URL, body).
REQUESTS = {
    "server_index": (307, None, None),
    "server_dashboard": (307, None, None),
    "server_dashboard_file": (200, "/ui/", None),
    "server_problem_type": (200, "/problems/not-found", None),
    "sign_in_show": (404, None, None),  # without a provider
    "sign_in_start": (404, None, None),
    "sign_in_callback": (404, None, None),
    "sign_in_out": (404, None, None),
    "experiments_submit": (201, None, {"base": {"model": "tiny"}}),
    "exports_show": (200, "/api/v1/exports/runs", None),
    "workers_remove": (409, "/api/v1/workers/w1", None),
    "events_stream": (200, "/api/v1/events?topic=run:1", None),
    "experiments_change": (200, "/api/v1/experiments/1", {"tags": ["nightly"]}),
    "experiments_cancel": (200, "/api/v1/experiments/1/cancel", None),
    "experiments_retry": (200, "/api/v1/experiments/2/retry", None),
    "experiments_extend": (409, "/api/v1/experiments/2/extend", {"repetitions": 1}),  # it is cancelled
    "samples_index": (200, "/api/v1/samples?runs=1,2", None),
    "experiments_tuning": (404, "/api/v1/experiments/1/tuning", None),  # it has no `tune`
    "runs_cancel": (200, "/api/v1/runs/3/cancel", None),
    "runs_retry": (200, "/api/v1/runs/3/retry", None),
    "events_experiment": (200, "/api/v1/experiments/2/events", None),
    "artifacts_put": (200, ARTIFACT, None),
    "artifacts_trace": (404, "/api/v1/runs/1/trace", None),
    "artifacts_show": (200, "/api/v1/runs/1/artifacts/kept.txt", None),
    "server_report": (200, "/reports/1", None),
    "analysis_confirm": (201, "/api/v1/analysis/history/1/confirm", None),
    "thresholds_put": (200, "/api/v1/analysis/history/series/1/threshold", {"reference_s": 1, "upper": 5}),
    "thresholds_remove": (404, "/api/v1/analysis/history/series/1/threshold", None),
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


def request_of(name: str) -> tuple[int, str, Any]:
    """Status for an allowed caller, URL and body of a route's request."""
    declared, route = OPERATIONS[name]
    status, address, body = REQUESTS.get(name, (200, None, None))
    if address is None:
        assert route.methods is not None
        (method,) = route.methods
        known = DOCUMENT["paths"].get(declared, {}).get(method.lower(), {}).get("parameters", [])
        query = {each["name"]: VALUES[each["name"]] for each in known if each["in"] == "query" and each["required"]}
        address = f"{declared.format_map(VALUES)}?{urlencode(query)}"
    return status, address, body
