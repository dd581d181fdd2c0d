"""A server under everything at once: a fleet behind an unreliable network, readers, exports, event streams, attackers.

    python -m tests.support.soak --minutes 60 --database postgres --output build/soak.json

It stays on loopback and ends by itself. `--database postgres` starts a PostgreSQL server of its own; a URL names an
empty database. Every run must have ended with exactly one result. The record has the counts; the times of claims,
heartbeats and results under the load, without the network's delays, and of a small request; and the memory of the
server's process, also for each tenth of the time, and of its child processes together. After the load, with a full
queue, it has the times from SIGTERM to the end of the fleet and of the server, and then the time in which a new fleet
empties the queue, and the times of its claims. The exit code is 1 if a run is lost, doubled or stuck, or a reader was
answered with an error of the server.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import itertools
import json
import signal
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import httpx
import psutil
from sqlalchemy import text
from sqlalchemy.engine import make_url

from bench.record import machine
from gpt2core.spec.version import version
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
LONGEST_S = 0.1  # delay of a message under the load
EVENTS = "/events?topic=overview&topic=workers"
GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
ASK = b"GET /api/v1%s HTTP/1.1\r\nHost: localhost\r\n"
READ = (
    "/runs?limit=500", "/experiments", "/overview", "/workers", "/queue/runs", "/runs/1", "/exports/runs",
    "/analysis/report?experiment_id=1", "/analysis/scaling?experiment_id=1",
)  # fmt: skip
# What each attacker sends first and then again and again, without reading an answer.
ATTACKS = {
    "trailers": (ASK % EVENTS.encode() + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X-T: " + b"y" * 1000 + b"\r\n"),
    "pipelined requests": (b"", GET * 1000),
    "large headers": (GET[:-2], b"X-Large: " + b"y" * 1000 + b"\r\n"),
    "unread exports": (ASK % b"/exports/steps?format=csv" + b"\r\n", b""),
    "unread Parquet": (ASK % b"/exports/steps?format=parquet" + b"\r\n", b""),
    "unread events": (ASK % EVENTS.encode() + b"\r\n", b""),
}
# Messages of workers that are timed, by the ends of their paths.
TIMED = {"/leases": "claim", "/heartbeat": "heartbeat", "/result": "result"}
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
        self.address = (httpx.URL(url).host, httpx.URL(url).port or 0)
        self.done, self.failures = Counter[str](), Counter[str]()
        self.answer_s, self.rss_bytes, self.children_bytes = list[float](), list[int](), list[int]()
        self._http = httpx.Client(base_url=url, timeout=60, verify=False)
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

    def repeat(self, name: str, act: Callable[[], None], every_s: float) -> None:
        def run() -> None:
            while not self._over.wait(every_s):
                try:
                    act()
                    self.done[name] += 1
                except Exception as error:  # a thread that ends would be a load that nobody misses
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
        self._note(path, self._http.get(f"/api/v1{path}"))

    def follow(self) -> None:
        """Read events, for ten seconds."""
        end = time.monotonic() + 10.0
        with self._http.stream("GET", f"/api/v1{EVENTS}") as answer:
            self._note(EVENTS, answer)
            for _ in answer.iter_lines():
                self.done["lines of events"] += 1
                if time.monotonic() > end or self._over.is_set():
                    return

    def _note(self, path: str, answer: httpx.Response) -> None:
        if answer.is_error:
            failed = answer.is_server_error and answer.status_code not in (503, 504)
            (self.failures if failed else self.done)[f"status {answer.status_code} of {path}"] += 1

    def look(self, server: psutil.Process) -> None:
        """Time a small request, and read the memory of the server's process and of its child processes."""
        started = time.monotonic()
        self._http.get("/healthz")
        self.answer_s.append(time.monotonic() - started)
        self.rss_bytes.append(server.memory_info().rss)
        self.children_bytes.append(sum(each.memory_info().rss for each in server.children(recursive=True)))

    def end(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        self._http.close()


class Network:
    """A network with or without faults. Counts answers, and keeps the time in which the server answered each kind of
    message."""

    def __init__(self, faults: Unreliable | None = None) -> None:
        self.faults, self.seen = faults, Counter[str]()
        self.taken_ms: dict[str, list[float]] = {name: [] for name in TIMED.values()}

    def __call__(self, message: Message, send: Send) -> httpx.Response | None:
        def timed(sent: Message) -> httpx.Response:
            begun = time.monotonic()
            answer = send(sent)
            name = TIMED.get("/" + sent.path.rpartition("/")[2])
            if name is not None and answer.is_success and answer.status_code != 204:
                self.taken_ms[name].append(1000 * (time.monotonic() - begun))
            return answer

        answer = timed(message) if self.faults is None else self.faults(message, timed)
        self.seen["lost answers" if answer is None else "answers"] += 1
        return answer

    def spreads(self) -> dict[str, object]:
        return {f"{name}_ms": spread(taken_ms) for name, taken_ms in self.taken_ms.items()}


def end(process: Process) -> tuple[int, float]:
    """Send SIGTERM; return the exit code and the seconds until the end."""
    begun = time.monotonic()
    process.popen.send_signal(signal.SIGTERM)
    return process.wait(PATIENCE_S), round(time.monotonic() - begun, 2)


def empty(home: House) -> dict[str, object]:
    """Time in which a new fleet empties the queue without other load, and times of its messages."""
    network, runs = Network(), count(home, QUERIES["stuck"])
    with Wire(home.url, network) as wire:
        begun = time.monotonic()
        fleet = home.start_fleet(WORKERS, wire.url)
        with contextlib.suppress(AssertionError):  # the record says what is stuck
            # Without queries of our own until the last claim.
            until(lambda: len(network.taken_ms["claim"]) >= runs, "the last claim", PATIENCE_S)
            until(lambda: not count(home, QUERIES["stuck"]), "the last runs", PATIENCE_S)
        took_s = time.monotonic() - begun
        code, _ = end(fleet)
    return {"runs": runs, "took_s": round(took_s, 2), **network.spreads(), "fleet_exit_code": code}


def soak(home: House, minutes: float, queue: int, at_once: int = RUNS_AT_ONCE) -> dict[str, object]:
    """Load the server for this long, by experiments of `at_once` runs, end the fleet and the server with `queue` more
    runs queued, let new ones execute all runs, and return the record."""
    faults = Unreliable(seed=7, longest_s=LONGEST_S)
    load, network, submitted = Load(home.url), Network(faults), 0
    with Wire(home.url, network) as wire, Client(home.url, timeout_s=120) as client:
        fleet = home.start_fleet(WORKERS, wire.url)
        try:
            for name, (first, again) in ATTACKS.items():
                load.repeat(name, lambda first=first, again=again: load.attack(first, again), 1.0)  # type: ignore[misc]
            for path in READ:
                load.repeat(f"reads of {path}", lambda path=path: load.read(path), 1.0)  # type: ignore[misc]
            load.repeat("streams", load.follow, 1.0)
            load.repeat("looks", lambda: load.look(psutil.Process(home.server.popen.pid)), 1.0)
            over = time.monotonic() + 60 * minutes
            while time.monotonic() < over:
                if count(home, QUERIES["stuck"]) < at_once / 2:
                    submit_many(client, at_once)
                    submitted += at_once
                time.sleep(1)
        finally:
            load.end()
        submit_many(client, queue)
        submitted += queue
        code, fleet_s = end(fleet)
        faults.settle()
    server_code, server_s = end(home.server)
    home.start_server()
    until(lambda: not count(home, QUERIES["under_way"]), "the end of leases without a worker", PATIENCE_S)
    emptied = empty(home)
    found = {name: count(home, query) for name, query in QUERIES.items()}
    return {
        "minutes": minutes, "submitted": submitted, **found,
        "lost": submitted - found["runs"] + found["without_result"],
        "failures": dict(sorted(load.failures.items())),
        "under_load": {**network.spreads(), "healthz_ms": spread([1000 * each for each in load.answer_s])},
        "sigterm_to_end": {"fleet_s": fleet_s, "server_s": server_s, "exit_codes": [code, server_code]},
        "emptied": emptied, "network": {**network.seen, "repeated": len(faults.repeated)},
        "load": dict(sorted(load.done.items())),
        "server_rss_mib": grown([each / MIB for each in load.rss_bytes]),
        "children_rss_mib": spread([each / MIB for each in load.children_bytes]),
    }  # fmt: skip


def spread(values: list[float]) -> dict[str, float]:
    """Number, median, 99th percentile and maximum."""
    if len(values) < 2:
        return {"number": len(values)}
    return {
        "number": len(values), "median": round(statistics.median(values), 1), "max": round(max(values), 1),
        "p99": round(statistics.quantiles(values, n=100, method="inclusive")[98], 1),
    }  # fmt: skip


def grown(values: Sequence[float]) -> dict[str, object]:
    """The spread, and the median of each tenth of the time."""
    ends = [len(values) * tenth // 10 for tenth in range(11)]
    tenths = [values[first:last] for first, last in itertools.pairwise(ends) if last > first]
    return {**spread(list(values)), "tenths": [round(statistics.median(each), 1) for each in tenths]}


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
    kind = make_url(given.database).get_backend_name() if "://" in given.database else given.database
    about = {"schema": "taskloom.soak/1", "version": version(), "machine": machine()}
    with served(given.database) as home:
        found = soak(home, given.minutes, given.queue)
    at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    record = {**about, "at": at, "database": kind, **found}
    print(json.dumps(record, indent=1))
    if given.output:
        given.output.parent.mkdir(parents=True, exist_ok=True)
        given.output.write_text(json.dumps(record, separators=(",", ":")) + "\n")
    wrong = any(found[name] for name in ("lost", "doubled", "stuck", "failures"))
    return int(wrong or found["submitted"] != found["succeeded"])


if __name__ == "__main__":
    sys.exit(main())
