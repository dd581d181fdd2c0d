"""METG(50 %) of our task runtime against OpenMP's: the same graphs, kernels, validation, threads and cores.

    python -m bench.metg --rounds 6

Each installed OpenMP runtime runs our tasks (omp-task, omp-for). The peer is bench/openmp_tasks.c, built with GCC and,
if installed, Clang: it shows whether calling a runtime through its entry points has a cost.
Every sweep is a fresh process; in each round every system runs each pattern once, in a random order, so rounds are
pairs. A sweep that other processes disturbed is repeated. Efficiency is the share of the kernel's best rate in this
run, for each compiler separately. For the memory kernel it is the share of the best rate in the same sweep, because
memory bandwidth may change between sweeps. The ratio is METG of another system / METG of ours, above 1 where ours is
finer, with an exact interval from six rounds on. Raw points, the machine and a table are written to --out (.json and
.md).
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import peers
from bench.quiet import ATTEMPTS, QUIET, undisturbed
from bench.ratios import HOW, NO_RATIO, limits, ratio
from bench.record import ROOT, Measured, head, machine, results, save
from bench.rounds import SEED, round_order
from bench.step import child
from gpt2core.node import openmp
from gpt2core.process import launch
from gpt2core.schedulers.openmp.runtime import SPINNING
from gpt2core.spec.result import median
from gpt2core.spec.schedulers import AUTO
from gpt2core.taskbench import patterns
from gpt2core.taskbench.granularity import (
    COMPARED as SCHEDULERS,
)
from gpt2core.taskbench.granularity import (
    GIVE_UP,
    KERNELS,
    UNIT,
    WORK,
    MetgConfig,
    Point,
    metg_s,
    peak_iterations_per_s,
    stream_bytes,
    summary,
)

COMPILERS = {"gcc": "GCC", "clang": "LLVM"}
FLAGS = ("-O3", "-march=native", "-fopenmp")
# Systems of the peer: task depend and a parallel loop per timestep, each as usually written and as in our schedulers.
MODES = {"tasks": "task", "loop": "for", "tasks as ours": "task-as-ours", "loop as ours": "for-as-ours"}
OPENMP = ("omp-task", "omp-for")
# The same work with one runtime: called by compiled C, and through its entry points.
SAME = {
    f"{compiler} {peer} as ours": f"ours {scheduler} {runtime}"
    for compiler, runtime in (("GCC", "libgomp"), ("LLVM", "libomp"))
    for peer, scheduler in (("tasks", "omp-task"), ("loop", "omp-for"))
}
BASE = "ours task"
COMPARED = (
    "What is compared: `task` replays a graph that was recorded once (static replay); OpenMP's tasks are created anew "
    "in every timestep, with their dependences (dynamic creation), and its loop creates none but waits after every "
    "timestep. Systems named ours run our kernels; omp-task and omp-for call the runtime's entry points. GCC and LLVM "
    "are the peer in C: as it is usually written, and `as ours`, which creates, waits, times and records as omp-task "
    "and omp-for do."
)
Sweeps = dict[tuple[str, str], list[list[Point]]]  # (pattern, system) -> a sweep for each round


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.metg", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--patterns", default=",".join(patterns.PATTERNS))
    parser.add_argument("--runtimes", default=",".join(openmp.find()), help="OpenMP runtimes (default: all installed)")
    parser.add_argument("--kernel", default="compute", choices=KERNELS)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--threads", type=int, default=len(launch.allowed_cores()))
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--max-grain", type=int, default=MetgConfig().max_grain)
    parser.add_argument("--point-s", type=float, default=MetgConfig().point_s)
    parser.add_argument("--seed", type=int, default=SEED, help="seed of the order within rounds [the time]")
    parser.add_argument("--out", type=Path, help="path without suffix (default: bench/results/DATE-metg-KERNEL)")
    given = parser.parse_args()
    given.runtimes = given.runtimes.split(",")
    if unknown := set(given.runtimes) - set(openmp.find()):
        parser.error(f"no runtime {', '.join(sorted(unknown))} on this machine: {', '.join(openmp.find())}")
    if given.out is None:
        given.out = results(f"metg-{given.kernel}")
    return given


def main() -> None:
    given = arguments()
    cores = tuple(launch.allowed_cores()[: given.threads])
    config = MetgConfig(
        pattern=tuple(given.patterns.split(",")), scheduler=SCHEDULERS, kernel=given.kernel, width=given.width,
        threads=given.threads, cores=cores, repetitions=1,
        max_grain=given.max_grain, point_s=given.point_s,
    )  # fmt: skip
    before = machine()
    with tempfile.TemporaryDirectory(prefix="bench-metg-") as name:
        built = build(Path(name))
        sweeps, disturbed = measure(config, given.runtimes, given.rounds, built, Path(name), given.seed)
    report = {
        **head("taskloom.bench.metg/1", {**before, "load_average_after": list(os.getloadavg())}),
        "compilers": {compiler: version(compiler) for compiler in built},
        "flags": list(FLAGS),
        "config": config.to_dict(),
        "stream_bytes": stream_bytes(cores) if config.kernel == "memory" else None,
        "rounds": given.rounds,
        "disturbed": disturbed,
        "peaks_per_s": {builder: peak * WORK[config.kernel] for builder, peak in peaks(sweeps).items()},
        "unit": UNIT[config.kernel],
        "comparisons": [compare(pattern, sweeps, config.kernel) for pattern in config.pattern],
        "sweeps": [
            {"pattern": pattern, "system": system, "round": number, "points": [dataclasses.asdict(p) for p in points]}
            for (pattern, system), mine in sweeps.items()
            for number, points in enumerate(mine)
        ],
    }
    save(given.out, report, table(report))


def build(folder: Path) -> dict[str, Path]:
    """The peer, built with each installed compiler with OpenMP."""
    built = {}
    for compiler in COMPILERS:
        if shutil.which(compiler) is None:
            print(f"{compiler} is not installed: left out", flush=True)
            continue
        command = [compiler, *FLAGS, str(ROOT / "bench" / "openmp_tasks.c"), "-o", str(folder / compiler)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{compiler} cannot build the peer, left out: {done.stderr.strip().splitlines()[-1]}", flush=True)
        else:
            built[compiler] = folder / compiler
    if not built:
        raise SystemExit("no C compiler with OpenMP: install gcc, or clang and libomp")
    return built


def version(compiler: str) -> str:
    """The first line of a compiler's version."""
    return subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]


def measure(
    config: MetgConfig,
    runtimes: Sequence[str],
    rounds: int,
    built: Mapping[str, Path],
    folder: Path,
    seed: int,
) -> tuple[Sweeps, int]:
    """Every system's sweep of every pattern, once per round, and the number of counted sweeps that were disturbed."""
    sweeps: Sweeps = {}
    disturbed = 0
    for round_no in range(rounds):
        for pattern in round_order(config.pattern, round_no, seed=seed):
            systems = ["ours", *runtimes, *built]
            for system in round_order(systems, round_no, pattern, seed):
                sweep = functools.partial(run, config, pattern, system, built, folder)
                found, others = undisturbed(sweep, f"{pattern}, {system}")
                disturbed += others > QUIET
                for name, points in found.items():
                    sweeps.setdefault((pattern, name), []).append(points)
                    value = metg_s(points, peak_iterations_per_s([points]))
                    text = "not reached" if value is None else f"{value * 1e6:.3f} us"
                    print(f"[round {round_no + 1}/{rounds}] {pattern}, {name}: {text}", flush=True)
    return sweeps, disturbed


def run(
    config: MetgConfig, pattern: str, system: str, built: Mapping[str, Path], folder: Path
) -> dict[str, list[Point]]:
    """A system's sweep of a pattern."""
    if system not in built:
        how: dict[str, Any] = {} if system == "ours" else {"scheduler": OPENMP, "runtime": system}
        return run_ours(dataclasses.replace(config, pattern=(pattern,), **how), folder / "result.json")
    return {f"{COMPILERS[system]} {name}": run_peer(config, pattern, built[system], mode)
            for name, mode in MODES.items()}  # fmt: skip


def run_ours(config: MetgConfig, result: Path) -> dict[str, list[Point]]:
    """One process of ours: a sweep of each scheduler, named with its OpenMP runtime if it has one."""
    child(launch.metg_command(result), json.dumps(config.to_dict()), launch.environment())
    names = {field.name for field in dataclasses.fields(Point)}
    runtime = "" if config.runtime == AUTO else f" {config.runtime}"
    return {
        f"ours {sweep['scheduler']}{runtime}": [
            Point(**{k: v for k, v in point.items() if k in names}) for point in sweep["points"]
        ]
        for sweep in json.loads(result.read_text(encoding="utf-8"))["sweeps"]
    }


def run_peer(config: MetgConfig, pattern: str, program: Path, mode: str) -> list[Point]:
    """One process of the peer, its threads bound and spinning. Ends this program if a task ran before its inputs."""
    inputs = patterns.inputs(pattern, config.width)
    text = " ".join(str(number) for points in inputs for read in points for number in (len(read), *read))
    cores = config.cores or tuple(launch.allowed_cores()[: config.threads])
    settings = (
        mode, config.kernel, config.width, len(inputs), config.max_grain, config.point_s, GIVE_UP, stream_bytes(cores),
    )  # fmt: skip
    places = {
        "OMP_NUM_THREADS": str(config.threads), "OMP_PROC_BIND": "true", "OMP_DYNAMIC": "false",
        "OMP_PLACES": ",".join(f"{{{core}}}" for core in cores), **SPINNING,
    }  # fmt: skip
    printed = child([str(program), *map(str, settings)], text, {**os.environ, **places})
    points = []
    for line in printed.splitlines():
        grain, tasks, elapsed_s, violations = line.split()
        if int(violations):
            raise SystemExit(f"{program.name} {mode}, {pattern}: {violations} tasks ran before their inputs")
        points.append(Point(int(grain), int(tasks), float(elapsed_s), config.threads))
    return points


def peaks(sweeps: Sweeps) -> dict[str, float]:
    """Best kernel iterations per second by the compiler of the kernel: ours, GCC, LLVM."""
    by_builder: dict[str, list[list[Point]]] = {}
    for (_, system), mine in sweeps.items():
        by_builder.setdefault(system.split()[0], []).extend(mine)
    return {builder: peak_iterations_per_s(points) for builder, points in by_builder.items()}


def compare(pattern: str, sweeps: Sweeps, kernel: str) -> dict[str, Any]:
    """METG of every system on a pattern, and the ratio of each to ours."""
    peak = peaks(sweeps)
    of = {system: mine for (name, system), mine in sweeps.items() if name == pattern}

    def value(system: str, points: list[Point]) -> float | None:
        best = peak_iterations_per_s([points]) if kernel == "memory" else peak[system.split()[0]]
        return metg_s(points, best)

    values = {system: [value(system, points) for points in mine] for system, mine in of.items()}
    rows = []
    for system in sorted(of, key=lambda name: (not name.startswith("ours"), " loop" in name, name)):
        rows.append({
            "system": system,
            **summary(of[system], peak[system.split()[0]]),
            **spread([reached for reached in values[system] if reached is not None]),
            "reached": sum(value is not None for value in values[system]),
            **reached_by_both(values[system], values[BASE]),
        })  # fmt: skip
    called = {}
    for peer, mine in SAME.items():
        if peer in of and mine in of:
            shorts = [short_task_s(ours, theirs) for ours, theirs in zip(of[mine], of[peer], strict=True)]
            called[peer] = {"metg": reached_by_both(values[mine], values[peer]),
                            "task": ratio([a for a, _ in shorts], [b for _, b in shorts])}  # fmt: skip
    return {"pattern": pattern, "base": BASE, "rows": rows, "called_through_entry_points": called}


def reached_by_both(a: Sequence[float | None], b: Sequence[float | None]) -> Measured:
    """The ratio a / b over the rounds in which both systems reached METG."""
    pairs = [(x, y) for x, y in zip(a, b, strict=True) if x is not None and y is not None]
    return ratio([x for x, _ in pairs], [y for _, y in pairs]) if pairs else NO_RATIO


def short_task_s(a: Sequence[Point], b: Sequence[Point]) -> tuple[float, float]:
    """Seconds a task and thread of two sweeps, at the finest grain that both ran: nearly all of it is overhead."""
    of_a, of_b = ({point.grain: point.task_s for point in sweep} for sweep in (a, b))
    finest = min(of_a.keys() & of_b.keys())
    return of_a[finest], of_b[finest]


def spread(found: list[float]) -> dict[str, float | None]:
    """Median, smallest and largest METG of a system's sweeps."""
    if not found:
        return {"metg_s": None, "metg_min_s": None, "metg_max_s": None}
    return {"metg_s": median(found), "metg_min_s": min(found), "metg_max_s": max(found)}


def table(report: Mapping[str, Any]) -> str:
    """The comparisons as Markdown."""
    config, on = report["config"], report["machine"]
    streams = report["stream_bytes"]
    kernel = f"{config['kernel']} kernel" + (f" ({streams >> 20} MiB a thread)" if streams else "")
    rates = ", ".join(f"{name} {value / 1e9:.1f}" for name, value in report["peaks_per_s"].items())
    lines = [
        f"# METG(50 %): {BASE} against OpenMP, {report['at'][:10]}", "",
        f"{kernel}, width {config['width']}, {config['threads']} threads, {report['rounds']} rounds "
        f"of fresh processes. Machine: {on['cpu_model']}, {on['cores']} cores, Linux {on['kernel']}; load "
        f"average {on['load_average'][0]:.2f} before, {on['load_average_after'][0]:.2f} after; "
        f"{'; '.join(report['compilers'].values())}; {' '.join(report['flags'])}. "
        f"Peaks, G{report['unit']}: {rates}. Sweeps during which other processes took more than {100 * QUIET:.0f} % "
        f"of the machine were repeated, up to {ATTEMPTS} runs; {report['disturbed']} counted ones were disturbed.",
        "",
        f"Ratio: METG / METG of {BASE}, above 1 where {BASE} is finer, {HOW}. {COMPARED}",
        "", "| pattern | system | METG(50 %), us | spread, us | ratio | 95 % |", "|---|---|---|---|---|---|",
    ]  # fmt: skip
    for comparison in report["comparisons"]:
        lines += [row_line(comparison["pattern"], row) for row in comparison["rows"]]
    lines += [
        "", peers.table(report),
        "The same runtime called through its entry points / by compiled C: METG, and the time of a task at the finest "
        "grain that both ran, which is nearly all overhead.",
        "", "| pattern | ours / peer | METG | 95 % | time of a short task | 95 % |", "|---|---|---|---|---|---|",
    ]  # fmt: skip
    lines += [
        f"| {comparison['pattern']} | {SAME[peer]} / {peer} | {ratio_cells(found['metg'])} "
        f"| {ratio_cells(found['task'])} |"
        for comparison in report["comparisons"]
        for peer, found in comparison["called_through_entry_points"].items()
    ]
    return "\n".join(lines) + "\n"


def row_line(pattern: str, row: Mapping[str, Any]) -> str:
    """One system's line."""
    if row["metg_s"] is None:
        return f"| {pattern} | {row['system']} | never at 50 %, or finer than measured | | | |"
    cells = [f"{row['metg_s'] * 1e6:.3f}", f"{row['metg_min_s'] * 1e6:.3f} to {row['metg_max_s'] * 1e6:.3f}"]
    return f"| {pattern} | {row['system']} | {' | '.join(cells)} | {ratio_cells(row)} |"


def ratio_cells(found: Mapping[str, Any]) -> str:
    """A ratio and its interval as two cells of a table."""
    return " | " if found["ratio"] is None else f"{found['ratio']:.2f} | {limits(found['ratio_interval'], 2)}"


if __name__ == "__main__":
    main()
