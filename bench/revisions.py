"""Compare this tree (or --ours) with an earlier one in turns: steps, METG, and the time from start to first step.

    git worktree add /tmp/before COMMIT
    python -m bench.revisions --before /tmp/before --cases tiny:task:2,gpt2-124m:task:2,metg --rounds 8

In each round both trees start a fresh process, in random order. Then the two take turns on the same
cores until one of them ends (bench/turns.py): 0.2 s each for tiny, 2.5 s for larger models. The step that was stopped
is dropped. The figure of a turn is the median of its other steps, and that of a round the Hodges-Lehmann estimate over
its pairs of turns. METG is that of one pattern; a turn is one sweep of grains under one scheduler without its first
point, which was stopped. The figure of a round is the median at each grain over its sweeps. Turns of one round share
the host's speed, but also the placement of memory, so the interval is over rounds, from six on. Ratios are ours /
before, below 1 where ours is faster. Losses are compared. Raw figures, the machine and a table are written to --out
(.json and .md). With --at-most 1.03 the exit status is 1 if a step or METG of ours takes more than 1.03 times as long
and the interval excludes 1, and 3 if it does not exclude it or there is none.
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
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.ratios import HOW, limits, ratio
from bench.record import ROOT, Measured, head, machine, out_option, save
from bench.rounds import round_order
from bench.schedulers import VARIANTS
from bench.turns import Event, Runner, Turn, alternate
from gpt2core.process import launch
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.fields import PRECISIONS
from gpt2core.spec.models import model_names
from gpt2core.spec.result import median
from gpt2core.spec.schedulers import SCHEDULERS
from gpt2core.taskbench.granularity import Point, metg_s, peak_iterations_per_s
from gpt2core.taskbench.patterns import PATTERNS

METG_MODULES = ("gpt2core.taskbench.metg", "gpt2core.metg")  # the present path, and that in older trees
WHAT = {"step_s": "step", "first_step_s": "start to first step", "task": "METG, task", "fork-join": "METG, fork-join"}
METG_TURNS = 20  # at least: with 6, ratios of two trees were 1.1, 1.5 and 2.9, with 24 between 0.9 and 1.1
FORM = "MODEL:VARIANT:THREADS, MODEL:VARIANT:THREADS:PRECISION, metg (of stencil_1d), or metg:PATTERN"
Found = dict[str, dict[str, list[float]]]  # (figure, tree) -> paired values


@dataclass(frozen=True)
class Case:
    """A case for both trees: the settings, the event that ends a turn, and the least duration of a turn."""

    name: str
    settings: Measured
    report: str
    turn_s: float

    @classmethod
    def parse(cls, name: str, turns: int) -> Case:
        """A case from its name (FORM), checked by the tree of this script. VARIANT is a scheduler or a variant of
        bench.schedulers.

        turns: the approximate number of turns of each process. Raises ConfigError.
        """
        parts = name.split(":")
        if parts[0] == "metg" and len(parts) <= 2:
            pattern = parts[1] if len(parts) == 2 else "stencil_1d"
            if pattern not in PATTERNS:
                raise ConfigError("pattern", pattern, "one of " + ", ".join(PATTERNS))
            settings = {
                "threads": 2, "cores": list(launch.allowed_cores()[:2]), "scheduler": ["task", "fork-join"],
                "pattern": [pattern], "max_grain": 8192, "point_s": 0.01, "repetitions": turns // 2,  # two schedulers
            }  # fmt: skip
            return cls(name, settings, "sweep", 0.0)
        if len(parts) not in (3, 4):
            raise ConfigError("case", name, FORM)
        model, variant, threads, precision = (*parts, "fp32")[:4]
        if model not in model_names():
            raise ConfigError("model", model, "one of " + ", ".join(model_names()))
        if variant not in VARIANTS and variant not in SCHEDULERS:
            raise ConfigError("variant", variant, "one of " + ", ".join([*SCHEDULERS, *VARIANTS]))
        most = len(launch.allowed_cores())
        if not threads.isdecimal() or not 1 <= int(threads) <= most:
            raise ConfigError("threads", threads, f"1 to {most}, the cores that this process may use")
        if precision not in PRECISIONS:
            raise ConfigError("precision", precision, "one of " + ", ".join(PRECISIONS))
        turn_s, warmup, steps = (0.2, 20, 110) if model == "tiny" else (2.5, 2, 3)  # approximate duration of a turn
        settings = {
            "model": model, "batch": 4, "seq": 64, **VARIANTS.get(variant, {"scheduler": variant}),
            "precision": precision, "threads": int(threads), "warmup": warmup, "steps": warmup + 1 + steps * turns,
            "cores": list(launch.allowed_cores()[: int(threads)]),
        }  # fmt: skip
        return cls(name, settings, "step", turn_s)

    @property
    def sweeps(self) -> bool:
        """Whether this is METG rather than training."""
        return self.report == "sweep"

    def start(self, tree: Path, result: Path) -> Runner:
        module = "gpt2core"
        if self.sweeps:
            module = next(m for m in METG_MODULES if (tree / (m.replace(".", "/") + ".py")).exists())
        return Runner([sys.executable, "-P", "-m", module, "--result", str(result)], self.settings, tree, self.report)

    def run(self, tree: Path) -> Measured:
        """The result of one process, which runs alone."""
        with tempfile.TemporaryDirectory(prefix="bench-revisions-") as folder:
            result = Path(folder) / "result.json"
            with self.start(tree, result) as runner:
                runner.finish()
            found: Measured = json.loads(result.read_text(encoding="utf-8"))
        return found

    def warm(self, event: Event) -> bool:
        """Whether a report belongs to measured work."""
        return self.sweeps or event["step"] > self.settings["warmup"]


def trees_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--before", type=Path, required=True, help="a checkout of the earlier commit")
    parser.add_argument("--ours", type=Path, default=ROOT, help="a checkout of the later commit [this one]")


def trees_of(given: argparse.Namespace) -> dict[str, Path]:
    return {"ours": given.ours.resolve(), "before": given.before.resolve()}


def turns_of(name: str, wanted: int) -> int:
    """The number of turns of a case. METG needs METG_TURNS."""
    return max(wanted, METG_TURNS) if name.split(":")[0] == "metg" else wanted


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.revisions", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    trees_options(parser)
    parser.add_argument("--cases", default="tiny:task:2,tiny:fork-join:2,gpt2-124m:task:2,gpt2-124m:fork-join:2,metg",
                        help="MODEL:SCHEDULER:THREADS, MODEL:VARIANT:THREADS (of bench.schedulers), the same with "
                             ":bf16, metg (of stencil_1d), metg:PATTERN")  # fmt: skip
    parser.add_argument("--rounds", type=int, default=8, help="pairs of processes of each case")
    parser.add_argument("--turns", type=int, default=20, help="approximate number of turns of each process")
    parser.add_argument("--at-most", type=float, metavar="RATIO", help="fail if ours takes more than this [no limit]")
    out_option(parser, "revisions")
    given = parser.parse_args(arguments)
    trees = trees_of(given)
    names = given.cases.split(",")
    try:
        brief = {name: Case.parse(name, 2) for name in names}
        cases = {name: Case.parse(name, turns_of(name, given.turns)) for name in names}
    except ConfigError as error:
        parser.error(str(error))
    revisions = {name: revision(tree) for name, tree in trees.items()}
    order = random.Random(1337)
    for name in names:
        measure(brief[name], trees, order, 0)  # compiles what is missing, and measures products
    before = machine()
    rounds: list[Measured] = []
    for number in range(given.rounds):
        for name in names:
            rounds.append({"round": number, "case": name, **measure(cases[name], trees, order, number)})
            said = ", ".join(f"{WHAT[what]} {ratio(*sides(of))['ratio']:.3f}" for what, of in rounds[-1]["of"].items())
            print(f"[{number + 1}/{given.rounds}] {name}: {said}", flush=True)
    report = {
        **head("taskloom.bench.revisions/2", {**before, "load_average_after": list(os.getloadavg())}),
        "revisions": revisions,
        "rounds": rounds,
        "rows": [row(rounds, case, what) for case in names for what in WHAT
                 if any(what in r["of"] for r in rounds if r["case"] == case)],
    }  # fmt: skip
    save(given.out, report, table(report))
    if given.at_most is not None:
        sys.exit(guard(report["rows"], given.at_most))


def guard(rows: Sequence[Measured], at_most: float) -> int:
    """Print the figures of `rows` that took more than `at_most` times as long as before. Returns 1 if one of their
    intervals excludes 1, 3 if none does, 0 without such a figure. Starts are not judged.
    """
    above = [row for row in rows if row["ratio"] > at_most and row["what"] != WHAT["first_step_s"]]
    sure = [row for row in above if row["ratio_interval"] is not None and row["ratio_interval"][0] > 1]
    for row in above:
        known = "slower" if row in sure else "undecided, which takes more rounds"
        print(f"{row['case']}, {row['what']}: {row['ratio']:.4f} is above {at_most:g}: {known}")
    return 1 if sure else 3 if above else 0


def revision(tree: Path) -> str:
    """The commit of a checkout, with a plus sign if its files differ from it."""
    return subprocess.run(["git", "-C", str(tree), "describe", "--always", "--dirty=+", "--abbrev=7", "--exclude=*"],
                          check=True, capture_output=True, text=True).stdout.strip()  # fmt: skip


def measure(case: Case, trees: Mapping[str, Path], order: random.Random, round_no: int) -> Measured:
    """One round of a case: the figures of its turns, and whether losses agree. Raises SystemExit if a process fails."""
    runners: dict[str, Runner] = {}
    last: dict[str, Event] = {}
    first_s: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="bench-revisions-") as folder, ExitStack() as running:
        results = {name: Path(folder) / f"{name}.json" for name in trees}
        for name in round_order(list(trees), round_no, case.name):
            runner = runners[name] = running.enter_context(case.start(trees[name], results[name]))
            while (event := runner.next_report()) is not None and not case.warm(event):
                first_s.setdefault(name, [time.monotonic() - runner.begun_s - event["step_s"]])
            if event is None:
                runner.finish()
                raise SystemExit(f"{case.name}, {name}: ended before its measured work")
            last[name] = event
            runner.stop()
        turns = alternate(runners, last, case.turn_s, order)
        got = {name: json.loads(result.read_text(encoding="utf-8")) for name, result in results.items()}
    if case.sweeps:
        return {"turns": len(turns), "of": metg(turns, got)}
    of = {**steps(turns, got), "first_step_s": first_s}
    return {"turns": len(turns), "of": of, "same_losses": got["ours"]["losses"] == got["before"]["losses"]}


def steps(turns: Sequence[Mapping[str, Turn]], got: Mapping[str, Any]) -> Found:
    """Median step of each pair of turns in which both trees ran a whole one."""
    whole = [{name: turn.whole(got[name]["step_s"]) for name, turn in pair.items()} for pair in turns]
    kept = [pair for pair in whole if all(pair.values())]
    return {"step_s": {name: [median(pair[name]) for pair in kept] for name in got}} if kept else {}


def metg(turns: Sequence[Mapping[str, Turn]], got: Mapping[str, Any]) -> Found:
    """METG of each scheduler, from its sweeps' medians. Raises SystemExit if the trees' sweeps are in another order."""
    swept: dict[str, dict[str, list[Measured]]] = {}
    for pair in turns:
        sweeps = {name: got[name]["sweeps"][turn.since["done"]] for name, turn in pair.items()}
        scheduler, *other = {sweep["scheduler"] for sweep in sweeps.values()}
        if other:
            raise SystemExit("the two trees' sweeps differ in their order")
        for name, sweep in sweeps.items():
            swept.setdefault(scheduler, {}).setdefault(name, []).extend(sweep["points"][1:])
    reached = {
        scheduler: {name: [value for value in [median_metg_s(points)] if value] for name, points in of.items()}
        for scheduler, of in swept.items()
    }
    return {scheduler: of for scheduler, of in reached.items() if all(of.values())}


def median_metg_s(points: Sequence[Measured]) -> float | None:
    """METG(50 %) from the median time of a task at each grain and the best rate of these."""
    by_grain: dict[int, list[float]] = {}
    for point in points:
        by_grain.setdefault(point["grain"], []).append(point["elapsed_s"] / point["tasks"])
    middle = [Point(grain, 1, median(each), points[0]["threads"]) for grain, each in by_grain.items()]
    return metg_s(middle, peak_iterations_per_s([middle]))


def sides(of: Mapping[str, list[float]]) -> tuple[list[float], list[float]]:
    return of["ours"], of["before"]


def row(rounds: Sequence[Measured], case: str, what: str) -> Measured:
    """One figure of a case in both trees; its ratio is over the rounds' ratios."""
    mine = [r for r in rounds if r["case"] == case]
    of = [r["of"][what] for r in mine if what in r["of"]]
    ours, before = ([median(side) for side in both] for both in zip(*map(sides, of), strict=True))
    ratios = [ratio(*sides(each))["ratio"] for each in of]
    same = [r["same_losses"] for r in mine if "same_losses" in r]
    return {"case": case, "what": WHAT[what], "ours_s": median(ours), "before_s": median(before),
            "turns": sum(r["turns"] for r in mine), "round_ratios": ratios,
            "same_losses": all(same) if same else None, **ratio(ratios, [1.0] * len(ratios))}  # fmt: skip


def table(report: Measured) -> str:
    of = report["machine"]
    lines = [
        f"# {report['revisions']['ours']} against {report['revisions']['before']}, {report['at'][:10]}", "",
        f"Machine: {of['cpu_model']}, {of['cores']} cores, Linux {of['kernel']}; load average "
        f"{of['load_average'][0]:.1f} before, {of['load_average_after'][0]:.1f} after.", "",
        f"Ratio: ours / before, below 1 where ours is faster, {HOW}. A round is a pair of processes that take turns on "
        "the same cores; its ratio is that of its pairs of turns.", "",
        "| case | what | before | ours | ratio | 95 % | rounds | pairs of turns | same losses |",
        "|---|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for r in report["rows"]:
        scale, unit = (1e3, "ms") if r["ours_s"] > 1e-4 else (1e9, "ns")
        figures = f"{r['before_s'] * scale:.4g} {unit} | {r['ours_s'] * scale:.4g} {unit} | {r['ratio']:.4f}"
        same = {True: "yes", False: "no", None: "-"}[r["same_losses"]]
        pairs = f"{r['rounds']} | {r['turns']}"
        lines.append(f"| {r['case']} | {r['what']} | {figures} | {limits(r['ratio_interval'], 4)} | {pairs} | {same} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
