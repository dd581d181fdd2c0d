"""The part `largest` of bench.server: cost of the largest requests that a `submit` key may send."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import psutil

from bench.server_http import Connection
from bench.server_store import Served

RUNS = 10_000  # TASKLOOM_MAX_RUNS
BASE = {"model": "tiny", "steps": 12, "seq": 16, "threads": 1}
SEEDS = {"base": BASE, "axes": {"seed": list(range(RUNS))}}
IN_TURN = {**SEEDS, "order": "sequential"}  # a block for each
REPEATED = {"base": BASE, "axes": {"seed": list(range(10))}, "repetitions": 1000}
SHAPES = {  # the largest number in a submission
    "base": {**BASE, "batch": 50, "seq": 100},
    "axes": {"batch_slice": list(range(1, 51)), "token_slice": list(range(1, 101))},
    "repetitions": 1,
}
TEAMS = {  # all but the widest get its slices
    "base": {"model": "tiny", "steps": 12, "batch": 50, "seq": 100},
    "axes": {"threads": [1, 2, 4, 8], "seed": list(range(RUNS // 4))},
    "repetitions": 1,
}
CLIPPED = {  # a model of 200,000 blocks
    "base": {"model": {"layers": 1, "heads": 1, "channels": 1 << 16, "vocab": 1 << 16, "context": 1 << 20}, "seq": 16},
    "axes": {"grad_clip": [1 + i / 8 for i in range(5000)]},
}
EXCLUDED = {  # 500,000 comparisons
    "base": BASE,
    "axes": {"seed": list(range(5000))},
    "exclude": [{"seed": 5000 + i, **{name: 0.5 for j, name in enumerate(("lr", "beta1", "beta2", "eps", "weight_decay",
                 "grad_clip", "threads")) if (i + 1) >> j & 1}} for i in range(100)],
}  # fmt: skip
Figures = dict[str, dict[str, float]]


async def largest(served: Served, given: argparse.Namespace) -> dict[str, Any]:
    """Send each of them once, on its own connection."""
    del given
    found: Figures = {}
    async with Connection(served.port) as connection:
        await connection.expect("POST", "/experiments?dry_run=true", {"base": BASE})  # a process has started
        for name, request in (("in random order", SEEDS), ("in turn", IN_TURN), ("repeated", REPEATED)):
            made = await _timed(served, connection, found, f"submit {RUNS:,} runs {name}", "/experiments", request)
            of_it = f"/experiments/{made['id']}"
            for verb in ("cancel", "retry", "cancel"):
                await _timed(served, connection, found, f"{verb} {RUNS:,} runs {name}", f"{of_it}/{verb}")
        for name, request in ((f"{RUNS:,} runs", SEEDS), ("5,000 shapes", SHAPES), (f"{RUNS:,} runs of teams", TEAMS),
                              ("5,000 shapes of a huge model", CLIPPED), ("500,000 exclusions", EXCLUDED)):  # fmt: skip
            await _timed(served, connection, found, f"dry run of {name}", "/experiments?dry_run=true", request)
            await _timed(served, connection, found, f"submit {name}", "/experiments", request)
        await _timed(served, connection, found, "500,000 values that are nothing", "/experiments", {"x": [0] * 500_000})
    return {"largest": found}


async def _timed(
    served: Served, connection: Connection, found: Figures, name: str, path: str, body: Any = None
) -> dict[str, Any]:
    """Send a request and return the answer; store the figures in `found`."""
    processes = [served.process, *served.process.children(recursive=True)]
    rss = {process: process.memory_info().rss for process in processes}
    for process in processes:
        Path(f"/proc/{process.pid}/clear_refs").write_text("5")  # the peak is measured from here on
    before_s, started = sum(map(_cpu_s, processes)), time.perf_counter()
    status, content = await connection.ask("POST", path, body)
    elapsed_s = time.perf_counter() - started
    found[name] = {
        "status": status,
        "cpu_s": sum(map(_cpu_s, processes)) - before_s,
        "elapsed_s": elapsed_s,
        "grown_bytes": max(_peak_bytes(process) - rss[process] for process in processes),
    }
    return dict(json.loads(content))


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _peak_bytes(process: psutil.Process) -> int:
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


def rows(part: dict[str, Any]) -> list[tuple[str, str]]:
    """Result of the part as text."""
    return [
        (f"{name} ({of['status']:.0f}): CPU of the server's processes; answered after; memory grown by",
         f"{of['cpu_s']:.2f} s; {of['elapsed_s']:.2f} s; {of['grown_bytes'] / 2**20:.0f} MiB")
        for name, of in part["largest"].items()
    ]  # fmt: skip
