"""The part `readers` of bench.server: analyses of a large experiment, and latency of workers beside readers, also with
exports that nobody reads."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import select
import socket
import time
from collections.abc import Iterator
from typing import Any

import psutil
from sqlalchemy import insert

from bench.server_http import API, Connection, NullWorker, result_text
from bench.server_store import Served
from gpt2core.spec.config import TrainConfig
from taskloom.server.db import Database, now
from taskloom.server.queue.attempts import payload
from taskloom.server.queue.attempts.digest import digest
from taskloom.server.queue.experiments import canonical
from taskloom.server.queue.tables.attempts import Attempt, Digest, Result
from taskloom.server.queue.tables.experiments import Block, Experiment
from taskloom.server.queue.tables.runs import Run
from taskloom.server.queue.tables.workers import Worker

AXES: dict[str, list[Any]] = {
    "scheduler": ["fork-join", "task"], "threads": [1, 2], "batch_slice": [1, 2], "token_slice": [4, 8, 16, 2, 1],
}  # fmt: skip
BASE = {"model": "tiny", "warmup": 2, "seq": 16, "batch": 2}
VARIANTS = 40
ANALYSES = ("scaling", "sweep", "efficiency", "roofline", "memory", "forecast", "report")
TIMED = ("scaling", "sweep", "report")
FORMATS = ("csv", "parquet")  # of exports


async def readers(served: Served, given: argparse.Namespace) -> dict[str, Any]:
    """First and cached answers of a quiet server; then claims and heartbeats beside all readers and streams, and beside
    exports too."""
    fill(served.database_url, given.measured, given.steps)
    first_s, again_s, unchanged_s = {}, {}, {}
    async with Connection(served.port) as connection:
        await connection.ask("GET", "/analysis/calibration")  # a process has started
        for kind in TIMED:
            path = f"/analysis/{kind}?experiment_id=1"
            first_s[kind] = await _timed(connection, path)
            again_s[kind] = [await _timed(connection, path) for _ in range(20)]
            _, etag = await connection.tagged(path)
            unchanged_s[kind] = [await _timed(connection, path, etag) for _ in range(20)]
            print(f"readers: {kind} {first_s[kind]:.2f} s, then {1e3 * min(again_s[kind]):.0f} ms", flush=True)
    return {
        **{name: getattr(given, name) for name in ("measured", "steps", "readers", "streams", "exports")},
        "first_s": first_s, "again_s": again_s, "unchanged_s": unchanged_s, "idle": await _load(served, given),
        "beside": await _load(served, given, given.readers, given.streams),
        "unread": await _load(served, given, given.readers, given.streams, given.exports),
    }  # fmt: skip


async def _timed(connection: Connection, path: str, etag: str | None = None) -> float:
    started = time.perf_counter()
    status, content = await connection.ask("GET", path, etag=etag)
    if status not in (200, 304, 504):
        raise SystemExit(f"{path}: {status} {content.decode()[:500]}")
    return time.perf_counter() - started if status != 504 else float("inf")


async def _load(
    served: Served, given: argparse.Namespace, readers: int = 0, streams: int = 0, exports: int = 0
) -> dict[str, Any]:
    """Workers claim, send heartbeats and finish at a fixed pace for a time; figures of their requests and of the
    server's memory."""
    answers: dict[str, int] = {}
    beats_s: list[float] = []
    claims_s: list[float] = []
    rss: list[int] = []
    async with contextlib.AsyncExitStack() as stack:
        connections = [await stack.enter_async_context(Connection(served.port)) for _ in range(8)]
        workers = [NullWorker(connection, number) for number, connection in enumerate(connections)]
        for worker in workers:
            await worker.register()
        runs = {"base": {"model": "tiny", "steps": 12, "seq": 16, "threads": 1}, "order": "sequential"}
        await connections[0].expect("POST", "/experiments", {**runs, "axes": {"seed": list(range(1000))}})
        until = time.perf_counter() + given.load_s
        others = [asyncio.create_task(_stream(served.port)) for _ in range(streams)]
        for number in range(readers):
            others.append(asyncio.create_task(_read(served.port, number, answers)))
        for number in range(exports):
            others.append(asyncio.create_task(_leave_unread(served.port, FORMATS[number % len(FORMATS)])))
        pace = [asyncio.create_task(_work(worker, until, beats_s, claims_s)) for worker in workers]
        while time.perf_counter() < until:
            await asyncio.sleep(0.5)
            rss.append(served.process.memory_info().rss)
        await asyncio.gather(*pace)
        listening = sum(not task.done() for task in others[:streams])
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for worker in workers:
            await worker.drain_quietly()
    apart = [child.memory_info().rss for child in served.process.children() if child.status() != psutil.STATUS_ZOMBIE]
    return {"heartbeat_s": beats_s, "claim_s": claims_s, "rss_bytes": rss, "answers": answers,
            "streams_at_the_end": listening, "rss_of_its_processes_bytes": apart}  # fmt: skip


async def _work(worker: NullWorker, until: float, beats_s: list[float], claims_s: list[float]) -> None:
    """A claim, four heartbeats and a result, about a second in all."""
    while time.perf_counter() < until:
        started = time.perf_counter()
        lease = await worker.claim(0.0)
        claims_s.append(time.perf_counter() - started)
        assert lease is not None
        for _ in range(4):
            await asyncio.sleep(random.uniform(0.15, 0.35))
            started = time.perf_counter()
            await worker.beat(lease)
            beats_s.append(time.perf_counter() - started)
        await worker.finish(lease)


async def _read(port: int, number: int, answers: dict[str, int]) -> None:
    """Request every analysis in turn, without a pause."""
    async with Connection(port) as connection:
        while True:
            for kind in (*ANALYSES[number % len(ANALYSES) :], *ANALYSES[: number % len(ANALYSES)]):
                status, _ = await connection.ask("GET", f"/analysis/{kind}?experiment_id=1")
                answers[f"{kind} {status}"] = answers.get(f"{kind} {status}", 0) + 1


async def _stream(port: int) -> None:
    """Listen to the experiment that the workers run, until cancelled."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"GET /api/v1/experiments/2/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        while await reader.read(1 << 16):
            pass
    finally:
        writer.close()


async def _leave_unread(port: int, form: str) -> None:
    """Request all steps in a format and read nothing; again, as soon as the server has ended the connection."""
    loop = asyncio.get_running_loop()
    while True:
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # before it connects
            connection.setblocking(False)
            await loop.sock_connect(connection, ("127.0.0.1", port))
            await loop.sock_sendall(
                connection, f"GET {API}/exports/steps?format={form} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
            )
            ended = select.poll()
            ended.register(connection, select.POLLRDHUP)
            while not ended.poll(0):
                await asyncio.sleep(0.2)


def fill(url: str, runs: int, steps: int = 12) -> None:
    """Store an experiment of succeeded runs with results as a trainer writes them."""
    pick = random.Random(1337)
    database = Database(url)
    names = list(AXES)
    variants = list(_product(names))
    with database.write() as session:
        at = now(session) - 86400
        request = {"base": {"model": "tiny"}, "axes": AXES, "repetitions": runs // VARIANTS}
        session.add(Experiment(
            name="many", request=request, request_sha256="", owner="anybody", runs=runs, created_at=at, started_at=at,
            finished_at=at + runs, alerts_at=at + runs,
        ))  # fmt: skip
        session.add(Worker(
            worker_id="past", boot_id="1", node="past", cores=[0, 1], core_set="0,1", memory_bytes=1 << 33, labels={},
            software={}, topology={}, registered_at=at, seen_at=at,
        ))  # fmt: skip
        session.flush()
        block = {"experiment_id": 1, "cores_needed": 1, "memory_needed_bytes": 1, "pinned_cores": ""}
        session.execute(insert(Block), [{**block, "number": n} for n in range(runs // VARIANTS)])
        for repetition in range(runs // VARIANTS):
            rows: dict[type, list[dict[str, Any]]] = {Run: [], Attempt: [], Result: [], Digest: []}
            for place, variant in enumerate(pick.sample(variants, VARIANTS)):
                number = repetition * VARIANTS + place + 1
                spec = TrainConfig.from_dict({**BASE, "steps": steps, **variant})
                text, median_s = result_text(spec, pick)
                rows[Run].append({
                    "id": number, "experiment_id": 1, "position": number - 1, "block": repetition,
                    "repetition": repetition + 1,
                    "variant": variant, "spec": spec.to_dict(), "shape": canonical.sha256(variant), "rank": 0,
                    "cores_needed": 1, "pinned_cores": "", "memory_needed_bytes": 1, "timeout_s": 3600.0,
                    "state": "succeeded", "attempts": 1, "losses": 0, "created_at": at, "queued_at": at,
                    "finished_at": at + number, "median_step_s": median_s, "purpose": "timing", "trace": False,
                })  # fmt: skip
                rows[Attempt].append({
                    "id": number, "run_id": number, "attempt_no": 1, "worker_id": "past", "boot_id": "1",
                    "node": "past", "core_set": "0,1", "purpose": "timing", "state": "succeeded", "claimed_at": at,
                    "expires_at": at, "deadline_at": at, "finished_at": at + number,
                })  # fmt: skip
                rows[Result].append({
                    "attempt_id": number, "run_id": number, "outcome": "succeeded", "sha256": "0" * 64,
                    "payload": payload.pack(text), "canonical": True, "received_at": at + number,
                })  # fmt: skip
                rows[Digest].append({"attempt_id": number, **digest(json.loads(text)["result"])})
            for table, values in rows.items():
                session.execute(insert(table), values)
        if not database.is_sqlite:
            from sqlalchemy import text as sql

            for name in ("run", "attempt"):
                session.execute(sql(f"SELECT setval(pg_get_serial_sequence('{name}', 'id'), {runs})"))
    database.close()


def _product(names: list[str]) -> Iterator[dict[str, Any]]:
    import itertools

    for values in itertools.product(*(AXES[name] for name in names)):
        yield dict(zip(names, values, strict=True))


def rows(part: dict[str, Any], quantiles: Any) -> list[tuple[str, str]]:
    """Result of the part as text."""
    out = []
    for kind, first_s in part["first_s"].items():
        again, unchanged = quantiles(part["again_s"][kind]), quantiles(part["unchanged_s"][kind])
        of = f"{kind} of {part['measured']:,} runs of {part['steps']:,} steps"
        out.append((f"{of}: first; again, p50 / p99; unchanged (304)", f"{first_s:.2f} s; {again}; {unchanged}"))
    beside = f"{part['readers']} readers, {part['streams']} streams"
    for name, what in (
        ("idle", "nobody reads"), ("beside", beside), ("unread", f"{beside}, {part['exports']} unread exports"),
    ):  # fmt: skip
        found = part[name]
        for key in ("heartbeat_s", "claim_s"):
            out.append((f"{key.removesuffix('_s')}, {what}, p50 / p99, n = {len(found[key])}", quantiles(found[key])))
        most = max(found["rss_bytes"]) / 2**20
        out.append((f"most resident memory of the server's process, {what}", f"{most:.0f} MiB"))
        if name == "idle":
            continue
        answers = ", ".join(f"{kind}: {count}" for kind, count in sorted(found["answers"].items()))
        apart = ", ".join(f"{size / 2**20:.0f} MiB" for size in found["rss_of_its_processes_bytes"])
        out += [
            ("answers meanwhile, by kind and status", answers),
            ("streams open at the end", str(found["streams_at_the_end"])),
            ("resident memory of the processes that compute", apart),
        ]
    return out
