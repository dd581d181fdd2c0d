"""The application behind several HTTP servers, attacked: memory, the time of another client's request, and whether the
connection ends.

    pip install granian hypercorn
    python -m bench.http_servers --seconds 12

Servers: uvicorn with our protocol (server/connections.py), as `taskloom serve` starts it; uvicorn with its httptools;
granian; hypercorn. Each has one process of the application on the same database, and as many limits as the application
itself has. An attack has its own server process, which holds nothing of the attack before. All of it stays on loopback.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import psutil

from bench import server_readers, server_store
from bench.record import ROOT, Measured, head, machine, out_option, save

MIB = 1 << 20
HEAD = b"GET /api/v1%s HTTP/1.1\r\nHost: localhost\r\n"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
STARTED_S, ANSWERS_S, AFTER_S = 60.0, 2.0, 8.0  # to start; for answers to what was sent; until memory is given back
RUNS = 10_000  # 120,000 rows of an export of steps


@dataclass(frozen=True)
class Attack:
    """What each of `connections` sends first, and then again and again; nothing of an answer is read, but its first
    line at the end."""

    first: bytes
    again: bytes = b""
    connections: int = 1


ATTACKS = {
    "trailers without end": Attack(
        HEAD % b"/events?topic=overview" + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X-T: " + b"y" * 1000 + b"\r\n"
    ),
    "pipelined requests": Attack(b"", (HEALTH + b"\r\n") * 1000),
    "headers without end": Attack(HEALTH, b"X-Large: " + b"y" * 1000 + b"\r\n"),
    "a header of 100 kB": Attack(HEALTH + b"X-Large: " + b"y" * 100_000 + b"\r\n\r\n"),
    "5,000 headers": Attack(HEALTH + b"".join(b"X-%d: y\r\n" % each for each in range(5000)) + b"\r\n"),
    "40 unread exports": Attack(HEAD % b"/exports/steps?format=csv" + b"\r\n", connections=40),
    "chunks of a byte": Attack(
        b"POST /api/v1/experiments HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n" * 1000
    ),
}  # fmt: skip
APPLICATION = "bench.http_servers:application"
SERVERS = {
    "ours": ["taskloom.server", "--port", "{port}"],
    "uvicorn": ["uvicorn", APPLICATION, "--port", "{port}", "--http", "httptools", "--factory"],
    "granian": ["granian", APPLICATION, "--interface", "asgi", "--port", "{port}", "--factory"],
    "hypercorn": ["hypercorn", f"{APPLICATION}()", "--bind", "127.0.0.1:{port}"],
}


def application() -> Any:
    """The application that the other servers load."""
    from taskloom.server.main import create_app
    from taskloom.server.settings import Settings

    return create_app(Settings.read())


@dataclass
class Outcome:
    """Bytes that were sent, memory of the server (before, most, some seconds after all has ended), the
    longest time of another client's request, connections that the server ended, and the first line of an answer."""

    before_bytes: int
    most_bytes: int = 0
    after_bytes: int = 0
    sent_bytes: int = 0
    longest_s: float = 0.0
    ended: int = 0
    answers: set[str] = field(default_factory=set)


@contextlib.contextmanager
def served(server: str, database_url: str) -> Iterator[tuple[int, psutil.Process]]:
    """A server's port and process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [sys.executable, "-m", *(each.format(port=port) for each in SERVERS[server])], stdout=said, stderr=said,
            cwd=ROOT, env={**os.environ, "TASKLOOM_DATABASE_URL": database_url},
        )  # fmt: skip
        try:
            until = time.monotonic() + STARTED_S
            while not _answers(port):
                if process.poll() is not None or time.monotonic() > until:
                    said.seek(0)
                    raise SystemExit(f"{server} did not start:\n{said.read().decode()[-2000:]}")
                time.sleep(0.1)
            yield port, psutil.Process(process.pid)
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _answers(port: int) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=5).is_success
    return False


def memory_bytes(process: psutil.Process) -> int:
    """Of a server's processes, but for those in which the application computes analyses and writes exports."""
    total = 0
    for each in (process, *process.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += 0 if "anyio.to_process" in each.cmdline() else each.memory_info().rss
    return total


def strike(attack: Attack, port: int, over: threading.Event, outcome: Outcome, lock: threading.Lock) -> None:
    """One connection of an attack, until the time is over or the server ends it."""
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # before it connects
        connection.settimeout(0.5)
        connection.connect(("127.0.0.1", port))
        data, sent, ended, line = attack.first or attack.again, 0, False, b""
        try:
            while not over.is_set():
                if not data:
                    over.wait(0.2)
                    continue
                with contextlib.suppress(TimeoutError):
                    count = connection.send(data)
                    sent, data = sent + count, data[count:] or attack.again
            connection.settimeout(1.0)
            received = connection.recv(1 << 16)
            line = received.partition(b"\r\n")[0]
            until = time.monotonic() + ANSWERS_S
            while received and time.monotonic() < until:
                received = connection.recv(1 << 20)
            ended = not received
        except TimeoutError:
            pass  # it is open still, and all that was sent has been read
        except ConnectionError:
            ended = True
    with lock:
        outcome.sent_bytes, outcome.ended = outcome.sent_bytes + sent, outcome.ended + ended
        outcome.answers.add(line.decode(errors="replace"))


def measure(server: str, attack: Attack, database_url: str, seconds: float) -> Outcome:
    """Attack a new server process for some seconds, while another client asks whether it lives."""
    with served(server, database_url) as (port, process), httpx.Client(timeout=60) as other:
        outcome, over, lock = Outcome(memory_bytes(process)), threading.Event(), threading.Lock()
        threads = [
            threading.Thread(target=strike, args=(attack, port, over, outcome, lock))
            for _ in range(attack.connections)
        ]
        for thread in threads:
            thread.start()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            begin = time.monotonic()
            try:
                other.get(f"http://127.0.0.1:{port}/healthz")
                outcome.longest_s = max(outcome.longest_s, time.monotonic() - begin)
            except httpx.HTTPError:
                outcome.longest_s = float("inf")
            outcome.most_bytes = max(outcome.most_bytes, memory_bytes(process))
            time.sleep(0.1)
        over.set()
        for thread in threads:
            thread.join()
        time.sleep(AFTER_S)
        outcome.after_bytes = memory_bytes(process)
    return outcome


def table(report: Measured) -> str:
    of = report["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    lines = [
        f"# HTTP servers under attack, {report['at'][:10]}", "",
        f"Machine: {of['cpu_model']}, {of['cores']} cores; load average before {of['load_average'][0]:.1f}. "
        f"{versions}. Each attack: {report['seconds']:g} s, on a new process. Memory of the server: before; more at "
        f"most; more {AFTER_S:g} s after the end.", "",
        "| attack | server | sent, MiB | memory, MiB | longest /healthz, s | connections ended | answer |",
        "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for row in report["rows"]:
        memory = f"{row['before_mib']:.0f}; +{row['more_mib']:.0f}; {row['after_mib']:+.0f}"
        lines.append(
            f"| {row['attack']} | {row['server']} | {row['sent_mib']:.1f} | {memory} | {row['longest_s']:.2f} | "
            f"{row['ended']} of {row['connections']} | {', '.join(filter(None, row['answers'])) or 'none'} |"
        )
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.http_servers", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--seconds", type=float, default=12.0, help="of each attack")
    parser.add_argument("--servers", default=",".join(SERVERS), help="default: %(default)s")
    out_option(parser, "http-servers")
    given = parser.parse_args(arguments)
    servers = given.servers.split(",")
    if unknown := set(servers) - SERVERS.keys():
        parser.error(f"--servers {', '.join(sorted(unknown))}: any of {', '.join(SERVERS)}")
    try:
        versions = {name: importlib.metadata.version(name) for name in ("uvicorn", *servers) if name != "ours"}
    except importlib.metadata.PackageNotFoundError as missing:
        parser.error(f"{missing.name} is not installed: pip install {missing.name}")
    before, rows = machine(), []
    with server_store.database("sqlite", None) as url:
        with server_store.serve(url):
            server_readers.fill(url, RUNS)
        for name, attack in ATTACKS.items():
            for server in servers:
                found = measure(server, attack, url, given.seconds)
                rows.append({
                    "attack": name, "server": server, "connections": attack.connections, "ended": found.ended,
                    "sent_mib": round(found.sent_bytes / MIB, 2), "before_mib": round(found.before_bytes / MIB),
                    "more_mib": round((found.most_bytes - found.before_bytes) / MIB, 1),
                    "after_mib": round((found.after_bytes - found.before_bytes) / MIB, 1),
                    "longest_s": round(found.longest_s, 3), "answers": sorted(found.answers),
                })  # fmt: skip
                print(rows[-1], flush=True)
    report = {**head("taskloom.bench.http-servers/1", before), "seconds": given.seconds, "versions": versions,
              "rows": rows}  # fmt: skip
    save(given.out, report, table(report))


if __name__ == "__main__":
    main()
