"""Load generators of bench.server: a lean HTTP client, and null workers."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

from gpt2core.spec.config import TrainConfig
from gpt2core.spec.phases import PHASES
from gpt2core.spec.result import SCHEMA, median

API = "/api/v1"


class Connection:
    """One persistent connection, leaner than a client library, which would take CPU time from the server."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self.tags: list[str] = []  # of the last answer

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def _open(self) -> None:
        if self._writer:
            self._writer.close()
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)

    async def __aexit__(self, *_: object) -> None:
        assert self._writer
        self._writer.close()

    async def ask(self, method: str, path: str, body: Any = None, etag: str | None = None) -> tuple[int, bytes]:
        """Status and body of the answer. Raises ConnectionError or EOFError."""
        content = b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
        head = f"{method} {API}{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        if etag is not None:
            head += f"If-None-Match: {etag}\r\n"
        request = f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content
        try:
            return await self._exchange(request)
        except (asyncio.IncompleteReadError, ConnectionError):  # the server closes idle connections after some seconds
            await self._open()
            return await self._exchange(request)

    async def _exchange(self, request: bytes) -> tuple[int, bytes]:
        assert self._reader
        assert self._writer
        self._writer.write(request)
        first, *lines = (await self._reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
        lengths = [int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:")]
        self.tags = [line.split(b":", 1)[1].strip().decode() for line in lines if line.startswith(b"etag:")]
        return int(first.split()[1]), await self._reader.readexactly(lengths[0] if lengths else 0)

    async def tagged(self, path: str) -> tuple[int, str]:
        """Status of an answer, and its ETag."""
        status, _ = await self.ask("GET", path)
        return status, self.tags[0] if self.tags else ""

    async def expect(self, method: str, path: str, body: Any = None) -> Any:
        """The answer's JSON. Ends the benchmark if the server refuses the request."""
        status, content = await self.ask(method, path, body)
        if status >= 300:
            raise SystemExit(f"{method} {path}: {status} {content.decode()[:500]}")
        return json.loads(content) if content else None


def upload(
    worker_id: str, attempt_no: int, steps: int = 12, spec: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A result as a worker sends it."""
    config = TrainConfig.from_dict(dict(spec or {"model": "tiny", "steps": steps, "seq": 16}))
    config = replace(config, warmup=2)
    step_s = [0.0123456789 + 0.0001 * i for i in range(steps)]
    result = {
        "schema": SCHEMA,
        "config": {**config.to_dict(), "batch_slice": 1, "token_slice": 16, "cores": [0]},
        "environment": {"node": "bench"},
        "losses": [5.5 - 0.1 * i for i in range(steps)],
        "step_s": step_s,
        "phase_s": {phase: [s / len(PHASES) for s in step_s] for phase in PHASES},
        "phase_busy_s": {phase: [s / len(PHASES) for s in step_s] for phase in PHASES},
        "ops": [{"op": "qkv", "phase": "forward", "calls": 1, "time_s": 0.01, "flop": 1000, "bytes": 1000}],
        "threads": [{"useful_s": sum(step_s[2:]), "barrier_s": 0.0, "starvation_s": 0.0, "idle_s": 0.0}],
        "memory_bytes": {"weights": 1},
        "weights_sha256": "0" * 64,
        "graph": {},
        "warnings": [],
        "summary": {},
    }
    payload = json.dumps({"result": result, "error": None})
    sha256 = hashlib.sha256(payload.encode()).hexdigest()
    return {
        "worker_id": worker_id, "attempt_no": attempt_no, "outcome": "succeeded", "sha256": sha256, "payload": payload,
    }  # fmt: skip


def result_text(config: TrainConfig, pick: random.Random) -> tuple[str, float]:
    """The text of a result with ops, threads and steps that scatter, and its median step."""
    given = json.loads(upload("past", 1, config.steps)["payload"])
    result, threads = given["result"], config.threads
    level = pick.gauss(0.01 / threads, 0.0001) * (0.97 if config.scheduler == "task" else 1.0)
    step_s = [pick.gauss(level, level / 50) for _ in range(config.steps)]
    ops = ["encoder", "layernorm", "qkv", "attention", "projection", "residual", "fc", "gelu", "adamw", "loss"]
    phase_s = {kind: [s / len(PHASES) for s in step_s] for kind in PHASES}
    result |= {
        "config": {**config.to_dict(), "cores": list(range(threads))},
        "environment": {"node": "past", "cpu_model": "some", "kernel": "6", "python": "3.11", "cores": [0, 1],
                        "load_average": [pick.random()]},
        "step_s": step_s,
        "phase_s": phase_s,
        "phase_busy_s": {kind: [s * threads for s in values] for kind, values in phase_s.items()},
        "ops": [{"op": op, "phase": phase, "calls": 40, "time_s": level, "flop": 1000000, "bytes": 4000, "blas": ""}
                for op in ops for phase in ("forward", "backward")],
        "threads": [{"thread": t, "core": t, "observed_cores": [t], "useful_s": sum(step_s[2:]) * 0.9,
                     "scheduling_s": sum(step_s[2:]) * 0.05, "waiting_s": sum(step_s[2:]) * 0.05, "barrier_s": 0.0,
                     "starvation_s": sum(step_s[2:]) * 0.05, "idle_s": 0.0, "calls": 400,
                     "phase_useful_s": dict.fromkeys(PHASES, level)} for t in range(threads)],
        "weights_sha256": f"{config.batch_slice:032}{config.token_slice:032}",
        "flagged": [[] for _ in step_s],
        "validity": {"steps": [{"switches": pick.randrange(5), "faults": pick.randrange(9)} for _ in step_s]},
    }  # fmt: skip
    return json.dumps(given), median(step_s[2:])


class NullWorker:
    """A worker on its own node, whose trainer takes no time."""

    def __init__(self, connection: Connection, number: int) -> None:
        self.connection = connection
        self.identity = {"worker_id": f"bench{number}", "boot_id": "1"}
        self._node = {"node": f"node{number}", "cores": [0], "memory_bytes": 8 << 30}

    async def register(self) -> None:
        await self.connection.expect("POST", "/workers", {**self.identity, **self._node})

    async def claim(self, wait_s: float) -> dict[str, Any] | None:
        """Claim a lease; None if there was none in time."""
        lease: dict[str, Any] | None = await self.connection.expect(
            "POST", "/leases", {**self.identity, "wait_s": wait_s}
        )
        return lease

    async def beat(self, lease: dict[str, Any]) -> None:
        body = {"worker_id": self.identity["worker_id"], "attempt_no": lease["attempt_no"]}
        progress = {"stage": "training", "step": 1, "steps": 12, "loss": 5.5, "tokens_per_s": 1000.0}
        await self.connection.expect(
            "POST", f"/attempts/{lease['attempt_id']}/heartbeat", {**body, "progress": progress}
        )

    async def finish(self, lease: dict[str, Any]) -> None:
        body = upload(self.identity["worker_id"], lease["attempt_no"], spec=lease["spec"])
        await self.connection.expect("PUT", f"/attempts/{lease['attempt_id']}/result", body)

    async def drain_quietly(self) -> None:
        """Hand back an unfinished lease."""
        lease = await self.claim(0.0)
        if lease is not None:
            await self.finish(lease)

    async def drain(self, claims_s: list[float]) -> None:
        """Execute runs until the queue is empty. Records the duration of each successful claim."""
        while True:
            started = time.perf_counter()
            lease = await self.claim(0.0)
            if lease is None:
                return
            claims_s.append(time.perf_counter() - started)
            await self.beat(lease)
            await self.finish(lease)
