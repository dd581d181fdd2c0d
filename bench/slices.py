"""Compare automatic slices with a grid of slices, paired and in fresh processes.

    python -m bench.slices --shapes 4x64,4x256 --threads 1,2     # 11 minutes on two cores; 1x1024,8x128 as long

The grid has slices of 32 tokens, doubled up to the whole batch, each as long as the sequence allows (or those of
--slices), and the slices that `auto` chooses. In each round every slicing runs once in a random order; from the second
round on only those within CONTENDING of a case's best, and `auto`. The figure of a process is the median of its timed
steps. `auto` is compared with the best median by the ratios of the rounds that both ran, with an exact interval from
six rounds on. The best of many is partly lucky, so the ratio is rather too high. With one thread only `task` runs: both
schedulers run the same tasks. A process during which others took part of the machine is repeated once.

For more cores than there are (--forecast): the step that the profile of the one-thread run forecasts
(analysis.forecast), for `auto` at that many threads and for the grid, with bandwidth that grows with the cores and with
bandwidth held at what this machine has. Raw samples, the machine and tables are written to --out (.json and .md).
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import json
import random
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.quiet import QUIET, undisturbed
from bench.ratios import HOW, limits, ratio
from bench.record import Measured, head, out_option, save
from bench.rounds import SEED
from bench.step import child, parse_shape
from gpt2core.process import launch
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.result import median
from gpt2core.spec.wording import counted
from gpt2core.step import slicing
from taskloom.analysis.forecast import Beyond, Ceiling, fork_join_step_s, task_step_s
from taskloom.analysis.profile import profile_of
from taskloom.analysis.roofline import peaks_of

BEYOND: tuple[Beyond, ...] = ("grows", "held")
LEAST_ROWS = 32
CONTENDING = 1.10
ATTEMPTS = 2
LIMIT = 1.05  # limit of auto's median / the best one's

Slices = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Case:
    """Settings that all slicings share."""

    batch: int
    seq: int
    scheduler: str
    threads: int

    def __str__(self) -> str:
        return f"B{self.batch} T{self.seq}, {self.scheduler}, {counted(self.threads, 'thread')}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.slices", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    cores = len(launch.allowed_cores())
    parser.add_argument("--model", default="gpt2-124m")
    parser.add_argument("--shapes", default="4x64,4x256", help="BATCHxSEQ, separated by commas")
    parser.add_argument("--threads", default=",".join(str(n) for n in sorted({1, cores})))
    parser.add_argument("--schedulers", default="task,fork-join")
    parser.add_argument("--slices", help="SEQUENCESxTOKENS, separated by commas, instead of the grid")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--rounds", type=int, default=3, help="processes of each contender")
    parser.add_argument("--steps", type=int, default=3, help="steps of each process, warm-up included")
    parser.add_argument("--warmup", type=int, default=1, help="steps of these that are not timed")
    parser.add_argument("--budget-s", type=float, default=660.0, help="no round begins that would end later")
    parser.add_argument("--forecast", default="8,16", help="numbers of cores, or nothing")
    parser.add_argument("--seed", type=int, default=SEED, help="seed of the order within rounds [the time]")
    out_option(parser, "slices")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    cases = [
        Case(*parse_shape(shape), scheduler, threads)
        for shape in given.shapes.split(",")
        for threads in map(int, given.threads.split(","))
        for scheduler in (given.schedulers.split(",") if threads > 1 else ["task"])
    ]
    base = TrainConfig(
        model=given.model, batch=1, seq=1, steps=given.steps, warmup=given.warmup, precision=given.precision
    )
    wanted = None if given.slices is None else [parse_shape(each) for each in given.slices.split(",")]
    forecast = [int(cores) for cores in given.forecast.split(",") if cores]
    with tempfile.TemporaryDirectory(prefix="bench-slices-") as folder:
        trial = Trial(base, cases, wanted, forecast, Path(folder))
        trial.measure(given.rounds, given.budget_s, random.Random(given.seed))
    report = {
        **head("taskloom.bench.slices/1"),
        "runs": trial.runs,
        "comparisons": [trial.compare(case) for case in cases],
        "forecasts": trial.forecasts(),
    }
    save(given.out, report, table(report))


def grid(batch: int, seq: int) -> list[Slices]:
    """Slices of LEAST_ROWS tokens, doubled up to all of them, each as long as the sequence allows."""
    rows = [1 << i for i in range(32) if LEAST_ROWS <= 1 << i <= batch * seq]
    return [(max(1, each // seq), min(seq, each)) for each in rows]


class Trial:
    """The runs of all cases, and their figures."""

    def __init__(
        self, base: TrainConfig, cases: Sequence[Case], given: Sequence[Slices] | None, cores: Sequence[int], to: Path
    ) -> None:
        """given: slices instead of the grid; cores: for which to forecast; to: a folder for results."""
        self.base, self.cases, self.cores, self.folder = base, cases, cores, to
        self.ways: dict[Case, list[Slices]] = {}
        for case in cases:
            tried = list(grid(case.batch, case.seq) if given is None else given)
            threads = [case.threads, *(cores if case.threads == 1 else [])]
            self.ways[case] = list(dict.fromkeys([*tried, *(self.auto(case, count) for count in threads)]))
        self.runs: list[Measured] = []
        self.profiles: dict[tuple[int, int, Slices], Measured] = {}

    def config(self, case: Case, threads: int) -> TrainConfig:
        return dataclasses.replace(
            self.base, batch=case.batch, seq=case.seq, scheduler=case.scheduler, threads=threads,
            cores=tuple(launch.allowed_cores()[:threads]) if threads == case.threads else None,
        )  # fmt: skip

    def auto(self, case: Case, threads: int) -> Slices:
        """Automatic slices for this number of threads."""
        return slicing.sizes(self.config(case, threads))

    def measure(self, rounds: int, budget_s: float, order: random.Random) -> None:
        """Every slicing once, then the contenders while there is time."""
        begun_s = time.monotonic()
        took_s: dict[tuple[Case, Slices], float] = {}
        for round_no in range(rounds):
            ways = {case: self.contenders(case) if round_no else self.ways[case] for case in self.cases}
            todo = [(case, way) for case in self.cases for way in ways[case]]
            if time.monotonic() - begun_s + sum(took_s.get(each, 0.0) for each in todo) > budget_s:
                print(f"no time for round {round_no + 1}", flush=True)
                break
            for done, (case, way) in enumerate(order.sample(todo, len(todo))):
                before_s = time.monotonic()
                run = self.run_quietly(case, way)
                self.runs.append({"round": round_no, **dataclasses.asdict(case), "slices": way, **run})
                took_s[case, way] = time.monotonic() - before_s
                print(f"[round {round_no + 1}, {done + 1}/{len(todo)}] {case}, {name(way)}: "
                      f"{self.of(case, way)[-1] * 1e3:.1f} ms a step; others took {run['others']:.0%} of the machine",
                      flush=True)  # fmt: skip

    def run_quietly(self, case: Case, way: Slices) -> Measured:
        """Measure in one process; repeat it if other processes used part of the machine meanwhile."""
        found, others = undisturbed(lambda: self.run(case, way), f"{case}, {name(way)}", ATTEMPTS)
        return {**found, "others": others}

    def run(self, case: Case, way: Slices) -> Measured:
        """One process."""
        config = dataclasses.replace(self.config(case, case.threads), batch_slice=way[0], token_slice=way[1])
        result, profile = self.folder / "result.json", self.folder / "profile.json.gz"
        command = [*launch.command(result), "--profile", str(profile)]
        child(command, json.dumps(config.to_dict()), launch.environment())
        if case.threads == 1:
            self.profiles.setdefault((case.batch, case.seq, way), json.loads(gzip.decompress(profile.read_bytes())))
        got = json.loads(result.read_text(encoding="utf-8"))
        return {key: got[key] for key in ("step_s", "losses", "graph", "warnings", "environment")}

    def of(self, case: Case, way: Slices) -> list[float]:
        """The median step of each process, by round."""
        wanted = {**dataclasses.asdict(case), "slices": way}
        mine = [run for run in self.runs if all(run[key] == value for key, value in wanted.items())]
        return [median(run["step_s"][self.base.warmup_steps :]) for run in mine]

    def contenders(self, case: Case) -> list[Slices]:
        """Slicings near the best one, and auto."""
        medians = {way: median(self.of(case, way)) for way in self.ways[case]}
        most = CONTENDING * min(medians.values())
        return [way for way, value in medians.items() if value <= most or way == self.auto(case, case.threads)]

    def compare(self, case: Case) -> Measured:
        """Compare auto with the best slicing. Slicings that were dropped early are not the best: they were CONTENDING
        times slower."""
        medians = {way: self.of(case, way) for way in self.ways[case]}
        auto = self.auto(case, case.threads)
        most = len(medians[auto])
        best = min((way for way in medians if len(medians[way]) == most), key=lambda way: median(medians[way]))
        return {
            **dataclasses.asdict(case),
            "label": str(case),
            "auto": auto,
            "best": best,
            **ratio(medians[auto], medians[best]),
            "ways": [
                {"slices": way, "processes": len(mine), "median_step_s": median(mine), "min_step_s": min(mine),
                 "max_step_s": max(mine)}
                for way, mine in medians.items()
            ],
        }  # fmt: skip

    def forecasts(self) -> list[Measured]:
        """For each shape, number of cores and scheduler: the step of every slicing, of auto and of the best."""
        found = []
        for case in (case for case in self.cases if case.threads == 1):
            profiles = {way: profile_of(self.profiles[case.batch, case.seq, way]) for way in self.ways[case]}
            for cores in self.cores:
                auto = self.auto(case, cores)
                for beyond, ceiling in ceilings(profiles[auto].environment, self.base.precision).items():
                    for scheduler, forecast_s in (("task", task_step_s), ("fork-join", fork_join_step_s)):
                        step_s = {way: forecast_s(profile, cores, ceiling) for way, profile in profiles.items()}
                        best = min(step_s, key=lambda way: step_s[way])
                        found.append({
                            "batch": case.batch, "seq": case.seq, "cores": cores, "scheduler": scheduler,
                            "bandwidth": beyond, "auto": auto, "best": best, "ratio": step_s[auto] / step_s[best],
                            "ways": [{"slices": way, "step_s": value} for way, value in step_s.items()],
                        })  # fmt: skip
        return found


def ceilings(environment: Mapping[str, Any], precision: str) -> dict[str, Ceiling | None]:
    """The bandwidth on more cores than were measured; without measured peaks it is unlimited."""
    measured = tuple(
        peaks
        for count in (environment.get("peaks") or {}).get("threads") or {}
        if (peaks := peaks_of(environment, int(count), precision)) is not None
    )
    return {beyond: Ceiling(measured, beyond) for beyond in BEYOND} if measured else {"unlimited": None}


def name(way: Slices) -> str:
    return f"{way[0]}x{way[1]}"


def table(report: Measured) -> str:
    """Comparisons and forecasts as Markdown."""
    on, disturbed = report["machine"], sum(run["others"] > QUIET for run in report["runs"])
    lines = [
        f"# Automatic slices against a grid, {report['at'][:10]}", "",
        f"Machine: {on['cpu_model']}, {on['cores']} cores, {on['memory_bytes'] / (1 << 30):.0f} GiB, Linux "
        f"{on['kernel']}; load average at the end {on['load_average'][0]:.1f}; command: `python -m bench.slices "
        f"{' '.join(report['command'])}`", "",
        f"Ratio: step of auto / of the best slices, {HOW}; the best was chosen by the same rounds; the limit is "
        f"{LIMIT:.2f}. Slices: sequences x tokens; ms a step (number of processes). Others took more than {QUIET:.0%} "
        f"of the machine during {disturbed} of {len(report['runs'])} processes.", "",
        "| case | auto | best | ratio | 95 % | all |", "|---|---|---|---|---|---|",
    ]  # fmt: skip
    for each in report["comparisons"]:
        ways = ", ".join(f"{name(w['slices'])} {w['median_step_s'] * 1e3:.0f} ({w['processes']})" for w in each["ways"])
        lines.append(f"| {each['label']} | {name(each['auto'])} | {name(each['best'])} | {verdict(each['ratio'])} "
                     f"| {limits(each['ratio_interval'])} | {ways} |")  # fmt: skip
    if report["forecasts"]:
        lines += [
            "", "Forecast from one-thread profiles for more cores, ms a step:", "",
            "| shape | cores | scheduler | bandwidth | auto | best | ratio | all |",
            "|---|---|---|---|---|---|---|---|",
        ]  # fmt: skip
    for each in report["forecasts"]:
        ways = ", ".join(f"{name(w['slices'])} {w['step_s'] * 1e3:.0f}" for w in each["ways"])
        what = f"B{each['batch']} T{each['seq']} | {each['cores']} | {each['scheduler']} | {each['bandwidth']}"
        lines.append(f"| {what} | {name(each['auto'])} | {name(each['best'])} | {verdict(each['ratio'])} | {ways} |")
    return "\n".join(lines) + "\n"


def verdict(ratio: float) -> str:
    return f"{ratio:.3f}" + (" **above**" if ratio > LIMIT else "")


if __name__ == "__main__":
    main()
