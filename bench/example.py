"""Repeat an experiment of docs/examples: which runtime is fastest on this machine, how should an LSTM, or a
network of convolutions, be parallelised, and why, where do six networks spend time and memory, or what do two ranks
gain from tasks?

    python -m bench.example             # run the experiment, write docs/examples/gpt2-124m-runtimes.{html,json.gz}
    python -m bench.example calibrate   # equal runs (A/A) in the same database, and the report again with them
    python -m bench.example page        # the stored report again, with today's sentences and figures; nothing runs
    python -m bench.example --question wavefront    # the same for docs/examples/lstm-deep-wavefront.{html,json.gz}
    python -m bench.example --question images       # the same for docs/examples/resnet14-cifar-images.{html,json.gz}
    python -m bench.example --question workload     # a page about six networks, and its figures as JSON
    python -m bench.example --question ranks        # docs/examples/small-ranks.{html,json.gz}; needs root, ip and tc

Everything is declared here, before any run. runtimes: fork-join, task, omp-for and omp-task on two threads, and the
first two also on one thread, because the forecast needs their profiles. wavefront: task, fork-join layer by layer, and
fork-join by diagonals, the wavefront written by hand; each with all hidden units in a tile and in blocks, on one and on
two threads. The question is task against the better fork-join. images: fork-join and task with slices of 8 and of 32 of
128 synthetic images, on one and on two threads. The question is that of slices of 8. workload: the
template of `taskloom workload` over bench/six_networks.py; its samples are not kept, so its page cannot be rendered
again. ranks: fork-join and task with two ranks on two nodes, which are network namespaces connected at 1 Gbit/s
(bench.ranks), a core each.

Repetitions are interleaved blocks. Each run is a fresh process; the first repetition of each variant is traced too. The
number of pairs is fixed beforehand, because a stopping rule would reduce the power of the exact test. Runs are excluded
if other processes used more than 2 % of their cores; they are listed with their samples. The noise floor is 1 %.
Database and logs stay in --folder.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from bench import ranks, six_networks
from bench.record import ROOT
from gpt2core.node import peaks
from gpt2core.spec.schedulers import AUTO, RUNTIMES
from gpt2core.spec.wording import slices
from taskloom import demo
from taskloom.analysis.report import Report, concluded, page
from taskloom.analysis.report.card import report_card
from taskloom.client import Client
from taskloom.commands import doctor
from taskloom.commands.output import console, error_console
from taskloom.contract.experiments import ExperimentDetail, ExperimentRequest
from taskloom.processes import Processes, with_processes

CALIBRATION_RUNS = 20
LOOK_EVERY_S = 5.0
# Rare heartbeats and polls, to keep the machine quiet; claims are woken at once.
SELDOM = {f"TASKLOOM_{name}": "60" for name in ("HEARTBEAT_S", "POLL_S", "REAP_EVERY_S")} | {"TASKLOOM_LEASE_S": "300"}
OTHERS = ("omp-for", "omp-task")  # on two threads only
UNITS, BLOCK = 512, 144  # hidden units of lstm-deep, and of a tile: 4 blocks of whole panels


@dataclass(frozen=True)
class Question:
    """An experiment and its defaults. `asked`: what it compares, in the form of a request. `files`: makes the data that
    runs name, in a folder; `around`: makes what the worker runs in, and its environment; `kept`: what is kept of the
    report as JSON."""

    name: str
    model: str
    steps: int
    repetitions: int
    base: Mapping[str, Any]
    asked: Mapping[str, Any]
    files: Callable[[Path], None] | None = None
    around: Callable[[Path], AbstractContextManager[Mapping[str, str]]] | None = None
    kept: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict

    @property
    def of_one_model(self) -> bool:
        """Whether all runs have the model of the question."""
        return "template" not in self.asked


ASKED = {"threads": 2, "unit_slice": UNITS}
IMAGES = {"threads": 2, "batch_slice": 8}
QUESTIONS = {
    "runtimes": Question(
        "whose runtime, fork-join or tasks?", "gpt2-124m", steps=6,
        repetitions=10,  # enough to detect one of four comparisons even if one pair in ten contradicts
        base={"sync": "none", "batch_slice": 2, "token_slice": 64},  # a slice for each thread
        asked={
            "axes": {"scheduler": ["fork-join", "task", *OTHERS], "threads": [1, 2]},
            "exclude": [{"scheduler": name, "threads": 1} for name in OTHERS],
        },
    ),
    "wavefront": Question(
        "layer by layer, by diagonals or tasks?", "lstm-deep", steps=4, repetitions=10,  # 6 if none is left out
        base={"sync": "step", "batch_slice": 4, "token_slice": 16},  # those of automatic slices
        asked={
            "axes": {"scheduler": ["fork-join", "task"], "op_order": ["layers", "diagonals"], "threads": [1, 2],
                     "unit_slice": [UNITS, BLOCK]},
            "exclude": [{"scheduler": "task", "op_order": "diagonals"}],  # the same graph as by layers
            "primary": {"a": {"scheduler": "fork-join", "op_order": "diagonals", **ASKED},
                        "b": {"scheduler": "task", **ASKED}},
        },
    ),
    "images": Question(
        "fork-join or tasks for images?", "resnet14-cifar", steps=6, repetitions=8,
        base={"batch": 128, "seq": 1, "sync": "none", "data": "synthetic"},
        asked={
            "axes": {"scheduler": ["fork-join", "task"], "threads": [1, 2], "batch_slice": [8, 32]},
            "primary": {"a": {"scheduler": "fork-join", **IMAGES}, "b": {"scheduler": "task", **IMAGES}},
        },
    ),
    "workload": Question(
        "where do time and memory go?", "six-networks", steps=12,
        repetitions=12,  # 9 pairs can decide one of 12 comparisons; some runs are left out
        base={"warmup": 2},
        asked={"template": "workload", "workload": six_networks.TERMS, "trace": False},
        files=six_networks.make, kept=six_networks.figures,
    ),
    "ranks": Question(
        "fork-join or tasks with two ranks at 1 Gbit/s?", "small", steps=10, repetitions=10,
        base={"batch": 16, "ranks": ranks.RANKS, "threads": 1, "warmup": 2, "fusion": "rows"},
        asked={
            "axes": {"scheduler": ["fork-join", "task"]}, "requires": {"nodes": ranks.RANKS}, "trace": False,
            "primary": {"a": {"scheduler": "fork-join"}, "b": {"scheduler": "task"}},
        },
        around=partial(ranks.two_nodes, "1gbit"),
    ),
}  # fmt: skip


def base(of: Question, model: str, steps: int, runtime: str) -> dict[str, Any]:
    """Settings of all runs."""
    alone = {"model": model, "batch": 4, "seq": 64, "data": "stdlib"} if of.of_one_model else {}
    return {**alone, "steps": steps, "warmup": 1, **of.base, "runtime": runtime}


def experiment(of: Question, model: str, steps: int, repetitions: int, runtime: str = AUTO) -> ExperimentRequest:
    """The experiment, declared completely before any run."""
    asked = {
        "name": f"{model}: {of.name}",
        "base": base(of, model, steps, runtime),
        "repetitions": repetitions,
        "seed": 7,
        "trace": "first",
        **of.asked,
    }
    return ExperimentRequest.model_validate(asked)


def calibration(of: Question, model: str, steps: int) -> ExperimentRequest:
    """Equal runs of task on both threads."""
    asked = {
        "name": f"A/A: {model}",
        "base": {**base(of, model, steps, AUTO), "scheduler": "task", "threads": 2},
        "repetitions": CALIBRATION_RUNS,
        "calibrates": True,
    }
    return ExperimentRequest.model_validate(asked)


def write(report: Report, kept: Mapping[str, Any], out: Path, name: str) -> None:
    """The report's page, and what is kept of it as compressed JSON."""
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.html").write_text(page(report), encoding="utf-8")
    (out / f"{name}.json.gz").write_bytes(gzip.compress(json.dumps(kept).encode(), mtime=0))


def render_again(out: Path, name: str) -> None:
    """Write the stored report again: sentences, report card and figures by today's code, data as they were."""
    stored = TypeAdapter(Report).validate_json(gzip.decompress((out / f"{name}.json.gz").read_bytes()))
    report = concluded(replace(stored, card=report_card(stored)))
    write(report, asdict(report), out, name)


def summary(report: Report) -> list[str]:
    """Lines of a summary: errors of the forecast, excluded runs, flagged steps, the answer."""
    lines = ["", *(f"- {point}" for point in report.answer), ""]
    lines.append("forecast from one thread against the measured step on more:")
    for one in report.forecast.forecasts:
        cut = slices(one.source)
        for curve in one.curves:
            for point in curve.points:
                if point.error is not None and point.cores > 1 and curve.bandwidth == "grows":
                    lines.append(
                        f"  {cut} {curve.scheduler}, {point.cores} threads: forecast {point.step_s:.4g} s, "
                        f"measured {point.measured_s:.4g} s, error {point.error:+.1%}"
                    )
    for ahead in report.forecast.ranks:
        for at in (each for curve in ahead.curves for each in curve.points if each.error is not None):
            lines.append(
                f"  {ahead.source.scheduler}, {at.ranks} ranks: forecast {at.step_s:.4g} s, measured "
                f"{at.measured_s:.4g} s, error {at.error:+.1%}"
            )
    errors = [one.worst_error for one in report.forecast.forecasts if one.worst_error is not None]
    lines.append(f"  largest error: {max(errors):.1%}" if errors else "  no measured step to compare with")
    lines += [f"  {reason}" for reason in report.forecast.missing]
    missing = sorted({reason for row in report.roofline for reason in row.missing})
    lines += [f"roofline: {reason}" for reason in missing]
    lines.append(f"excluded runs with foreign load: {report.left_out or 'none'}")
    lines.append(f"marks: {len(report.marks)}")
    lines += [f"  {mark}" for mark in report.marks]
    lines.append(f"traced runs shown: {[row.run_id for row in report.traced] or 'none'}")
    lines += [f"rule {rule.number} {rule.holds}: {rule.evidence}" for rule in report.card]
    return lines


def wait_for(client: Client, experiment_id: int, processes: Processes) -> ExperimentDetail:
    """Wait for the end of the experiment, with rare requests, since each takes time from the measured cores."""
    while (found := client.experiment(experiment_id)).state == "active":
        processes.check()
        time.sleep(LOOK_EVERY_S)
    return found


def carry_out(given: argparse.Namespace, processes: Processes) -> int:
    """Submit the experiment, wait for its end, write the report, and return the exit code."""
    out, notes = console(), error_console()
    if peaks.read() is None:  # here, since the worker does not measure peaks on a busy machine
        doctor.measured_peaks(force=False, as_json=False)
    of = QUESTIONS[given.question]
    if of.files is not None:
        of.files(given.folder / "data")
    began = time.monotonic()
    url = demo.start(given.folder, processes)
    question = experiment(of, given.model, given.steps, given.repetitions, given.runtime)
    asked = calibration(of, given.model, given.steps) if given.what == "calibrate" else question
    with Client(url, timeout_s=600) as client:
        made = client.submit(asked)
        notes.say(f"server {url}, experiment {made.id}: {made.runs} runs; logs in {given.folder}")
        finished = wait_for(client, made.id, processes)
        out.say(f"{finished.by_state} in {time.monotonic() - began:.0f} s")
        for seen in client.calibrations():
            found = ", ".join(f"{each.relative:.2%} with {each.pairs} pairs" for each in seen.detectable)
            out.say(f"{seen.node} can detect differences of {found} (spread {seen.spread:.2%})")
        reported = next((each for each in client.experiments() if each.name == question.name), None)
        if reported is None:
            return 0
        report = client.report(reported.id, leave_out_disturbed=True)
    name = f"{given.model}-{given.question}"
    write(report, of.kept(asdict(report)), given.out, name)
    out.say(*summary(report), "", f"written: {given.out / name}.html and .json.gz")
    return 0 if set(finished.by_state) == {"succeeded"} else 1


def main() -> None:
    """Run the experiment or its calibration, then stop all processes; or render the stored report again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("run", "calibrate", "page"), default="run")
    parser.add_argument("--question", choices=tuple(QUESTIONS), default="runtimes")
    parser.add_argument("--model")
    parser.add_argument("--steps", type=int, help="steps of each run, including one warm-up step")
    parser.add_argument("--repetitions", type=int, help="blocks of interleaved runs, each a pair")
    parser.add_argument("--runtime", default=AUTO, help="OpenMP runtime: " + ", ".join((AUTO, *RUNTIMES)))
    parser.add_argument("--folder", type=Path, default=ROOT / "runs/example", help="database, logs, artifacts")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/examples")
    given = parser.parse_args()
    of = QUESTIONS[given.question]
    for name in ("model", "steps", "repetitions"):
        if getattr(given, name) is None:
            setattr(given, name, getattr(of, name))
    if (given.what != "run" and not of.of_one_model) or (given.what == "calibrate" and of.around is not None):
        parser.error(f"{given.what} is not possible with --question {given.question}")
    if given.what == "page":
        render_again(given.out, f"{given.model}-{given.question}")
        return
    given.folder = given.folder.absolute()
    os.environ.update(SELDOM, TASKLOOM_DATA_ROOT=str(given.folder / "data"))
    (given.folder / "data").mkdir(parents=True, exist_ok=True)
    os.chdir(ROOT)
    with nullcontext({}) if of.around is None else of.around(given.folder) as environment:
        os.environ.update(environment)
        code = with_processes(partial(carry_out, given), given.folder)
    sys.exit(code)


if __name__ == "__main__":
    main()
