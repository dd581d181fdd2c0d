"""A tuning beside the truth: every setting of a space of 216, then a tuning with 48 runs, then both winners in pairs.

    python -m bench.tune_grid --keep FOLDER [--out PATH]

`small` on two threads. A server and a worker run as in `taskloom demo`. The grid is a tuning too (each setting once,
in blocks beside the default); the tuning has 48 + 9 runs of explore, 16 of confirm and 40 of fresh; the winners of both
then run in 8 pairs: the tuning's must be within 5 %. About 385 runs; the dry run's estimate is printed. The database
lies in --keep, so an interrupted measurement continues where it was.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from bench.record import ROOT, Measured, head, out_option, save
from taskloom import demo
from taskloom.analysis.tuning.answer import Tuning
from taskloom.client import Client
from taskloom.contract.experiments import ExperimentRequest
from taskloom.processes import Processes, with_processes

BASE = {"model": "small", "batch": 4, "seq": 64, "threads": 2, "steps": 40}  # 12 scatter too much to choose by one run
SPACE = {
    "scheduler": ["fork-join", "task"], "sync": ["phase", "step", "none"], "assignment": ["static", "dynamic"],
    "policy": ["breadth-first", "critical-path"], "batch_slice": [1, 2, 4], "token_slice": [16, 32, 64],
    "fusion": ["none", "rows", "all"],
}  # fmt: skip
SETTINGS = 216
TERMS: dict[str, dict[str, Any]] = {
    "grid": {"runs": SETTINGS, "batch": 6, "confirm": 0, "fresh": 0, "sampler": "grid"},
    "tuning": {"runs": 48, "batch": 6, "confirm": 8, "fresh": 20},
}
PAIRS = 8
LOOK_EVERY_S = 5.0  # rarely, because every request takes time from the measured cores


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.tune_grid", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--keep", type=Path, required=True, help="folder of the database, to continue")
    out_option(parser, "tune-grid")
    given = parser.parse_args()
    given.out, keep = given.out.absolute(), given.keep.absolute()
    keep.mkdir(parents=True, exist_ok=True)
    os.chdir(ROOT)
    sys.exit(with_processes(partial(carry_out, given, keep), keep))


def carry_out(given: argparse.Namespace, folder: Path, processes: Processes) -> int:
    """Measure what is not yet measured, write the record, and return the exit code."""
    report = head("taskloom.bench.tune-grid/1")
    with Client(demo.start(folder, processes)) as client:
        grid, tuned = (client.tuning(ended(client, processes, tuning_of(name, terms))) for name, terms in TERMS.items())
        if grid.best is None or tuned.best is None:
            print(grid.sentence, tuned.sentence, file=sys.stderr)
            return 1
        report |= {"settings": tuned.space.valid, "spent_s": grid.spent_s, "tuned_spent_s": tuned.spent_s,
                   "grid_best": grid.best, "tuned_best": tuned.best, "sentence": tuned.sentence,
                   "rank": rank(grid, tuned.best), "pairs": None}  # fmt: skip
        if grid.best != tuned.best:
            verdict = client.experiment(ended(client, processes, pairs_of(grid.best, tuned.best))).verdict
            report["pairs"] = None if verdict is None else verdict.model_dump(mode="json")
    save(given.out, report, table(report))
    return 0


def tuning_of(name: str, terms: dict[str, Any]) -> ExperimentRequest:
    return ExperimentRequest.model_validate({"name": name, "base": BASE, "space": SPACE, "tune": terms})


def pairs_of(grid: dict[str, Any], tuned: dict[str, Any]) -> ExperimentRequest:
    """Both winners in blocks of two; the question is how much slower the tuning's is."""
    differing = {name: [grid[name], tuned[name]] for name in SPACE if grid[name] != tuned[name]}
    sides = {side: {name: values[i] for name, values in differing.items()} for i, side in enumerate("ab")}
    return ExperimentRequest.model_validate(
        {"name": "pairs", "base": {**BASE, **grid}, "zip": [differing], "repetitions": PAIRS, "primary": sides}
    )


def ended(client: Client, processes: Processes, asked: ExperimentRequest) -> int:
    """Queue an experiment unless the database has it, wait for its verdict, and return its id."""
    known = [each.id for each in client.experiments(name=asked.name) if each.name == asked.name]
    if not known:
        plan = client.plan(asked)
        estimate = "" if plan.estimated_s is None else f", about {plan.estimated_s / 60:.0f} min"
        print(f"{asked.name}: at most {plan.runs} runs{estimate}", flush=True)
        known = [client.submit(asked).id]
    while client.experiment(known[0]).verdict is None:
        processes.check()
        time.sleep(LOOK_EVERY_S)
    return known[0]


def rank(grid: Tuning, best: dict[str, Any]) -> int | None:
    """Place of a setting among those of the grid by their single runs, from 1."""
    measured = sorted((trial for trial in grid.trials if trial.ratio), key=lambda trial: -(trial.ratio or 0))
    return next((i for i, trial in enumerate(measured, 1) if trial.settings == best), None)


def table(report: Measured) -> str:
    about: Any = report["machine"]
    pairs: Any = report["pairs"]
    beside = "They are the same setting." if pairs is None else pairs["sentence"]
    return "\n".join([
        f"# A tuning beside the whole grid, {report['at'][:10]}", "",
        f"Machine: {about['cpu_model']}, {about['cores']} cores, load average at the beginning "
        f"{about['load_average'][0]:.1f}. `small`, {report['settings']} settings. The worker's time: grid "
        f"{report['spent_s'] / 60:.0f} min, tuning {report['tuned_spent_s'] / 60:.0f} min.", "",
        f"- The tuning: {report['sentence']}",
        f"- Its place in the grid, by single runs: {report['rank']} of {report['settings']}.",
        f"- In {PAIRS} pairs beside the grid's best: {beside}",
    ]) + "\n"  # fmt: skip


if __name__ == "__main__":
    main()
