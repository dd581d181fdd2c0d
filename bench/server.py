"""The server under load, on both databases: throughput, latency and memory.

    python -m bench.server --database sqlite,postgres --quick

drain    many workers with null trainers empty a full queue at once; SQL counts runs and results at the end
submit   experiments of one run, from several clients
latency  from a submission to the lease in the hands of an idle worker that waits for one
queries  lists, filters and details over a long history with samples (PostgreSQL only)
largest  the largest requests that a submit key may send: processor time and memory that each takes
readers  analyses of an experiment of many runs; claims and heartbeats beside many readers and event streams, without
         and with exports that nobody reads
memory   an hour of heartbeats, as fast as they are answered; the server's resident memory meanwhile

Server, database and load share this machine; nothing leaves loopback. Each part ends by itself. Parts are recorded in
--out (.json, with raw samples, and .md); a repeated part replaces its record.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import json
import random
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import numpy as np

from bench import server_largest, server_readers
from bench.record import command, machine, out_option
from bench.server_http import Connection, NullWorker
from bench.server_largest import largest
from bench.server_readers import readers
from bench.server_store import RUNS_OF_EXPERIMENT, Served, database, fill, serve
from taskloom.server.read.lists.keyset import Place

BASE = {"base": {"model": "tiny", "steps": 12, "seq": 16, "threads": 1}, "order": "sequential"}
MIB = 1 << 20
Figures = dict[str, Any]


def say(text: str) -> None:
    print(text, flush=True)


def submission(runs: int) -> dict[str, Any]:
    return {**BASE, "axes": {"seed": list(range(runs))}}


async def drain(served: Served, given: argparse.Namespace) -> Figures:
    """Workers empty the queue; every run is executed once."""
    async with contextlib.AsyncExitStack() as stack:
        workers = await _workers(stack, served, given.workers)
        started = time.perf_counter()
        experiment = await workers[0].connection.expect("POST", "/experiments", submission(given.runs))
        submit_s = time.perf_counter() - started
        claims_s: list[float] = []
        started = time.perf_counter()
        pending = {asyncio.create_task(worker.drain(claims_s)) for worker in workers}
        while pending:
            done, pending = await asyncio.wait(pending, timeout=5)
            for task in done:
                task.result()
            say(f"drain: {len(claims_s)} of {given.runs} runs claimed, {time.perf_counter() - started:.0f} s")
        elapsed_s = time.perf_counter() - started
    of = f"WHERE experiment_id = {experiment['id']}"
    books = {
        "runs": f"SELECT count(*) FROM run {of}",
        "succeeded": f"SELECT count(*) FROM run {of} AND state = 'succeeded' AND attempts = 1",
        "results": f"SELECT count(*) FROM result JOIN run ON run.id = run_id {of} AND canonical",
        "attempts": f"SELECT count(*) FROM attempt JOIN run ON run.id = run_id {of}",
    }
    counted = {name: served.sql(query) for name, query in books.items()}
    if set(counted.values()) != {given.runs}:
        raise SystemExit(f"{given.runs} runs were submitted, and the database has {counted}")
    return {
        "workers": given.workers, **counted, "submit_s": submit_s, "elapsed_s": elapsed_s,
        "runs_per_s": given.runs / elapsed_s, "requests_per_s": 3 * given.runs / elapsed_s, "claim_s": claims_s,
    }  # fmt: skip


async def submit(served: Served, given: argparse.Namespace) -> Figures:
    """Submissions of one run each, from several simultaneous clients."""
    taken_s: list[float] = []

    async def client() -> None:
        async with Connection(served.port) as connection:
            for _ in range(given.submissions // given.clients):
                started = time.perf_counter()
                await connection.expect("POST", "/experiments", BASE)
                taken_s.append(time.perf_counter() - started)

    started = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(given.clients)))
    elapsed_s = time.perf_counter() - started
    return {"clients": given.clients, "per_s": len(taken_s) / elapsed_s, "elapsed_s": elapsed_s, "submit_s": taken_s}


async def latency(served: Served, given: argparse.Namespace) -> Figures:
    """Time from sending a submission, and from its answer, to the arrival of its lease."""
    async with contextlib.AsyncExitStack() as stack:
        (worker,) = await _workers(stack, served, 1)
        await worker.drain([])
        user = await stack.enter_async_context(Connection(served.port))
        whole_s, after_answer_s = [], []
        for i in range(given.samples):
            polling = asyncio.create_task(worker.claim(25.0))
            await asyncio.sleep(random.Random(i).uniform(0.05, 0.1))  # the poll has arrived and found nothing
            started = time.perf_counter()
            await user.expect("POST", "/experiments", BASE)
            answered = time.perf_counter()
            lease = await polling
            arrived = time.perf_counter()
            assert lease is not None
            whole_s.append(arrived - started)
            after_answer_s.append(max(0.0, arrived - answered))
            await worker.finish(lease)
    return {"latency_s": whole_s, "after_answer_s": after_answer_s}


async def queries(served: Served, given: argparse.Namespace) -> Figures:
    """Requests of each kind, in random order, one at a time."""
    fill(served, given.history)
    pick = random.Random(1337)
    experiments = given.history // RUNS_OF_EXPERIMENT

    def run() -> int:
        return pick.randrange(experiments) * RUNS_OF_EXPERIMENT + pick.randrange(20, RUNS_OF_EXPERIMENT) + 1

    def page() -> Place:
        return Place(None, run())

    kinds: dict[str, Callable[[], str]] = {
        "list, first page": lambda: "/runs",
        "list, any page": lambda: f"/runs?cursor={page()}",
        "list, 500 a page": lambda: f"/runs?limit=500&cursor={page()}",
        "filter by experiment": lambda: f"/runs?experiment_id={pick.randint(1, experiments)}",
        "filter by state, common": lambda: f"/runs?state=succeeded&cursor={page()}",
        "filter by state, rare": lambda: f"/runs?state=quarantined&cursor={page()}",
        "filter by two rare states": lambda: f"/runs?state=quarantined&state=cancelled&cursor={page()}",
        "filter by a state of nobody": lambda: "/runs?state=running",
        "filter by experiment and state": lambda: f"/runs?state=failed&experiment_id={pick.randint(1, experiments)}",
        "experiments": lambda: "/experiments",
        "run": lambda: f"/runs/{run()}",
        "run, queued": lambda: f"/runs/{pick.randrange(experiments) * RUNS_OF_EXPERIMENT + 1}",
        "samples": lambda: f"/runs/{run()}/samples",
        "experiment": lambda: f"/experiments/{pick.randint(1, experiments)}",
    }
    order = [kind for kind in kinds for _ in range(given.samples)]
    pick.shuffle(order)
    taken_s: dict[str, list[float]] = {kind: [] for kind in kinds}
    async with Connection(served.port) as connection:
        for kind in kinds:
            await connection.expect("GET", kinds[kind]())
        for i, kind in enumerate(order):
            path = kinds[kind]()
            started = time.perf_counter()
            status, content = await connection.ask("GET", path)
            taken_s[kind].append(time.perf_counter() - started)
            if status not in (200, 404):
                raise SystemExit(f"{path}: {status} {content.decode()[:500]}")
            if i % 500 == 0:
                say(f"queries: {i} of {len(order)}")
    return {"history": given.history, "stored": served.sql("SELECT count(*) FROM run"), "answer_s": taken_s}


async def memory(served: Served, given: argparse.Namespace) -> Figures:
    """Workers with a lease send heartbeats in turn."""
    rss_bytes: list[int] = []
    async with contextlib.AsyncExitStack() as stack:
        workers = await _workers(stack, served, given.workers)
        await workers[0].connection.expect("POST", "/experiments", submission(given.workers))
        leases = [await worker.claim(5.0) for worker in workers]
        lanes = [list(range(lane, given.workers, given.lanes)) for lane in range(given.lanes)]
        started = time.perf_counter()
        for beat in range(given.beats):

            async def lane(numbers: list[int]) -> None:
                for number in numbers:
                    lease = leases[number]
                    assert lease is not None
                    await workers[number].beat(lease)

            await asyncio.gather(*map(lane, lanes))
            rss_bytes.append(served.process.memory_info().rss)
            if given.most_s is not None and time.perf_counter() - started > given.most_s:
                break
            if beat % 10 == 0:
                say(f"memory: beat {beat} of {given.beats}, {rss_bytes[-1] / MIB:.1f} MiB")
        elapsed_s = time.perf_counter() - started
    beats = given.workers * len(rss_bytes)
    return {"workers": given.workers, "beats": beats, "beats_per_s": beats / elapsed_s, "rss_bytes": rss_bytes}


async def _workers(stack: contextlib.AsyncExitStack, served: Served, count: int) -> list[NullWorker]:
    connections = [await stack.enter_async_context(Connection(served.port)) for _ in range(count)]
    workers = [NullWorker(connection, number) for number, connection in enumerate(connections)]
    for worker in workers:
        await worker.register()
    return workers


PARTS: dict[str, Callable[[Served, argparse.Namespace], Coroutine[Any, Any, Figures]]] = {
    "latency": latency, "submit": submit, "drain": drain, "queries": queries, "memory": memory,
    "readers": readers, "largest": largest,
}  # fmt: skip
FULL = {"runs": 10_000, "workers": 500, "submissions": 1000, "samples": 200, "beats": 240, "history": 1_000_000,
        "measured": 10_000, "steps": 12, "readers": 40, "streams": 200, "exports": 40, "load_s": 60}
QUICK = {"runs": 500, "workers": 50, "submissions": 100, "samples": 30, "beats": 20, "history": 10_000,
         "measured": 400, "steps": 12, "readers": 8, "streams": 20, "exports": 8, "load_s": 8}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.server", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--database", default="sqlite,postgres", help="sqlite, postgres or both with a comma")
    parser.add_argument("--parts", default=",".join(PARTS), help=", ".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="a small part of everything, in about a minute")
    parser.add_argument("--clients", type=int, default=8, help="simultaneous submitters")
    parser.add_argument("--most-s", type=float, help="time limit of the heartbeats")
    parser.add_argument("--lanes", type=int, default=8, help="simultaneous heartbeats")
    for name, value in FULL.items():
        parser.add_argument(f"--{name}", type=int, help=f"default: {value}, with --quick {QUICK[name]}")
    parser.add_argument("--keep", type=Path, help="folder in which databases are kept (default: temporary)")
    out_option(parser, "server")
    given = parser.parse_args()
    for name, value in (QUICK if given.quick else FULL).items():
        if getattr(given, name) is None:
            setattr(given, name, value)
    kinds, parts = given.database.split(","), given.parts.split(",")
    if set(kinds) - {"sqlite", "postgres"} or set(parts) - set(PARTS):
        parser.error("--database is sqlite, postgres or both; --parts are " + ", ".join(PARTS))
    for kind in kinds:
        for part in parts:
            if (kind, part) == ("sqlite", "queries"):
                continue
            say(f"{kind}: {part}")
            before = machine()
            folder = None if given.keep is None else given.keep / kind / ("history" if part == "queries" else part)
            with database(kind, folder) as url, serve(url) as served:
                figures: Figures = asyncio.run(PARTS[part](served, given))
            record(given.out, kind, part, before, figures)


def record(out: Path, kind: str, part: str, on: Figures, figures: Figures) -> None:
    """Store a part's figures in the report, and write the report."""
    path = out.with_name(out.name + ".json")
    report: Figures = {"schema": "taskloom.bench.server/1"}
    if path.exists():
        report = json.loads(path.read_text(encoding="utf-8"))
    at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    on = {**on, "load_average_after": machine()["load_average"]}
    record = {"at": at, "command": command(), "machine": on, **figures}
    report.setdefault("parts", {})[f"{kind} {part}"] = record
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(_rounded(report), separators=(",", ":")) + "\n", encoding="utf-8")
    text = table(report)
    out.with_name(out.name + ".md").write_text(text, encoding="utf-8")
    say(text)


def _rounded(value: Any) -> Any:
    """Seconds to the microsecond: raw samples need no more."""
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value


def table(report: Figures) -> str:
    """The report as Markdown."""
    parts = report["parts"]
    on = next(iter(parts.values()))["machine"]
    lines = [
        f"# The server under load, {min(part['at'] for part in parts.values())[:10]}", "",
        f"Machine: {on['cpu_model']}, {on['cores']} cores, {on['memory_bytes'] / (1 << 30):.0f} GiB, Linux "
        f"{on['kernel']}, shared by one server process, its database and the load; databases durable (SQLite WAL, "
        "synchronous FULL; PostgreSQL 18 as it comes, over a Unix socket). Raw samples: the .json beside this file.",
        "", "| database, part | what | figure | load average before, after |", "|---|---|---|---|",
    ]  # fmt: skip
    for name, part in parts.items():
        load = f"{part['machine']['load_average'][0]:.1f}, {part['machine']['load_average_after'][0]:.1f}"
        lines += [f"| {name} | {what} | {figure} | {load} |" for what, figure in rows(part)]
    return "\n".join(lines) + "\n"


def rows(part: Figures) -> list[tuple[str, str]]:
    """Result of a part as text."""
    if "first_s" in part:
        return server_readers.rows(part, quantiles)
    if "largest" in part:
        return server_largest.rows(part)
    out = []
    if "runs_per_s" in part:
        out += [
            (f"{part['runs']} runs, {part['workers']} workers at once", f"{part['elapsed_s']:.1f} s"),
            ("runs a second (claim, heartbeat, result)", f"{part['runs_per_s']:.0f}"),
            ("requests a second", f"{part['requests_per_s']:.0f}"),
            ("runs, attempts, canonical results in SQL", f"{part['runs']}, {part['attempts']}, {part['results']}"),
            (f"submission of {part['runs']} runs", f"{part['submit_s']:.2f} s"),
        ]
    if "per_s" in part:
        out.append((f"submissions a second, {part['clients']} clients", f"{part['per_s']:.0f}"))
    for key, what in (("claim_s", "claim answered"), ("submit_s", "submission answered"),
                      ("latency_s", "lease after submission was sent"),
                      ("after_answer_s", "lease after submission was answered")):  # fmt: skip
        if isinstance(part.get(key), list):
            out.append((f"{what}, p50 / p99, n = {len(part[key])}", quantiles(part[key])))
    for kind, taken_s in part.get("answer_s", {}).items():
        out.append((f"{kind}, {part['stored']:,} runs stored, p50 / p99, n = {len(taken_s)}", quantiles(taken_s)))
    if "rss_bytes" in part:
        rss, tenth = part["rss_bytes"], max(1, len(part["rss_bytes"]) // 10)
        first, last = np.mean(rss[tenth : 2 * tenth]), np.mean(rss[-tenth:])
        out += [
            (f"heartbeats of {part['workers']} workers", f"{part['beats']:,}, {part['beats_per_s']:.0f} a second"),
            ("resident memory, second and last tenth", f"{first / MIB:.1f} MiB, {last / MIB:.1f} MiB"),
            ("most", f"{max(rss) / MIB:.1f} MiB"),
        ]
    return out


def quantiles(values_s: list[float]) -> str:
    return " / ".join(f"{1e3 * q:.1f}" for q in np.quantile(values_s, [0.5, 0.99])) + " ms"


if __name__ == "__main__":
    main()
