"""A trainer that trains nothing. It implements the protocol of gpt2core.process.launch; FAKE_TRAINER selects:

quick     delivers a result at once
varied    delivers a result at once, whose step time follows from the settings
crash     prints to standard error, then exits 3
obedient  runs until it is told to stop; the real trainer stops at the end of a step
stubborn  runs and ignores SIGTERM
gated     delivers a result as soon as the file FAKE_TRAINER_GATE exists
truncated reports a result of which the file contains the first half
greedy    takes memory, up to a GiB
leaving   delivers a result with files beside it; waits for the file FAKE_TRAINER_GATE if that is set
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import sys
import time
import zlib
from pathlib import Path

from gpt2core.spec.config import TrainConfig
from gpt2core.spec.phases import PHASES
from gpt2core.spec.result import OpStat, ThreadStat, TrainResult

STEP_S = 0.01


def tell(event: str, **fields: object) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


def result(config: TrainConfig, step_s: float = STEP_S) -> TrainResult:
    steps = config.steps
    seen = tuple(sorted(os.sched_getaffinity(0)))
    return TrainResult(
        config={**config.to_dict(), "warmup": config.warmup_steps, "batch_slice": 1, "token_slice": config.seq},
        environment={"pid": os.getpid()},
        losses=[5.5 - 0.1 * i for i in range(steps)],
        step_s=[step_s] * steps,
        phase_s={phase: [step_s / len(PHASES)] * steps for phase in PHASES},
        phase_busy_s={phase: [step_s / len(PHASES)] * steps for phase in PHASES},
        ops=[OpStat("qkv", "forward", 1, step_s, 1000, 1000)],
        threads=[thread(i, seen[i % len(seen)], seen, config, step_s) for i in range(config.threads)],
        memory_bytes={"weights": 1},
        weights_sha256="0" * 64,
        graph={"tasks": 1, "edges": 0},
    )


def varied_s(config: TrainConfig) -> float:
    """A step time between STEP_S and twice that, the same for equal settings."""
    return STEP_S * (1 + zlib.crc32(json.dumps(config.to_dict(), sort_keys=True).encode()) / 2**32)


def thread(number: int, core: int, seen: tuple[int, ...], config: TrainConfig, step_s: float) -> ThreadStat:
    useful_s = step_s * (config.steps - config.warmup_steps)
    by_phase_s = dict.fromkeys(PHASES, useful_s / len(PHASES))
    return ThreadStat(number, core, seen, useful_s, by_phase_s, 0.0, 0.0, 0.0, 0.0, 0.0, 1)


def wait_for_signal() -> None:
    def stop(_number: int, _frame: object) -> None:
        tell("error", slug="cancelled", detail="cancelled after 1 steps", exit_code=130)
        sys.exit(130)

    signal.signal(signal.SIGTERM, stop)
    tell("step", step=1, steps=12, loss=5.5, step_s=STEP_S, tokens_per_s=1.0)
    while True:
        signal.pause()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--result", type=Path, required=True)
    target: Path = parser.parse_args().result
    config = TrainConfig.from_dict(json.loads(sys.stdin.read()))
    behaviour = os.environ.get("FAKE_TRAINER", "quick")
    tell("started", pid=os.getpid(), schema=1)
    tell("planned", memory_bytes={"weights": 1}, tasks=1, edges=0)
    if behaviour == "crash":
        print("the reactor is melting", file=sys.stderr, flush=True)
        return 3
    if behaviour == "obedient":
        wait_for_signal()
    if behaviour == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        tell("step", step=1, steps=config.steps, loss=5.5, step_s=STEP_S, tokens_per_s=1.0)
        while True:
            signal.pause()
    if behaviour == "gated" or (behaviour == "leaving" and "FAKE_TRAINER_GATE" in os.environ):
        tell("step", step=1, steps=config.steps, loss=5.5, step_s=STEP_S, tokens_per_s=1.0)
        gate = Path(os.environ["FAKE_TRAINER_GATE"])
        while not gate.exists():
            time.sleep(0.02)
    if behaviour == "greedy":
        taken = [bytearray(b"x") * (1 << 20) for _ in range(1024)]
        print(len(taken), "MiB", file=sys.stderr, flush=True)
    if behaviour == "leaving":
        artifacts = target.parent / "artifacts"
        (artifacts / "profile.json.gz").write_bytes(b"profile")
        (artifacts / "trace.json.gz").write_bytes(b"trace" * 100_000)
        (artifacts / "no name.txt").write_bytes(b"refused")
        (artifacts / "link.txt").symlink_to("/etc/hostname")
    step_s = varied_s(config) if behaviour == "varied" else STEP_S
    content = json.dumps(result(config, step_s).to_dict()).encode()
    target.write_bytes(content[: len(content) // 2] if behaviour == "truncated" else content)
    tell("result", path=str(target), sha256=hashlib.sha256(content).hexdigest())
    return 0


if __name__ == "__main__":
    sys.exit(main())
