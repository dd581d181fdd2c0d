"""HTTP requests of a user and of a worker, and direct access to the server's database."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

import httpx
from sqlalchemy import text

from taskloom.server.context import Context
from taskloom.server.queue.attempts import lifecycle
from taskloom.server.read.context import Reading

API = "/api/v1"
GIB = 1 << 30


def whole(result: dict[str, Any]) -> dict[str, Any]:
    """The result, with an op and the threads' times added if the test's result has none."""
    seconds = math.fsum(result["step_s"][result["config"]["warmup"] :])
    op = {"op": "qkv", "phase": "forward", "calls": 1, "time_s": seconds, "flop": 1000, "bytes": 1000}
    thread = {"useful_s": seconds, "barrier_s": 0.0, "starvation_s": 0.0, "idle_s": 0.0}
    threads = [thread] * result["config"]["threads"]
    return {**result, "ops": result["ops"] or [op], "threads": result["threads"] or threads}


class Caller:
    """One HTTP client, and the context of the server it talks to, if that is in this process."""

    def __init__(self, http: httpx.Client, context: Any = None, reading: Any = None) -> None:
        self.http = http
        self.context: Context = context
        self.reading: Reading = reading
        self.tokens: dict[str, str | None] = {}

    @property
    def url(self) -> str:
        """Where the server is, without a slash at the end."""
        return str(self.http.base_url).rstrip("/")

    def get(self, path: str, status: int = 200, **query: Any) -> Any:
        return self._expect(self.http.get(API + path, params=query), status)

    def post(self, path: str, body: Any = None, status: int = 200, headers: dict[str, str] | None = None) -> Any:
        return self._expect(self.http.post(API + path, json=body, headers=headers), status)

    def put(self, path: str, body: Any, status: int = 200) -> Any:
        return self._expect(self.http.put(API + path, json=body), status)

    @staticmethod
    def _expect(answer: httpx.Response, status: int) -> Any:
        assert answer.status_code == status, answer.text
        if status >= 400:
            assert answer.headers["content-type"] == "application/problem+json"
        return answer.json() if answer.content else None

    def submit(self, status: int = 201, headers: dict[str, str] | None = None, **request: Any) -> Any:
        return self.post("/experiments", request, status, headers)

    def runs(self, experiment_id: int) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self.get("/runs", experiment_id=experiment_id, limit=500)["items"]
        return items

    def worker(self, worker_id: str = "w1", **more: Any) -> Node:
        node = Node(self, worker_id, **more)
        node.register()
        return node

    def use(self, token: str | None) -> None:
        """Send this key with all further requests."""
        self.http.headers.pop("Authorization", None)
        if token is not None:
            self.http.headers["Authorization"] = f"Bearer {token}"

    def reap(self) -> None:
        """Do the periodic work of the server's reaper."""
        lifecycle.reap(self.context.database, self.context.settings)
        self.context.ended()

    def sql(self, statement: str, **values: Any) -> list[Any]:
        with self.context.database.write() as session:
            result = session.execute(text(statement), values)
            return list(result.all()) if result.returns_rows else []  # type: ignore[attr-defined]

    def let_lease_run_out(self, attempt_id: int) -> None:
        """Move the lease a day into the past."""
        self.sql("UPDATE attempt SET expires_at = expires_at - 86400 WHERE id = :id", id=attempt_id)

    def let_deadline_pass(self, attempt_id: int) -> None:
        self.sql("UPDATE attempt SET deadline_at = deadline_at - 1e6 WHERE id = :id", id=attempt_id)


class Node:
    """A worker that sends messages but executes nothing."""

    def __init__(self, api: Caller, worker_id: str, **more: Any) -> None:
        self.api, self.worker_id = api, worker_id
        self.identity = {
            "worker_id": worker_id,
            "boot_id": "boot-1",
            "node": f"node-of-{worker_id}",
            "cores": [0, 1],
            "memory_bytes": 8 * GIB,
            **more,
        }

    def register(self, status: int | None = None, **changes: Any) -> Any:
        self.identity.update(changes)
        answer = self.api.http.put(f"{API}/workers/{self.worker_id}", json=self.identity)
        assert answer.status_code in ((200, 201) if status is None else (status,)), answer.text
        return answer.json()

    def claim(self, status: int = 201, wait_s: float = 0, **more: Any) -> Any:
        body = {"worker_id": self.worker_id, "boot_id": self.identity["boot_id"], "wait_s": wait_s, **more}
        return self.api.post("/leases", body, status)

    def beat(self, lease: dict[str, Any], status: int = 200, **progress: Any) -> Any:
        body = {"worker_id": self.worker_id, "attempt_no": lease["attempt_no"], "progress": progress}
        return self.api.post(f"/attempts/{lease['attempt_id']}/heartbeat", body, status)

    def upload(
        self,
        lease: dict[str, Any],
        result: dict[str, Any] | None = None,
        error: dict[str, Any] | None = None,
        outcome: str | None = None,
        status: int = 200,
    ) -> Any:
        outcome = outcome or ("succeeded" if error is None else "failed")
        if result and status != 422:
            result = self.answering(lease, result)
        payload = json.dumps({"result": result, "error": error})
        body = {
            "worker_id": self.worker_id,
            "attempt_no": lease["attempt_no"],
            "outcome": outcome,
            "sha256": hashlib.sha256(payload.encode()).hexdigest(),
            "payload": payload,
        }
        return self.api.put(f"/attempts/{lease['attempt_id']}/result", body, status)

    def answering(self, lease: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
        """The result with the settings of the lease, and with the number of steps of the test's result, unless a goal
        ended it before."""
        given = result["config"]
        asked = {name: value for name, value in lease["spec"].items() if value is not None}
        steps = given["steps"] if result.get("goal") else len(result["step_s"])
        asked |= {"steps": steps, "warmup": given["warmup"]}
        if (asked["steps"], asked["warmup"]) != (lease["spec"]["steps"], lease["spec"]["warmup"]):
            spec = json.dumps({**lease["spec"], "steps": asked["steps"], "warmup": asked["warmup"]})
            self.api.sql("UPDATE run SET spec = :spec WHERE id = :id", spec=spec, id=lease["run_id"])
        config = {**given, **asked}
        if len(config["cores"]) < config["threads"]:
            config["cores"] = list(range(config["threads"]))
        for part, of in (("batch_slice", "batch"), ("token_slice", "seq")):
            config[part] = min(config[part], config[of])
        return whole({**result, "config": config})

    def leave(
        self,
        lease: dict[str, Any],
        name: str,
        content: bytes,
        media_type: str | None = "text/plain",
        status: int = 200,
        **changes: Any,
    ) -> Any:
        """Store a file as an artifact of an attempt."""
        query = {
            "worker_id": self.worker_id,
            "attempt_no": lease["attempt_no"],
            "sha256": hashlib.sha256(content).hexdigest(),
            **changes,
        }
        path = f"{API}/attempts/{lease['attempt_id']}/artifacts/{name}"
        headers = {} if media_type is None else {"Content-Type": media_type}
        return self.api._expect(self.api.http.put(path, params=query, content=content, headers=headers), status)
