"""The timed steps' share of the node's time: `small` in the demo's shape, and 124M with 12 steps.

    python -m bench.node_time --models small,gpt2-124m

A server, a worker and its trainers run as in `taskloom demo`: serial, fork-join and task, on one thread and on all. A
short run of each variant precedes, so that kernels are compiled and the node's tables are complete. Time in which the
node had no run to claim is excluded. Written to --out (.json and .md), with each run's parts.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from bench.record import ROOT, Measured, head, out_option, save
from gpt2core.process import launch
from gpt2core.spec.result import NODE_TIME, median
from taskloom import demo
from taskloom.analysis.node_time import WORDS, sentence, timed_share
from taskloom.client import Client
from taskloom.contract.experiments import ExperimentRequest
from taskloom.processes import Processes, with_processes

STEPS, FEWEST_STEPS = 12, 3
REPETITIONS = {"small": 7, "gpt2-124m": 2}
BEFORE_STEPS = ("starting", "planning", "compiling", "preparing")  # from the claim to the first step
LOOK_EVERY_S = 5.0  # rarely, because every request takes time from the measured cores


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.node_time", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--models", default=",".join(REPETITIONS), help="of " + ", ".join(REPETITIONS))
    parser.add_argument("--repetitions", type=int, help="runs of each variant (default: 7 of small, 2 of gpt2-124m)")
    parser.add_argument("--warmup", type=int, choices=(1, 2), help="warm-up steps (default: the trainer's, 2)")
    out_option(parser, "node-time")
    given = parser.parse_args()
    given.out = given.out.absolute()
    os.chdir(ROOT)
    with tempfile.TemporaryDirectory(prefix="bench-node-time-") as folder:
        sys.exit(with_processes(partial(carry_out, given, Path(folder)), Path(folder)))


def carry_out(given: argparse.Namespace, folder: Path, processes: Processes) -> int:
    """Run an experiment of each model, write where the node's time went, and return the exit code."""
    report = head("taskloom.bench.node-time/1")
    with Client(demo.start(folder, processes)) as client:
        report["models"] = {
            model: measure(client, model, given.repetitions or REPETITIONS[model], given.warmup, processes)
            for model in given.models.split(",")
        }
    save(given.out, report, table(report))
    return 0


def request(model: str, repetitions: int, steps: int, warmup: int | None) -> ExperimentRequest:
    """The demo's experiment with this number of steps."""
    asked = demo.request(model, len(launch.allowed_cores()), repetitions).model_dump(mode="json", exclude_unset=True)
    return ExperimentRequest.model_validate({**asked, "base": {**asked["base"], "steps": steps, "warmup": warmup}})


def measure(
    client: Client, model: str, repetitions: int, warmup: int | None, processes: Processes
) -> list[dict[str, float]]:
    """Parts of each run's node time, in the order in which they ran. Raises DemoFailed."""
    for asked in (request(model, 1, FEWEST_STEPS, warmup), request(model, repetitions, STEPS, warmup)):
        made = client.submit(asked)
        while (found := client.experiment(made.id)).state == "active":
            processes.check()
            time.sleep(LOOK_EVERY_S)
        if set(found.by_state) != {"succeeded"}:
            raise demo.DemoFailed(f"{model}: {found.by_state}")
    runs = sorted(client.runs(made.id), key=lambda run: run.started_at or run.created_at)
    print(f"{model}: {sentence(found.node_time, found.node_time_missing)}", flush=True)
    return [client.run(run.id).node_time or {} for run in runs]


def total(runs: list[dict[str, float]]) -> dict[str, float]:
    """Sums of the parts over runs."""
    return {f"{part}_s": math.fsum(run[f"{part}_s"] for run in runs) for part in NODE_TIME}


def first_s(runs: list[dict[str, float]]) -> list[float]:
    """Seconds of each run from its claim to its first step."""
    return [math.fsum(run[f"{part}_s"] for part in BEFORE_STEPS) for run in runs]


def table(report: Measured) -> str:
    about: Any = report["machine"]
    lines = [
        f"# The node's time, {report['at'][:10]}", "",
        f"Machine: {about['cpu_model']}, {about['cores']} cores, load average at the beginning "
        f"{about['load_average'][0]:.1f}. Seconds a run: mean over runs, and share of all their time.", "",
        "| | " + " | ".join(f"{model}, n = {len(runs)}" for model, runs in report["models"].items()) + " |",
        "|---|" + "---|" * len(report["models"]),
    ]  # fmt: skip
    sums = {model: total(runs) for model, runs in report["models"].items()}
    for part in NODE_TIME:
        cells = [
            f"{parts[f'{part}_s'] / len(report['models'][model]):.3f} ({parts[f'{part}_s'] / sum(parts.values()):.1%})"
            for model, parts in sums.items()
        ]
        lines.append(f"| {WORDS.get(part, part)} | " + " | ".join(cells) + " |")
    lines.append("| **timed steps' share** | " + " | ".join(f"**{timed_share(s):.1%}**" for s in sums.values()) + " |")
    cells = []
    for runs in report["models"].values():
        taken_s = first_s(runs)
        cells.append(f"{median(taken_s):.2f} ({min(taken_s):.2f} to {max(taken_s):.2f})")
    lines.append("| from claim to first step, median (least to most) | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
