"""A step on more and more threads under each scheduler, and what the profile of one thread forecasts for them.

    python -m bench.scaling --model gpt2-124m --shape 4x64 --threads 1,2,4,8,16 --rounds 6

All runs have the same slices, those that are automatic for the widest team, so their losses and weights must have the
same bits. In each round every scheduler runs once on each number of threads, in a random order, as a fresh process; its
figure is the median of its timed steps. The forecast (analysis.forecast) replays the profile of one more process on one
thread. Raw samples, the machine and a table are written to --out (.json and .md).
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
from pathlib import Path

from bench.ratios import HOW, limits, ratio
from bench.record import Measured, head, out_option, save
from bench.schedulers import measure
from bench.slices import ceilings
from bench.step import child, parse_shape
from gpt2core.process import launch
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.data import TOKENS
from gpt2core.spec.fields import OP_ORDERS
from gpt2core.spec.models import model_from
from gpt2core.spec.result import median
from gpt2core.spec.wording import slices
from gpt2core.step import slicing
from taskloom.analysis.forecast import fork_join_step_s, task_step_s
from taskloom.analysis.profile import profile_of

OF_A_THREAD = ("core", "useful_s", "scheduling_s", "barrier_s", "starvation_s", "idle_s")
FORECAST = {"task": task_step_s, "fork-join": fork_join_step_s}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.scaling", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    cores = launch.allowed_cores()
    parser.add_argument("--model", default="gpt2-124m")
    parser.add_argument("--shape", default="4x64", help="BATCHxSEQ")
    parser.add_argument("--threads", default=",".join(str(1 << n) for n in range(len(cores).bit_length())),
                        help="numbers with commas; one thread is added")  # fmt: skip
    parser.add_argument("--op-order", choices=OP_ORDERS, default=OP_ORDERS[0], help="of an LSTM's recurrence")
    parser.add_argument("--rounds", type=int, default=6, help="processes of each scheduler and number of threads")
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--warmup", type=int, default=2)
    out_option(parser, "scaling")
    given = parser.parse_args()
    counts = sorted({1, *map(int, given.threads.split(","))})
    batch, seq = parse_shape(given.shape)
    model = model_from(given.model)
    widest = TrainConfig(
        model=model, batch=batch, seq=seq, steps=given.steps, warmup=given.warmup, threads=counts[-1],
        op_order=given.op_order, data="stdlib" if model.reads == TOKENS else "synthetic",
    )  # fmt: skip
    batch_slice, token_slice = slicing.sizes(widest)
    base = {**widest.to_dict(), "batch_slice": batch_slice, "token_slice": token_slice}
    variants = {
        f"{scheduler} {count}": {"scheduler": scheduler, "threads": count, "cores": list(cores[:count])}
        for scheduler in FORECAST
        for count in counts
    }
    runs = measure(base, variants, given.rounds)
    forecasts = forecast({**base, **variants["task 1"]}, counts)
    report = {
        **head("taskloom.bench.scaling/1"),
        "slices": {"batch_slice": batch_slice, "token_slice": token_slice, "op_order": given.op_order},
        "environment": runs[0]["environment"],
        "runs": [compact(run) for run in runs],
        "rows": [row(scheduler, count, runs, given.warmup, forecasts) for scheduler in FORECAST for count in counts],
    }
    save(given.out, report, table(report, f"{given.model}, B{batch} T{seq}"))


def compact(run: Measured) -> Measured:
    """Of a process only what the rows need, and where the threads' time went."""
    threads = [{key: thread[key] for key in OF_A_THREAD} for thread in run["threads"]]
    return {**{key: run[key] for key in ("round", "variant", "step_s", "graph", "warnings")}, "threads": threads}


def forecast(config: Measured, counts: list[int]) -> Measured:
    """Forecast steps of each scheduler on each number of threads, by how bandwidth grows beyond what was measured."""
    with tempfile.TemporaryDirectory(prefix="bench-scaling-") as folder:
        result, profile = Path(folder) / "result.json", Path(folder) / "profile.json.gz"
        child([*launch.command(result), "--profile", str(profile)], json.dumps(config), launch.environment())
        known = profile_of(json.loads(gzip.decompress(profile.read_bytes())))
    ways = ceilings(known.environment, TrainConfig.from_dict(config).precision)
    return {
        scheduler: {way: {count: step_s(known, count, ceiling) for count in counts} for way, ceiling in ways.items()}
        for scheduler, step_s in FORECAST.items()
    }


def row(scheduler: str, count: int, runs: list[Measured], warmup: int, forecasts: Measured) -> Measured:
    """A scheduler's figures on one number of threads, over all rounds."""

    def of(name: str, threads: int) -> list[Measured]:
        return [run for run in runs if run["variant"] == f"{name} {threads}"]

    def steps(mine: list[Measured]) -> list[float]:
        return [median(run["step_s"][warmup:]) for run in mine]

    mine, alone = of(scheduler, count), of(scheduler, 1)
    elapsed = [sum(run["step_s"][warmup:]) * count for run in mine]
    useful = [sum(thread["useful_s"] for thread in run["threads"]) for run in mine]
    work = [sum(thread["useful_s"] for thread in run["threads"]) for run in alone]
    return {
        "scheduler": scheduler,
        "threads": count,
        "median_step_s": median(steps(mine)),
        "speedup": ratio(steps(alone), steps(mine)),
        "over_task": ratio(steps(mine), steps(of("task", count))),
        "useful_share": median([u / e for u, e in zip(useful, elapsed, strict=True)]),
        "work_of_one_thread": median([a / b for a, b in zip(useful, work, strict=True)]),
        "forecast_s": {beyond: by_count[count] for beyond, by_count in forecasts[scheduler].items()},
    }


def table(report: Measured, what: str) -> str:
    """The rows as Markdown."""
    of = report["machine"]
    ways = list(report["rows"][0]["forecast_s"])
    columns = ("scheduler", "threads", "median step, ms", "speedup", "95 %", "time / task's", "95 %", "useful",
               "tasks' time / on one thread", *(f"forecast, bandwidth {way}" for way in ways))  # fmt: skip
    lines = [
        f"# Scaling, {what}, slices {slices(report['slices'])}, {report['at'][:10]}", "",
        f"Machine: {of['cpu_model']}, {of['cores']} cores, {of['memory_bytes'] / (1 << 30):.0f} GiB, Linux "
        f"{of['kernel']}; load average at the end {of['load_average'][0]:.1f}", "",
        f"Speedup: the same scheduler's step on one thread / this step; time / task's: this step / task's on as many "
        f"threads; both {HOW}. Useful: share of the threads' time in tasks. Forecast: of the step from a profile of "
        "one thread, in brackets relative to the measured step.", "",
        "| " + " | ".join(columns) + " |", "|" + "---|" * len(columns),
    ]  # fmt: skip
    for r in report["rows"]:
        forecasts = [f"{r['forecast_s'][way] * 1e3:.1f} ({r['forecast_s'][way] / r['median_step_s'] - 1:+.0%})"
                     for way in ways]  # fmt: skip
        cells = [
            r["scheduler"], str(r["threads"]), f"{r['median_step_s'] * 1e3:.1f}",
            f"{r['speedup']['ratio']:.2f}", limits(r["speedup"]["ratio_interval"], 2),
            f"{r['over_task']['ratio']:.3f}", limits(r["over_task"]["ratio_interval"]),
            f"{r['useful_share']:.1%}", f"{r['work_of_one_thread']:.2f}", *forecasts,
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
