"""A server whose PostgreSQL is behind PgBouncer, in both of the pooling modes that it has for transactions."""

from __future__ import annotations

import collections
import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import psycopg
import pytest
from sqlalchemy.engine import make_url

from taskloom.server.db import Database
from tests.support.patience import until
from tests.support.servers import servers_on

pytestmark = [pytest.mark.on_postgres, pytest.mark.slow]

PGBOUNCER = shutil.which("pgbouncer", path=os.pathsep.join([os.environ["PATH"], "/usr/sbin"]))
API = "/api/v1"
CLIENTS, ROUNDS = 8, 8


@pytest.fixture(params=["transaction", "session"])
def pooled_url(database_url: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of the test's database through a PgBouncer with few connections in this mode."""
    if PGBOUNCER is None:
        pytest.skip("PgBouncer is not installed")
    url = make_url(database_url)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # Not below pytest's folder: PgBouncer runs as another user if we are root.
    with tempfile.TemporaryDirectory(prefix="taskloom-pgbouncer-") as folder:
        Path(folder).chmod(0o755)
        settings = Path(folder, "pgbouncer.ini")
        settings.write_text(
            f"[databases]\n{url.database} = host={url.query['host']} user={url.username}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
            f"pool_mode = {request.param}\ndefault_pool_size = {3 if request.param == 'transaction' else 90}\n"
        )
        user = ["--user", Path(str(url.query["host"])).owner()] if os.getuid() == 0 else []
        with subprocess.Popen([PGBOUNCER, "--quiet", *user, settings], stderr=subprocess.PIPE) as pooler:
            through = f"postgresql://{url.username}@127.0.0.1:{port}/{url.database}"
            try:
                until(lambda: answers(through), "PgBouncer's answer", 20)
                yield through
            finally:
                pooler.terminate()


def answers(url: str) -> bool:
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True


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
