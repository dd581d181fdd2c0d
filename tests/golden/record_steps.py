"""Record step programs and the results of training: `python -m tests.golden.record_steps [--programs] [NAME...]`.

Writes steps.json beside this file: for each configuration the task list, the edge list and the work of every op, and
the losses and the hash of the weights after a few steps. With names, only these configurations are recorded anew. With
--programs the losses and hashes stay, so any processor can record.
tests/integration/test_golden_steps.py compares. A change here changes every published figure or every bit, so a commit
that records again must say why.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np

try:
    from gpt2core.run.prepare import plan
    from gpt2core.run.train import train
    from gpt2core.spec import settings
    from gpt2core.spec.config import TrainConfig
    from gpt2core.spec.models import ModelConfig
except ImportError:  # the commit of the first recording, before the core was split into packages
    from gpt2core.config import ModelConfig, TrainConfig  # type: ignore[import-not-found, no-redef]
    from gpt2core.train import plan, train  # type: ignore[import-not-found, no-redef]

PATH = Path(__file__).with_name("steps.json")
SMALL = {
    "model": ModelConfig(layers=2, heads=2, channels=32, vocab=61, context=16),
    "batch": 3, "seq": 10, "steps": 3, "warmup": 0, "lr": 1e-2, "batch_slice": 2, "token_slice": 4, "data": "synthetic",
    "blas": "own", "threads": 2, "allow_oversubscription": True,
}  # fmt: skip
TINY = {
    "model": "tiny", "batch": 4, "seq": 64, "steps": 3, "warmup": 0, "batch_slice": 1, "token_slice": 16,
    "data": "synthetic", "blas": "own", "threads": 2, "allow_oversubscription": True,
}  # fmt: skip
WIDE = {**SMALL, "model": ModelConfig(layers=1, heads=3, channels=192, vocab=300, context=80), "seq": 70}
ACCUMULATED = {"grad_accum": 3, "fusion": "rows"}
CLIPPED = {"grad_clip": 0.5, "fusion": "rows"}
SETTINGS: dict[str, dict[str, Any]] = {
    **{f"small-{fusion}": {**SMALL, "fusion": fusion} for fusion in ("none", "rows", "all")},
    **{f"small-sync-{sync}": {**SMALL, "sync": sync} for sync in ("phase", "step", "none")},
    "small-whole": {**SMALL, "batch_slice": 3, "token_slice": 10},
    "small-single": {**SMALL, "batch_slice": 1, "token_slice": 1, "fusion": "all"},
    "small-accumulated": {**SMALL, **ACCUMULATED},
    "small-clipped": {**SMALL, **CLIPPED},
    "small-accumulated-clipped": {**SMALL, **ACCUMULATED, **CLIPPED, "fusion": "none", "sync": "none"},
    "small-decayed": {**SMALL, "weight_decay": 0.1},
    "small-serial": {**SMALL, "scheduler": "serial", "threads": 1},
    "small-fork-join": {**SMALL, "scheduler": "fork-join"},
    "small-bf16": {**SMALL, "precision": "bf16"},
    "tiny-none": {**TINY, "fusion": "none", "sync": "none"},
    "tiny-all": {**TINY, "fusion": "all"},
    "tiny-ragged": {**TINY, "batch": 5, "seq": 60, "batch_slice": 2, "token_slice": 23},
    "tiny-bf16": {**TINY, "precision": "bf16"},
    "wide-ragged": {**WIDE, "token_slice": 33},
    "wide-bf16": {**WIDE, "token_slice": 33, "precision": "bf16"},
    "gpt2-124m": {"model": "gpt2-124m", "fusion": "all", "batch_slice": 1, "token_slice": 32},
    "gpt2-124m-none": {"model": "gpt2-124m", "fusion": "none", "batch_slice": 4, "token_slice": 64, "sync": "none"},
}
PLANNED = {name for name in SETTINGS if name.startswith("gpt2")}  # too large to train here


def processor() -> dict[str, str]:
    """The compiler and its target: beside the configuration, they may change the bits of the weights."""
    features = llvm.get_host_cpu_features()
    return {
        "cpu": settings.numba_processor()[0] or llvm.get_host_cpu_name(),
        "features": " ".join(sorted(name for name, present in features.items() if present)),
        "numba": numba.__version__,
        "llvm": ".".join(map(str, llvm.llvm_version_info)),
        "numpy": np.__version__,
    }


def sha256(lines: Iterable[object]) -> str:
    return hashlib.sha256("\n".join(map(str, lines)).encode()).hexdigest()


def program(name: str) -> dict[str, Any]:
    """Tasks, edges and work of a configuration's step, as counts and hashes."""
    planned = plan(TrainConfig(**SETTINGS[name]))
    graph, tasks = planned.graph, planned.program.tasks
    nodes: list[tuple[Any, ...]] = []
    work = []
    total: dict[str, list[int]] = {}
    for node, number in enumerate(graph.task):
        nodes.append((graph.label[node], graph.phase[node], graph.filler[node]))
        if number < 0:
            continue
        op, tile = tasks[number]
        nodes[-1] += (op.name, op.layer, op.micro, op.phase, tile.label, op.filler)
        for call, (_, flop, size) in zip(op.calls, tile.work, strict=True):
            work.append((call.name, call.phase, flop, size))
            sums = total.setdefault(f"{call.name} {call.phase}", [0, 0])
            sums[0] += flop
            sums[1] += size
    return {
        "tasks": len(tasks),
        "tasks_sha256": sha256(nodes),
        "edges": len(graph.edges),
        "edges_sha256": sha256([*graph.edges, "crossing", *graph.crossing]),
        "work": {kind: f"{flop} flop, {size} bytes" for kind, (flop, size) in total.items()},
        "work_sha256": sha256(work),
        "memory_bytes": planned.memory_bytes,
    }


def outcome(name: str) -> dict[str, Any]:
    """Losses and hash of the weights after training a configuration; empty for those in PLANNED."""
    if name in PLANNED:
        return {}
    result = train(TrainConfig(**SETTINGS[name]))
    return {"losses": list(result.losses), "weights_sha256": result.weights_sha256}


def main(names: list[str], programs: bool) -> None:
    kept = json.loads(PATH.read_text()) if names or programs else {"processor": processor(), "configurations": {}}
    if not programs and kept["processor"] != processor():
        raise SystemExit("another processor than the one of the recording: record all configurations, or --programs")
    configurations: dict[str, Any] = kept["configurations"]
    for name in names or SETTINGS:
        recorded = configurations.setdefault(name, {})
        recorded.update(program(name))
        if not programs:
            recorded.update(outcome(name))
    PATH.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--programs", action="store_true")
    main(**vars(parser.parse_args()))
