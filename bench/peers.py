"""Summarise the peers in recordings of bench.metg: the one with the smallest METG for each pattern, and the ranking of
OpenMP's runtimes.

    python -m bench.peers bench/results/DATE-metg-compute.json

Runtimes are ranked by METG over all patterns and both of our OpenMP schedulers (docs/decisions/0018). Overhead: a
thread's time for a task of the finest grain, minus the task's work at the kernel's peak.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.ratios import NO_RATIO, limits, ratio
from bench.record import Measured
from gpt2core.spec.result import median
from gpt2core.spec.schedulers import RUNTIMES
from gpt2core.taskbench.granularity import Point, metg_s, peak_iterations_per_s
from taskloom.analysis.estimators import logarithms
from taskloom.analysis.pooling import pool

OURS = ("ours task", "ours fork-join")
SCHEDULERS = ("omp-task", "omp-for")
Values = dict[tuple[str, str], dict[int, float]]  # (pattern, system) -> METG(50 %) of each round that reached it


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("record", type=Path, help="JSON of bench.metg")
    print(table(json.loads(parser.parse_args().record.read_text(encoding="utf-8"))))


def values(record: Mapping[str, Any]) -> Values:
    """METG of every sweep, relative to the peak of its kernel's compiler; for the memory kernel, to the sweep's own
    best rate."""
    peaks = peaks_of(record)
    found: Values = {}
    for sweep, points in sweeps(record):
        memory = record["config"]["kernel"] == "memory"
        peak = peak_iterations_per_s([points]) if memory else peaks[builder(sweep["system"])]
        value = metg_s(points, peak)
        of = found.setdefault((sweep["pattern"], sweep["system"]), {})
        if value is not None:
            of[sweep["round"]] = value
    return found


def sweeps(record: Mapping[str, Any]) -> list[tuple[Mapping[str, Any], list[Point]]]:
    return [(sweep, [Point(**point) for point in sweep["points"]]) for sweep in record["sweeps"]]


def peaks_of(record: Mapping[str, Any]) -> dict[str, float]:
    """Best kernel iterations per second by the compiler of the kernel: ours, GCC, LLVM."""
    of: dict[str, list[list[Point]]] = {}
    for sweep, points in sweeps(record):
        of.setdefault(builder(sweep["system"]), []).append(points)
    return {name: peak_iterations_per_s(points) for name, points in of.items()}


def builder(system: str) -> str:
    return system.split()[0]


def finest(record: Mapping[str, Any]) -> list[Measured]:
    """For each pattern: our METG, and the smallest METG of other tasks and of other loops with their ratios to task."""
    found = values(record)
    rows = []
    for pattern in record["config"]["pattern"]:
        of = {system: by_round for (name, system), by_round in found.items() if name == pattern and by_round}
        row: Measured = {"pattern": pattern, **{name: _median(of.get(name)) for name in OURS}}
        for kind, wanted in (("tasks", ("tasks", "omp-task")), ("loop", ("loop", "omp-for"))):
            peers = {system: _median(by_round) for system, by_round in of.items()
                     if system not in OURS and any(word in system.split() for word in wanted)}  # fmt: skip
            best = min(peers, key=lambda system: peers[system] or math.inf, default=None)
            row[kind] = best
            row[f"{kind}_s"] = None if best is None else peers[best]
            theirs, mine = of.get(best or "", {}), of.get(OURS[0], {})
            both = sorted(theirs.keys() & mine.keys())
            between = ratio([theirs[r] for r in both], [mine[r] for r in both]) if both else NO_RATIO
            row[f"{kind}_ratio"], row[f"{kind}_interval"] = between["ratio"], between["ratio_interval"]
        rows.append(row)
    return rows


def order(record: Mapping[str, Any]) -> list[Measured]:
    """OpenMP's runtimes, the one with the smallest METG first: overhead a task and METG, and METG / the first one's
    over all patterns. A runtime is last if it misses a pattern that another one reaches."""
    found, peaks = values(record), peaks_of(record)
    rows: list[Measured] = []
    for runtime in RUNTIMES:
        row: Measured = {"runtime": runtime, "logs": []}
        for scheduler in SCHEDULERS:
            system = f"ours {scheduler} {runtime}"
            of = {pattern: median(list(by_round.values())) for (pattern, name), by_round in found.items()
                  if name == system and by_round}  # fmt: skip
            overhead_s = [_overhead_s(points, peaks["ours"]) for sweep, points in sweeps(record)
                          if sweep["system"] == system]  # fmt: skip
            row[scheduler] = {
                "patterns": len(of),
                "metg_s": math.exp(np.mean(np.log(list(of.values())))) if of else None,
                "overhead_s": median(overhead_s) if overhead_s else None,
            }
            row["logs"] += [math.log(value) for value in of.values()]
        if row["logs"]:
            rows.append(row)
    rows.sort(key=lambda row: (-len(row["logs"]), float(np.mean(row["logs"]))))
    for row in rows:
        del row["logs"]
        for scheduler in SCHEDULERS:
            pairs = [
                logarithms([mine[r] for r in both]) - logarithms([first[r] for r in both])
                for pattern in record["config"]["pattern"]
                for mine in [found.get((pattern, f"ours {scheduler} {row['runtime']}"), {})]
                for first in [found.get((pattern, f"ours {scheduler} {rows[0]['runtime']}"), {})]
                for both in [sorted(mine.keys() & first.keys())]
                if both
            ]
            row[scheduler]["ratio"], row[scheduler]["ratio_interval"] = None, None
            if pairs and row is not rows[0]:
                pooled = pool(pairs, "places")
                row[scheduler]["ratio"] = pooled.estimate.value
                if pooled.estimate.low is not None and not pooled.broken:
                    row[scheduler]["ratio_interval"] = [pooled.estimate.low, pooled.estimate.high]
    return rows


def _median(by_round: Mapping[int, float] | None) -> float | None:
    return median(list(by_round.values())) if by_round else None


def _overhead_s(points: Sequence[Point], peak: float) -> float:
    point = min(points, key=lambda each: each.grain)
    return point.task_s - point.grain * point.threads / peak


def table(record: Mapping[str, Any]) -> str:
    """Both as Markdown."""
    lines = [
        "METG(50 %) in us, and the finest peer of each pattern beside it; ratio: METG of the peer / of ours task, "
        "above 1 where ours is finer. The peer was chosen by the same rounds, so the ratio is rather too low.", "",
        "| pattern | ours task | fork-join | finest other tasks | ratio | 95 % | finest other loop | ratio | 95 % |",
        "|---|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for row in finest(record):
        cells = [row["pattern"], *(_us(row[name]) for name in OURS)]
        for kind in ("tasks", "loop"):
            peer = "-" if row[kind] is None else f"{row[kind]}, {_us(row[f'{kind}_s'])}"
            cells += [peer, _times(row[f"{kind}_ratio"]), limits(row[f"{kind}_interval"], 2)]
        lines.append("| " + " | ".join(cells) + " |")
    runtimes = order(record)
    if runtimes:
        lines += [
            "", "OpenMP's runtimes in order of METG over all patterns and both schedulers; METG: geometric mean over "
            f"patterns; ratio: METG / that of {runtimes[0]['runtime']}, its 95 % interval over patterns.", "",
            "| runtime | scheduler | overhead a task, us | METG, us | patterns | ratio | 95 % |",
            "|---|---|---|---|---|---|---|",
        ]  # fmt: skip
    for row in runtimes:
        for scheduler in SCHEDULERS:
            of = row[scheduler]
            cells = [row["runtime"], scheduler, _us(of["overhead_s"]), _us(of["metg_s"]), str(of["patterns"])]
            cells += [_times(of["ratio"]), limits(of["ratio_interval"], 2)]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _us(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e6:.3f}"


if __name__ == "__main__":
    main()
