"""This tree compared with an earlier one: steps, start to first step, and METG, paired and in fresh processes.

    git worktree add /tmp/before COMMIT
    python -m bench.revisions --before /tmp/before --cases tiny:task:2,gpt2-124m:task:2,metg --rounds 6

In each round both trees run every case once, which of the two first at random, so rounds are pairs. A training process
counts by the median of its timed steps, and by the seconds from its start to its first step; METG is that of
stencil_1d under one scheduler. The ratio is ours / before, below 1 where ours is faster, with an exact interval from
six rounds on. Losses are compared. Raw figures, the machine and a table are written to --out (.json and .md).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.ratios import HOW, ratio, told
from bench.record import ROOT, Measured, head, machine, out_option, save
from gpt2core.process import launch
from gpt2core.spec.result import median

METG_MODULES = ("gpt2core.taskbench.metg", "gpt2core.metg")  # now, and in trees before it moved
WHAT = {"step_s": "step", "first_step_s": "start to first step", "task": "METG, task", "fork-join": "METG, fork-join"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.revisions", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--before", type=Path, required=True, help="a checkout of the earlier commit")
    parser.add_argument("--cases", default="tiny:task:2,tiny:fork-join:2,gpt2-124m:task:2,gpt2-124m:fork-join:2,metg",
                        help="MODEL:SCHEDULER:THREADS, or metg; with commas")  # fmt: skip
    parser.add_argument("--rounds", type=int, default=6)
    out_option(parser, "revisions")
    given = parser.parse_args()
    trees = {"ours": ROOT, "before": given.before.resolve()}
    cases = given.cases.split(",")
    for tree in trees.values():
        for case in cases:
            measure(tree, case)  # compiles what is missing, and measures products
    before = machine()
    runs: list[Measured] = []
    order = random.Random(1337)
    for round_no in range(given.rounds):
        for case in cases:
            losses = {}
            for name in order.sample(list(trees), len(trees)):
                got = measure(trees[name], case)
                losses[name] = got.pop("losses", None)
                runs.append({"round": round_no, "case": case, "tree": name, **got})
                said = ", ".join(f"{WHAT[key]} {value * 1e3:.4g} ms" for key, value in got.items())
                print(f"[{round_no + 1}/{given.rounds}] {case}, {name}: {said}", flush=True)
            if all(losses.values()):  # METG has none
                runs[-1]["same_losses"] = runs[-2]["same_losses"] = losses["ours"] == losses["before"]
    report = {
        **head("taskloom.bench.revisions/1", {**before, "load_average_after": list(os.getloadavg())}),
        "revisions": {name: revision(tree) for name, tree in trees.items()},
        "runs": runs,
        "rows": [row(runs, case, key) for case in cases for key in measured(runs, case)],
    }
    save(given.out, report, table(report))


def revision(tree: Path) -> str:
    """The commit of a checkout, with a plus sign where its files differ from it."""
    return subprocess.run(["git", "-C", str(tree), "describe", "--always", "--dirty=+", "--abbrev=7", "--exclude=*"],
                          check=True, capture_output=True, text=True).stdout.strip()  # fmt: skip


def measure(tree: Path, case: str) -> Measured:
    """Seconds of one fresh process of a tree. Raises SystemExit if it fails."""
    with tempfile.TemporaryDirectory(prefix="bench-revisions-") as folder:
        result = Path(folder) / "result.json"
        if case == "metg":
            module = next(m for m in METG_MODULES if (tree / (m.replace(".", "/") + ".py")).exists())
            settings: Measured = {"threads": 2, "cores": list(launch.allowed_cores()[:2]), "repetitions": 2}
            run(tree, module, settings, result)
            sweeps = json.loads(result.read_text(encoding="utf-8"))["metg"]
            return {each["scheduler"]: each["metg_s"] for each in sweeps}
        model, scheduler, threads = case.split(":")
        steps, warmup = (200, 20) if model == "tiny" else (7, 2)
        settings = {"model": model, "batch": 4, "seq": 64, "steps": steps, "warmup": warmup, "scheduler": scheduler,
                    "threads": int(threads), "cores": list(launch.allowed_cores()[: int(threads)])}  # fmt: skip
        first_s = run(tree, "gpt2core", settings, result)
        got = json.loads(result.read_text(encoding="utf-8"))
        return {"step_s": median(got["step_s"][warmup:]), "first_step_s": first_s - got["step_s"][0],
                "losses": got["losses"]}  # fmt: skip


def run(tree: Path, module: str, settings: Measured, result: Path) -> float:
    """Seconds from a process's start to the report of its first step; nan if it reports none."""
    command = [sys.executable, "-P", "-m", module, "--result", str(result)]
    environment = {**launch.environment(), "PYTHONPATH": str(tree)}
    begun, first = time.monotonic(), float("nan")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=result.parent,
                          env=environment) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(settings))
        process.stdin.close()
        for line in process.stdout:
            if first != first and json.loads(line)["event"] == "step":
                first = time.monotonic() - begun
    if process.returncode:
        raise SystemExit(f"{tree}: {module} ended with {process.returncode}")
    return first


def measured(runs: list[Measured], case: str) -> list[str]:
    """Measurements of a case."""
    return [key for key in WHAT if any(key in r for r in runs if r["case"] == case)]


def row(runs: list[Measured], case: str, key: str) -> Measured:
    """One figure of a case in both trees."""
    of = {tree: [r[key] for r in runs if r["case"] == case and r["tree"] == tree] for tree in ("ours", "before")}
    same = [r["same_losses"] for r in runs if r["case"] == case and "same_losses" in r]
    return {"case": case, "what": WHAT[key], "ours_s": median(of["ours"]), "before_s": median(of["before"]),
            "same_losses": all(same) if same else None, **ratio(of["ours"], of["before"])}  # fmt: skip


def table(report: Measured) -> str:
    of = report["machine"]
    lines = [
        f"# {report['revisions']['ours']} against {report['revisions']['before']}, {report['at'][:10]}", "",
        f"Machine: {of['cpu_model']}, {of['cores']} cores, Linux {of['kernel']}; load average "
        f"{of['load_average'][0]:.1f} before, {of['load_average_after'][0]:.1f} after.", "",
        f"Ratio: ours / before, below 1 where ours is faster, {HOW}.", "",
        "| case | what | before | ours | ratio | 95 % | same losses |", "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for r in report["rows"]:
        scale, unit = (1e3, "ms") if r["ours_s"] > 1e-4 else (1e9, "ns")
        figures = f"{r['before_s'] * scale:.4g} {unit} | {r['ours_s'] * scale:.4g} {unit} | {r['ratio']:.3f}"
        same = {True: "yes", False: "no", None: "-"}[r["same_losses"]]
        lines.append(f"| {r['case']} | {r['what']} | {figures} | {told(r['ratio_interval'])} | {same} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
