"""Cost of observing a run: evidence and counters, and tracing, each compared with a run without it.

    python -m bench.observing --model tiny --batch 4 --seq 64 --steps 400 --rounds 8

Variants: `bare` (neither evidence nor counters), `observed` (as every run is), `traced` (with a trace too). Each round
every variant runs once in a fresh process, in random order, so rounds are pairs. The ratio is the median step of
`bare` / the median step of the variant, with an exact 95 % interval over the rounds, from six on. Results go to
bench/results/.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.ratios import HOW, limits, ratio
from bench.record import ROOT, head, machine, results, save
from bench.rounds import round_order
from gpt2core.process import launch
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.result import median

VARIANTS = ("bare", "observed", "traced")
WARMUP = 4  # steps that are not timed
# The trainer without observation, except for the accounting of waiting, which bench-metg measures.
BARE = """
import contextlib, sys
from gpt2core import __main__
from gpt2core.measure import evidence
from gpt2core.run import execute, report
from gpt2core.measure import tracing
from gpt2core.measure.tracing import new_record
tracing.new_record = lambda *arguments: new_record(*arguments[:6], False, *arguments[7:])
evidence.Watcher.read_if_due = lambda self: None
execute.Stages.counting = lambda self, thread: contextlib.nullcontext()
report.Report.evidence = lambda self: ({}, [], [])
sys.exit(__main__.main())
"""


def measure(config: TrainConfig, variant: str, folder: Path) -> dict[str, Any]:
    """One process's timed steps, and the size of its trace."""
    result, trace = folder / "result.json", folder / "trace.json.gz"
    settings = {**config.to_dict(), "trace": str(trace) if variant == "traced" else None}
    command = launch.command(result)
    if variant == "bare":
        command = [sys.executable, "-c", BARE, *command[command.index("--result") :]]
    done = subprocess.run(command, input=json.dumps(settings), env=launch.environment(), cwd=ROOT, text=True,
                          capture_output=True, check=False)  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{variant} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    found = json.loads(result.read_text(encoding="utf-8"))
    size = trace.stat().st_size if variant == "traced" else None
    return {"variant": variant, "step_s": found["step_s"], "flagged": found["flagged"], "trace_bytes": size}


def main() -> None:
    """Measure, print and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, kind, default in (("model", str, "tiny"), ("batch", int, 4), ("seq", int, 64), ("steps", int, 400),
                                ("threads", int, 2), ("scheduler", str, "task"), ("sync", str, "none"),
                                ("batch-slice", int, 1), ("token-slice", int, 64), ("rounds", int, 8)):  # fmt: skip
        parser.add_argument(f"--{name}", type=kind, default=default)
    parser.add_argument("--note", default="", help="a remark about the machine")
    given = vars(parser.parse_args())
    rounds, note = given.pop("rounds"), given.pop("note")
    config = TrainConfig.from_dict({**given, "data": "synthetic", "warmup": WARMUP})
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="bench-observing-") as folder:
        for number in range(rounds):
            for variant in round_order(VARIANTS, number):
                runs.append({"round": number, **measure(config, variant, Path(folder))})
    about = {**machine(), "load_average": list(os.getloadavg())}
    text = table(given, runs, about, note)
    report = {**head("taskloom.bench.observing/1", about), "given": given, "runs": runs}
    save(results(f"observing-{given['model']}"), report, text)


def table(given: dict[str, Any], runs: list[dict[str, Any]], about: dict[str, Any], note: str) -> str:
    """The comparison as Markdown: by each process's median step, and by the 10th percentile of its steps, which other
    processes disturb less."""
    lines = [
        f"# What observing costs: {given['model']}, B{given['batch']} T{given['seq']}, {given['scheduler']}, "
        f"{given['threads']} threads, {datetime.date.today()}", "",
        "| variant | step | ms | fastest to slowest process, ms | bare / variant | 95 % |", "|---|---|---|---|---|---|",
    ]  # fmt: skip
    for name, share in (("median", 0.5), ("10th percentile", 0.1)):
        found = {
            variant: [
                sorted(run["step_s"][WARMUP:])[int(share * (len(run["step_s"]) - WARMUP))]
                for run in runs
                if run["variant"] == variant
            ]
            for variant in VARIANTS
        }
        for variant, mine in found.items():
            against = ratio(found["bare"], mine)
            lines.append(
                f"| {variant} | {name} | {median(mine) * 1e3:.3f} | {min(mine) * 1e3:.3f} to {max(mine) * 1e3:.3f} "
                f"| {against['ratio']:.3f} | {limits(against['ratio_interval'])} |"
            )
    rounds = len(runs) // len(VARIANTS)
    options = " ".join(f"--{key.replace('_', '-')} {value}" for key, value in given.items())
    lines += ["", f"{rounds} rounds, `python -m bench.observing {options} --rounds {rounds}`. {about['cpu_model']}, "
              f"{about['cores']} cores, Linux {about['kernel']}, load average {about['load_average'][0]:.1f}. "
              f"Ratio: {HOW}. {note}",
              ""]  # fmt: skip
    return "\n".join(lines)


if __name__ == "__main__":
    main()
