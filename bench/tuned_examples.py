"""Tunings of docs/examples: the best setting of GPT-2, of an LSTM in training and in inference, and whether other
threads for single sections of a network gain anything.

    python -m bench.tuned_examples NAME... [--folder FOLDER]

Everything is declared here, before any run. The spaces named `sections` contain every assignment of one or of all
threads to the groups of ops, and the uniform numbers of threads; they are smaller than the budget, so each setting runs
once. Their default has all threads in every section. For each NAME, OUT/DATE-NAME.json is the answer of
`GET /experiments/{id}/tuning`, with the machine and the request. Database and logs stay in --folder.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import os
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench.example import SELDOM, wait_for
from bench.record import ROOT, head, results, save
from taskloom import demo
from taskloom.analysis.tuning.answer import Tuning
from taskloom.client import Client
from taskloom.contract.experiments import ExperimentRequest
from taskloom.processes import Processes, with_processes

THREADS = 2
LSTM = {"batch": 4, "seq": 64, "threads": THREADS}
INFER = {"mode": "infer", "logits": "last"}
SCHEDULES = {"scheduler": ["fork-join", "task"], "sync": ["phase", "step", "none"], "op_order": ["layers", "diagonals"],
             "policy": ["breadth-first", "critical-path"]}  # fmt: skip
FORWARD = ("tokens", "embedding", "gates_in", "recurrence", "logits")
BOTH = ("embedding", "gates_in*", "recurrence", "logits*", "adamw")


def sections(base: Mapping[str, Any], groups: Sequence[str]) -> dict[str, Any]:
    """A space of every table of one thread for some of the groups of ops, beside one thread for all."""
    tables = [dict.fromkeys(some, 1) for count in range(1, len(groups)) for some in
              itertools.combinations(groups, count)]  # fmt: skip
    fixed = {"threads": THREADS, "scheduler": "fork-join", "fusion": "none", **base}
    return {"base": fixed, "space": {"threads": [1, THREADS], "op_threads": [None, *tables]},
            "exclude": [{"threads": 1, "op_threads": table} for table in tables]}  # fmt: skip


TUNINGS: dict[str, dict[str, Any]] = {
    "tuning-gpt2-124m": {
        "base": {"model": "gpt2-124m", "batch": 4, "seq": 64, "threads": THREADS, "steps": 4},
        "space": {"scheduler": ["fork-join", "task"], "sync": ["phase", "step", "none"],
                  "assignment": ["static", "dynamic"], "policy": ["breadth-first", "critical-path"],
                  "batch_slice": [1, 2, 4], "token_slice": [16, 32, 64], "fusion": ["none", "rows", "all"]},
    },
    "tuning-lstm-deep": {
        "base": {"model": "lstm-deep", **LSTM, "steps": 5},
        "space": {**SCHEDULES, "threads": [1, 2], "batch_slice": [2, 4], "token_slice": [8, 16, 32, 64],
                  "unit_slice": [128, 256, 512], "fusion": ["none", "rows", "all"]},
    },
    "tuning-lstm-deep-infer": {
        "base": {"model": "lstm-deep", **INFER, **LSTM, "steps": 10},
        "space": {**SCHEDULES, "threads": [1, 2], "batch_slice": [2, 4], "token_slice": [8, 16, 32, 64],
                  "unit_slice": [128, 256, 512], "fusion": ["none", "rows"],
                  "op_threads": [None, {"recurrence": 1}, {"logits": 1}, {"gates_in": 1}]},
    },
    "sections-lstm-deep": sections({"model": "lstm-deep", **LSTM, "steps": 5}, BOTH),
    "sections-lstm-deep-infer": sections({"model": "lstm-deep", **INFER, **LSTM, "steps": 10}, FORWARD),
    "sections-lstm-medium-b20-infer": sections(
        {"model": "lstm-medium", **INFER, "batch": 20, "seq": 35, "steps": 10}, FORWARD),
    "sections-lstm-medium-b1-infer": sections(
        {"model": "lstm-medium", **INFER, "batch": 1, "seq": 35, "steps": 30}, FORWARD),
}  # fmt: skip
TERMS = {"runs": 48, "batch": 6, "confirm": 8, "fresh": 20}


def request_of(name: str) -> ExperimentRequest:
    declared = TUNINGS[name]
    grid = {"sampler": "grid"} if name.startswith("sections") else {}
    return ExperimentRequest.model_validate({"name": name, "tune": {**TERMS, **grid}, **declared})


def table(name: str, found: Tuning) -> str:
    """The answer, and what each part of it stands on, as Markdown."""
    trials = sorted((t for t in found.trials if t.ratio is not None), key=lambda t: -(t.ratio or 0))
    first = "\n".join(f"| {trial.ratio:.3f} | `{trial.settings}` |" for trial in trials[:5])
    last = "\n".join(f"| {trial.ratio:.3f} | `{trial.settings}` |" for trial in trials[-2:])
    flagged = sum(trial.flagged for trial in found.trials)
    important = "\n".join(f"| {each.setting} | {each.effect:.1%} | {each.n} |" for each in found.importance)
    missing = "".join(f"\n\nMissing: {reason}" for reason in found.missing)
    return f"""# {name}

{found.sentence}{missing}

{found.spent_runs} runs took {found.spent_s:.0f} s; {flagged} of {len(found.trials)} trials have flagged steps.
{found.space.combinations} combinations: {found.space.valid} valid, {found.space.invalid} refused, \
{found.space.excluded} excluded, {found.space.equal} equal to others.

The fastest and the slowest trials, beside the default in their block (one run each, so the first are lucky):

| default / setting | setting |
|---|---|
{first}
{last}

Mean effect of a setting's values on the step time over the trials (exploratory):

| setting | effect | trials |
|---|---|---|
{important}
"""


def carry_out(given: argparse.Namespace, processes: Processes) -> int:
    """Run each tuning that is not in the database yet, write the records, and return the exit code."""
    failed = 0
    with Client(demo.start(given.folder, processes), timeout_s=600) as client:
        for name in given.names:
            report = head("taskloom.bench.tuned-example/1")
            began = time.monotonic()
            made = client.submit(request_of(name), idempotency_key=name)
            print(f"{name}: experiment {made.id}", file=sys.stderr)
            wait_for(client, made.id, processes)
            found = client.tuning(made.id)
            failed += found.confirmed is None
            report |= {"request": request_of(name).model_dump(mode="json", exclude_unset=True),
                       "tuning": dataclasses.asdict(found)}  # fmt: skip
            save(given.out / results(name).name, report, table(name, found))
            print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    return int(failed > 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=tuple(TUNINGS), metavar="NAME", help=", ".join(TUNINGS))
    parser.add_argument("--folder", type=Path, default=ROOT / "runs/tuned", help="database, logs, artifacts")
    parser.add_argument("--out", type=Path, default=ROOT / "bench/results", help="folder of the records")
    given = parser.parse_args()
    given.folder, given.out = given.folder.absolute(), given.out.absolute()
    given.folder.mkdir(parents=True, exist_ok=True)
    os.chdir(ROOT)
    os.environ.update(SELDOM | {"TASKLOOM_POLL_S": "2"})  # the next block is decided by a poll
    sys.exit(with_processes(partial(carry_out, given), given.folder))


if __name__ == "__main__":
    main()
