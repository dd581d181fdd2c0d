"""From the start of a trainer's process to its first step: installed and compiled, and on a fresh installation.

    python -m bench.start --models tiny,gpt2-124m --rounds 5

Every measurement is a separate process, started as a worker starts it. Times are those at which its events arrive; the
first step begins its own duration before its report, so the report's delay is included. Each round runs every model
with the kernels in the cache, reading its weights from a checkpoint. The time of only reading the checkpoint's bytes is
measured too. One more process runs with an empty cache. Written to --out (.json and .md).
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

from bench.record import ROOT, Measured, machine, out_option, save
from gpt2core.networks.gpt2.checkpoint import write_checkpoint
from gpt2core.networks.gpt2.initial import initial_weights
from gpt2core.networks.gpt2.tensors import weight_specs
from gpt2core.process import launch
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.models import ModelConfig, model_from
from gpt2core.spec.result import median


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.start", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--models", default="tiny,gpt2-124m")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--rounds", type=int, default=5, help="processes that find the kernels in the cache")
    out_option(parser, "start")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-start-") as name:
        folder = Path(name)
        configs = {model: prepare(folder, model, given.precision) for model in given.models.split(",")}
        fresh = {name: start(config, folder, folder / f"cache-{name}") for name, config in configs.items()}
        for config in configs.values():
            start(config, folder)  # compiles what is missing
        warm: dict[str, list[Measured]] = {name: [] for name in configs}
        for round_no in range(given.rounds):
            for model, config in configs.items():
                run = start(config, folder)
                if any(run[key] for key in ("compiling_s", "measuring_s")):
                    raise SystemExit(f"{model}: an installed trainer compiled or measured: {run}")
                warm[model].append({**run, "read_s": reading(Path(str(config.checkpoint)))})
                print(f"[{round_no + 1}/{given.rounds}] {model}: {run['first_step_s']:.2f} s", flush=True)
    report = {
        "schema": "taskloom.bench.start/1",
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine(), "precision": given.precision, "warm": warm, "fresh": fresh,
    }  # fmt: skip
    save(given.out, report, table(report))


def prepare(folder: Path, name: str, precision: str) -> TrainConfig:
    """A short run of a model whose weights come from a checkpoint, on all cores."""
    model = model_from(name)
    assert isinstance(model, ModelConfig)
    weights = {spec.name: np.empty(spec.shape, np.float32) for spec in weight_specs(model)}
    initial_weights(model, 1337, weights)
    write_checkpoint(folder / f"{name}.bin", model, weights)
    return TrainConfig(
        model=model, batch=4, seq=min(64, model.context), steps=2, warmup=1, data="synthetic", precision=precision,
        threads=len(launch.allowed_cores()), checkpoint=str(folder / f"{name}.bin"),
    )  # fmt: skip


def start(config: TrainConfig, folder: Path, cache: Path | None = None) -> Measured:
    """Seconds to the first step, and how many of them went into compiling and into measuring matrix products."""
    result = folder / "result.json"
    environment = launch.environment()
    if cache is not None:
        environment = {**environment, "TASKLOOM_CACHE_DIR": str(cache)}
    begun = time.monotonic()
    process = subprocess.Popen(
        launch.command(result), env=environment, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin as stdin:
        stdin.write(json.dumps(config.to_dict()))
    spent = {"compiling": 0.0, "measuring": 0.0}
    before, at, first = "", begun, None
    for line in process.stdout:
        event, now = json.loads(line), time.monotonic()
        if before in spent:  # it lasts until the next event
            spent[before] += now - at
        if event["event"] == "step" and first is None:
            first = now - begun
        before, at = event["event"], now
    if process.wait() or first is None:
        raise SystemExit(f"the trainer ended with {process.returncode}")
    own_s = json.loads(result.read_text(encoding="utf-8"))["step_s"][0]
    return {"first_step_s": first - own_s, "compiling_s": spent["compiling"], "measuring_s": spent["measuring"]}


def reading(checkpoint: Path) -> float:
    """Seconds for reading a file's bytes: a lower bound of a start."""
    begun = time.monotonic()
    with checkpoint.open("rb", buffering=0) as file:
        buffer = bytearray(os.fstat(file.fileno()).st_size)
        file.readinto(buffer)
    return time.monotonic() - begun


def table(report: Measured) -> str:
    lines = [
        f"# From the start to the first step, {report['at'][:10]}", "",
        f"Machine: {report['machine']['cpu_model']}, {report['machine']['cores']} cores, load average at the end "
        f"{report['machine']['load_average'][0]:.1f}; {report['precision']}, B4 T64, all cores, weights from a "
        "checkpoint. Seconds; median (least to most) of the processes with the kernels in the cache.", "",
        "| model | first step begins after | of this, reading the checkpoint's bytes | without reading "
        "| fresh installation: first step after | of this, compiling | measuring products |",
        "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for model, runs in report["warm"].items():
        first, read = [run["first_step_s"] for run in runs], [run["read_s"] for run in runs]
        fresh = report["fresh"][model]
        lines.append(
            f"| {model} | {median(first):.2f} ({min(first):.2f} to {max(first):.2f}), n = {len(runs)} "
            f"| {median(read):.2f} | {median(first) - median(read):.2f} "
            f"| {fresh['first_step_s']:.1f} | {fresh['compiling_s']:.1f} | {fresh['measuring_s']:.1f} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
