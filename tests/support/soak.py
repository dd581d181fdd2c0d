"""A server under everything at once: a fleet behind an unreliable network, readers, exports, and attackers.

    python -m tests.support.soak --minutes 60 --database postgres --output build/soak.json

It stays on loopback and ends by itself. `--database postgres` starts a PostgreSQL server of its own; a URL names an
empty database. Every run must have ended with exactly one result; the record has the counts, the answers' times of a
small request, and the server's memory. After the load, with a full queue, it has the times from SIGTERM to the end of
the fleet and of the server, and then the time in which a new fleet empties the queue, and the times of its claims. The
exit code is 1 if a run is lost, doubled or stuck.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
from sqlalchemy import text
from sqlalchemy.engine import make_url

from taskloom import Client
from taskloom.server.db import Database
from tests.support.patience import until
from tests.support.postgres_server import postgres_server
from tests.support.processes import House, Process, house
from tests.support.runs import submit_many
from tests.support.wire import Message, Send, Unreliable, Wire

MIB = 1 << 20
WORKERS, RUNS_AT_ONCE = 10, 200
PATIENCE_S = 600.0  # for the last runs, after the attacks
GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
CHUNKED = b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
EXPORT = b"GET /api/v1/exports/%s HTTP/1.1\r\nHost: localhost\r\n\r\n"
READ = ("/runs?limit=500", "/experiments", "/overview", "/workers", "/queue", "/runs/1", "/exports/runs")
# What each attacker sends first and then again and again, without reading an answer.
ATTACKS = {
    "trailers": (CHUNKED, b"X-Trailer: " + b"y" * 1000 + b"\r\n"),
    "pipelined requests": (b"", GET * 1000),
    "large headers": (GET[:-2], b"X-Large: " + b"y" * 1000 + b"\r\n"),
    "unread exports": (EXPORT % b"steps?format=csv", b""),
    "unread Parquet": (EXPORT % b"steps?format=parquet", b""),
}  # fmt: skip
QUERIES = {
    "runs": "SELECT count(*) FROM run",
    "succeeded": "SELECT count(*) FROM run WHERE state = 'succeeded'",
    "stuck": "SELECT count(*) FROM run WHERE finished_at IS NULL",
    "under_way": "SELECT count(*) FROM run WHERE state IN ('leased', 'running')",
    "without_result": "SELECT count(*) FROM run WHERE state = 'succeeded' AND NOT EXISTS "
    "(SELECT 1 FROM result WHERE run_id = run.id AND canonical)",
    "doubled": "SELECT count(*) FROM (SELECT run_id FROM attempt WHERE state = 'succeeded' GROUP BY run_id "
    "HAVING count(*) > 1) AS more",
    "attempts": "SELECT count(*) FROM attempt",
}


class Load:
    """Threads that repeat something until the load ends. Counts what each has done."""

    def __init__(self, url: str) -> None:
        self.url, self.address = url, (httpx.URL(url).host, httpx.URL(url).port or 0)
        self.done, self.answer_s, self.rss_bytes = Counter[str](), list[float](), list[int]()
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

    def repeat(self, name: str, act: Callable[[], None], every_s: float) -> None:
        def run() -> None:
            while not self._over.wait(every_s):
                try:
                    act()
                    self.done[name] += 1
                except (OSError, httpx.TransportError) as error:
                    self.done[f"{name}: {type(error).__name__}"] += 1

        self._threads.append(threading.Thread(target=run))
        self._threads[-1].start()

    def attack(self, first: bytes, again: bytes) -> None:
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # before it connects
            connection.settimeout(1.0)
            connection.connect(self.address)
            connection.sendall(first)
            end = time.monotonic() + 3.0
            with contextlib.suppress(ConnectionError, TimeoutError):
                while time.monotonic() < end and not self._over.is_set():
                    connection.sendall(again) if again else self._over.wait(0.5)

    def read(self, path: str) -> None:
        answer = httpx.get(f"{self.url}/api/v1{path}", timeout=60)
        if answer.status_code >= 500 and answer.status_code != 503:
            self.done[f"status {answer.status_code} of {path}"] += 1

    def look(self, server: psutil.Process) -> None:
        """Time a small request, and read the memory of the server's process, without its analysis processes."""
        started = time.monotonic()
        httpx.get(f"{self.url}/healthz", timeout=60)
        self.answer_s.append(time.monotonic() - started)
        self.rss_bytes.append(server.memory_info().rss)

    def end(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


class Counted:
    """An unreliable network whose messages and lost answers are counted."""

    def __init__(self) -> None:
        self.faults, self.seen = Unreliable(seed=7, longest_s=0.1), Counter[str]()

    def __call__(self, message: Message, send: Send) -> httpx.Response | None:
        answer = self.faults(message, send)
        self.seen["lost answers" if answer is None else "answers"] += 1
        return answer


class Timed:
    """A network without faults. Keeps the times of claims that got a run."""

    def __init__(self) -> None:
        self.claim_ms: list[float] = []

    def __call__(self, message: Message, send: Send) -> httpx.Response:
        begun = time.monotonic()
        answer = send(message)
        if message.path.endswith("/leases") and answer.status_code == 201:
            self.claim_ms.append(1000 * (time.monotonic() - begun))
        return answer


def end(process: Process) -> tuple[int, float]:
    """Send SIGTERM; return the exit code and the seconds until the end."""
    begun = time.monotonic()
    process.popen.send_signal(signal.SIGTERM)
    return process.wait(PATIENCE_S), round(time.monotonic() - begun, 2)


def empty(home: House) -> dict[str, object]:
    """Time in which a new fleet empties the queue without other load, and times of its claims."""
    network, runs = Timed(), count(home, QUERIES["stuck"])
    with Wire(home.url, network) as wire:
        begun = time.monotonic()
        fleet = home.start_fleet(WORKERS, wire.url)
        with contextlib.suppress(AssertionError):  # the record says what is stuck
            until(lambda: len(network.claim_ms) >= runs, "the last claim", PATIENCE_S)  # without queries of our own
            until(lambda: not count(home, QUERIES["stuck"]), "the last runs", PATIENCE_S)
        took_s = time.monotonic() - begun
        code, _ = end(fleet)
    claims = spread(network.claim_ms) if network.claim_ms else None
    return {"runs": runs, "took_s": round(took_s, 2), "claim_ms": claims, "fleet_exit_code": code}


def soak(home: House, minutes: float, queue: int) -> dict[str, object]:
    """Load the server for this long, end the fleet and the server with `queue` more runs queued, let new ones execute
    all runs, and return the record."""
    load, network, submitted = Load(home.url), Counted(), 0
    with Wire(home.url, network) as wire, Client(home.url, timeout_s=120) as client:
        fleet = home.start_fleet(WORKERS, wire.url)
        try:
            for name, (first, again) in ATTACKS.items():
                load.repeat(name, lambda first=first, again=again: load.attack(first, again), 1.0)  # type: ignore[misc]
            for path in READ:
                load.repeat("reads", lambda path=path: load.read(path), 1.0)  # type: ignore[misc]
            load.repeat("looks", lambda: load.look(psutil.Process(home.server.popen.pid)), 1.0)
            over = time.monotonic() + 60 * minutes
            while time.monotonic() < over:
                if count(home, QUERIES["stuck"]) < RUNS_AT_ONCE / 2:
                    submit_many(client, RUNS_AT_ONCE)
                    submitted += RUNS_AT_ONCE
                time.sleep(1)
        finally:
            load.end()
        submit_many(client, queue)
        submitted += queue
        code, fleet_s = end(fleet)
        network.faults.settle()
    server_code, server_s = end(home.server)
    home.start_server()
    until(lambda: not count(home, QUERIES["under_way"]), "the end of leases without a worker", PATIENCE_S)
    emptied = empty(home)
    found = {name: count(home, query) for name, query in QUERIES.items()}
    rss_mib = [each / MIB for each in load.rss_bytes]
    return {
        "minutes": minutes, "submitted": submitted, **found,
        "lost": submitted - found["runs"] + found["without_result"],
        "sigterm_to_end": {"fleet_s": fleet_s, "server_s": server_s, "exit_codes": [code, server_code]},
        "emptied": emptied, "network": {**network.seen, "repeated": len(network.faults.repeated)},
        "load": dict(sorted(load.done.items())), "healthz_ms": spread([1000 * each for each in load.answer_s]),
        "server_rss_mib": spread(rss_mib) | {"first": round(rss_mib[0], 1), "last": round(rss_mib[-1], 1)},
    }  # fmt: skip


def spread(values: list[float]) -> dict[str, float]:
    """Median, 99th percentile and maximum."""
    return {
        "median": round(statistics.median(values), 1), "max": round(max(values), 1),
        "p99": round(statistics.quantiles(values, n=100, method="inclusive")[98], 1),
    }  # fmt: skip


def count(home: House, query: str) -> int:
    database = Database(home.database_url)
    with database.read() as session:
        found = int(session.execute(text(query)).scalar_one())
    database.close()
    return found


@contextlib.contextmanager
def served(kind: str) -> Iterator[House]:
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="taskloom-soak-")))
        url = kind
        if kind == "sqlite":
            url = f"sqlite:///{folder}/soak.db"
        elif kind == "postgres":
            url = stack.enter_context(postgres_server()).new()
        settings = {"lease_s": 15.0, "heartbeat_s": 2.0, "reap_every_s": 0.5, "block_release_s": 5.0, "max_losses": 99}
        yield stack.enter_context(house(folder, url, **settings))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--database", default="sqlite", help="sqlite, postgres, or the URL of an empty database")
    parser.add_argument("--queue", type=int, default=1000, help="runs of the full queue at the end")
    parser.add_argument("--output", type=Path, help="file of the record, beside standard output")
    given = parser.parse_args()
    with served(given.database) as home:
        found = soak(home, given.minutes, given.queue)
    kind = make_url(given.database).get_backend_name() if "://" in given.database else given.database
    record = json.dumps({"database": kind, **found}, indent=1)
    print(record)
    if given.output:
        given.output.parent.mkdir(parents=True, exist_ok=True)
        given.output.write_text(record + "\n")
    return int(any(found[name] for name in ("lost", "doubled", "stuck")) or found["submitted"] != found["succeeded"])


if __name__ == "__main__":
    sys.exit(main())
