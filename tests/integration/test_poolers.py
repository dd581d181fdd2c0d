"""A server whose PostgreSQL is behind PgBouncer, in both of the pooling modes that it has for transactions."""

from __future__ import annotations

import collections
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from taskloom.server.db import Database
from tests.support.pgbouncer import pooled
from tests.support.servers import servers_on

pytestmark = [pytest.mark.on_postgres, pytest.mark.slow]

API = "/api/v1"
CLIENTS, ROUNDS = 8, 8


@pytest.fixture(params=["transaction", "session"])
def pooled_url(database_url: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of the test's database through a PgBouncer with few connections in this mode."""
    with pooled(database_url, request.param) as url:
        yield url


def test_no_statement_of_another_connection_is_executed(pooled_url: str, tmp_path: Path) -> None:
    """Statements that are repeated often would be prepared on one backend and executed on another."""
    answered: collections.Counter[tuple[str, int]] = collections.Counter()
    with servers_on(pooled_url, tmp_path / "artifacts") as start:
        url = str(start(poll_s=0.05).http.base_url)

        def work(name: str) -> None:
            with httpx.Client(base_url=url + API, timeout=60, verify=False) as http:

                def send(method: str, path: str, body: object = None) -> httpx.Response:
                    answer = http.request(method, path, json=body)
                    answered[path.split("/")[-1], answer.status_code] += 1
                    return answer

                worker = {"worker_id": name, "boot_id": "b"}
                send("POST", "/workers", {**worker, "node": name, "cores": [0, 1], "memory_bytes": 1 << 34})
                for i in range(ROUNDS):
                    base = {"model": "tiny", "threads": 1, "steps": 3}
                    send("POST", "/experiments", {"name": f"{name}.{i}", "base": base})
                    claimed = send("POST", "/leases", {**worker, "wait_s": 0})
                    if claimed.status_code == 200:
                        lease = claimed.json()
                        sent = {"worker_id": name, "attempt_no": lease["attempt_no"]}
                        error = {"slug": "x", "detail": "y"}
                        send("PUT", f"/attempts/{lease['attempt_id']}/result",
                             {**sent, "outcome": "failed", "error": error})  # fmt: skip
                    send("GET", "/runs")

        threads = [threading.Thread(target=work, args=(f"w{number}",)) for number in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert {status for _, status in answered} <= {200, 201, 204}, answered
    assert answered["experiments", 201] == answered["runs", 200] == CLIENTS * ROUNDS


def test_analyses_in_processes_of_their_own_read_and_cannot_write(pooled_url: str, tmp_path: Path) -> None:
    with servers_on(pooled_url, tmp_path / "artifacts") as start:
        api = start(analysis_processes=1)
        request = {"base": {"model": "tiny", "threads": 1, "steps": 3}}
        assert api.post("/experiments?dry_run=true", request)["runs"]
    database = Database(pooled_url, read_only=True)
    for snapshot in (False, True):
        with database.read(snapshot) as session, pytest.raises(Exception, match="read-only transaction"):
            session.connection().exec_driver_sql("DELETE FROM run")
    database.close()
    writing = Database(pooled_url)  # the mode belongs to no connection of the pooler
    with writing.write() as session:
        session.connection().exec_driver_sql("DELETE FROM run")
    writing.close()
