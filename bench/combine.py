"""Recordings of one benchmark on several occasions, combined: `python -m bench.combine RECORD.json ... --out PATH`.

A recording's interval covers its own occasion only. Recordings of one benchmark and machine that were written (`at`)
within two hours of the first of them are one occasion, which contributes its rounds' ratios. Six or more occasions are
a sample of all; with fewer, the answer is about these only (analysis/pooling.py). The table also has the standard
deviations of the ratio's logarithm between occasions and between rounds of one, and the advised number of rounds on
each occasion (Kalibera & Jones 2013).

A second table has the absolute figures (bench/figures.py), a value for each occasion. They contain the host's speed, so
they describe these occasions and have no interval.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from bench import figures, observing, peers, slices
from bench.ratios import limits
from bench.record import Measured, head, results, save
from gpt2core.spec.result import median
from gpt2core.spec.wording import counted
from taskloom.analysis.estimators import logarithms
from taskloom.analysis.pooling import pool

APART_S = 7200.0  # from the first recording of an occasion to that of the next
FEWEST_TURNS = 16  # pairs of a round's METG_TURNS in bench.revisions, without those that were stopped
CHANGING = ("--model", "--grad-clip", "--grad-accum")  # options that define another case, unless it names them
Key = tuple[str, str, str]  # processor, case, variant
Times = Iterator[tuple[str, str, int, float]]  # case, variant, round, seconds


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.combine", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("records", nargs="+", type=Path, help="JSON of " + ", ".join(figures.KINDS))
    parser.add_argument("--base", help="the variant that is the base of the ratios [each benchmark's own]")
    parser.add_argument("--out", type=Path, default=results("combined"), help="path without suffix")
    given = parser.parse_args()
    records = [json.loads(path.read_text(encoding="utf-8")) for path in given.records]
    if unknown := {record["schema"] for record in records} - figures.KINDS.keys():
        parser.error(f"{', '.join(sorted(unknown))}: not a recording of {', '.join(figures.KINDS)}")
    report = {**head("taskloom.bench.combined/1"), "records": [path.name for path in given.records],
              "rows": combined(records, given.base), "figures": by_occasion(records)}  # fmt: skip
    save(given.out, report, table(report))


def combined(records: Sequence[Mapping[str, Any]], base: str | None = None) -> list[Measured]:
    """A row for each processor, case and variant, over the occasions of all records."""
    found: dict[Key, dict[int, list[float]]] = {}
    for record, number in zip(records, occasions(records), strict=True):
        for key, logs in ratios_of(record, base):
            found.setdefault(key, {}).setdefault(number, []).extend(logs)
    return [row(key, [np.array(logs) for logs in of.values()]) for key, of in sorted(found.items())]


def by_occasion(records: Sequence[Mapping[str, Any]]) -> list[Measured]:
    """A row for each machine and absolute figure: its value on each occasion, in order of time.

    Several recordings of one occasion count by the median of their values.
    """
    found: dict[tuple[str, str, str], dict[int, list[float]]] = {}
    for record, number in zip(records, occasions(records), strict=True):
        for name, value, unit in figures.figures_of(record):
            found.setdefault((machine_of(record), name, unit), {}).setdefault(number, []).append(value)
    return [
        {"machine": machine, "figure": name, "unit": unit, "values": [median(of[number]) for number in sorted(of)]}
        for (machine, name, unit), of in found.items()
    ]


def time_of(record: Mapping[str, Any]) -> str:
    """When the recording was written. One of bench.server has a time in each of its parts."""
    return str(record["at"] if "at" in record else max(part["at"] for part in record["parts"].values()))


def machine_of(record: Mapping[str, Any]) -> str:
    on = record["machine"] if "machine" in record else next(iter(record["parts"].values()))["machine"]
    return str(on["cpu_model"])


def occasions(records: Sequence[Mapping[str, Any]]) -> list[int]:
    """The occasion of each recording, counted for each benchmark and machine in order of time."""
    at = [datetime.fromisoformat(time_of(record)).timestamp() for record in records]
    numbers, begun = [0] * len(records), dict[tuple[str, str], list[float]]()  # when each of its occasions began
    for i in sorted(range(len(records)), key=at.__getitem__):
        of = begun.setdefault((records[i]["schema"], machine_of(records[i])), [])
        if not of or at[i] - of[-1] >= APART_S:
            of.append(at[i])
        numbers[i] = len(of) - 1
    return numbers


def ratios_of(record: Mapping[str, Any], base: str | None) -> Iterator[tuple[Key, list[float]]]:
    """The log ratios variant / base of a recording, by round; none of a benchmark without pairs. base: null for the
    benchmark's own."""
    if record["schema"] not in KINDS:
        return
    times, own_base = KINDS[record["schema"]]
    base = base or own_base or record["rows"][0]["variant"]
    # Newer recordings contain the clipping of each run.
    named = "case" in record
    options = [each for each in CHANGING if not named and each[2:].replace("-", "_") not in record.get("runs", [{}])[0]]
    more = "".join(f", {option[2:]} {value}" for option, value in pairwise(record["command"]) if option in options)
    cases: dict[str, dict[str, dict[int, float]]] = {}
    for case, variant, number, seconds in times(record):
        cases.setdefault(case + more, {}).setdefault(variant, {})[number] = seconds
    for case, of in cases.items():
        for variant, by_round in of.items():
            both = sorted(by_round.keys() & of.get(base, {}).keys())
            if variant != base and both:
                logs = logarithms([by_round[r] for r in both]) - logarithms([of[base][r] for r in both])
                yield (record["machine"]["cpu_model"], case, variant), logs.tolist()


def _steps(record: Mapping[str, Any]) -> Times:
    disagree = {(each["label"], row["variant"]) for each in record.get("comparisons", ()) for row in each["rows"]
                if row["ratio"] is None}  # fmt: skip
    for run in record["runs"]:
        case = f"B{run['batch']} T{run['seq']}, {counted(run['threads'], 'thread')}, {run['precision']}"
        case += f", grad-clip {run['grad_clip']:g}" if run.get("grad_clip") else ""
        warmup = (run.get("config") or {}).get("warmup", 2)
        if (case, run["variant"]) not in disagree:
            yield case, run["variant"], run["round"], median(run["step_s"][warmup:])


def _schedulers(record: Mapping[str, Any]) -> Times:
    given = dict(pairwise(record["command"]))
    for run in record["runs"]:
        yield "schedulers", run["variant"], run["round"], median(run["step_s"][int(given.get("--warmup", 2)) :])


def _granularities(record: Mapping[str, Any]) -> Times:
    """METG(50 %) of the rounds that reached it."""
    for (pattern, system), by_round in peers.values(record).items():
        for number, value in by_round.items():
            yield f"METG, {pattern}, {record['config']['kernel']}", system, number, value


def _slices(record: Mapping[str, Any]) -> Times:
    """`auto` has the slices that were chosen automatically; other variants are named by theirs."""
    given = dict(pairwise(record["command"]))
    for case in record["comparisons"]:
        label = f"{case['label']}, {given.get('--precision', 'fp32')}"
        for run in record["runs"]:
            if all(run[key] == case[key] for key in ("batch", "seq", "scheduler", "threads")):
                way = "auto" if run["slices"] == case["auto"] else slices.name(run["slices"])
                yield label, way, run["round"], median(run["step_s"][int(given.get("--warmup", 1)) :])


def _heartbeats(record: Mapping[str, Any]) -> Times:
    for run in record["runs"]:
        yield "heartbeats", run["arm"], run["round"], run["total_s"]


def _observing(record: Mapping[str, Any]) -> Times:
    given = record["given"]
    case = f"observing, B{given['batch']} T{given['seq']}, {given['scheduler']}, {counted(given['threads'], 'thread')}"
    for run in record["runs"]:
        yield case, run["variant"], run["round"], median(run["step_s"][observing.WARMUP :])


def _overhead(record: Mapping[str, Any]) -> Times:
    for one in record["rounds"]:
        for tree, found in one["of"].items():
            case = f"{record['model']}, {one['variant']}, {counted(record['threads'], 'thread')}, outside products"
            yield f"{case}, {trees(record)}", tree, one["round"], found["overhead"]


def _revisions(record: Mapping[str, Any]) -> Times:
    """The ratio of a round is recorded; it is the estimate over its pairs of turns. METG of rounds with few sweeps,
    which older recordings may have, is left out."""
    for of in record["rows"]:
        if of["what"].startswith("METG") and of["turns"] < FEWEST_TURNS * len(of["round_ratios"]):
            continue
        for number, ratio in enumerate(of["round_ratios"]):
            yield f"{of['case']}, {of['what']}, {trees(record)}", "ours", number, ratio
            yield f"{of['case']}, {of['what']}, {trees(record)}", "before", number, 1.0


def _products(record: Mapping[str, Any]) -> Times:
    for of in record["rounds"]:
        for product in of["products"]:
            for candidate, seconds in product["seconds"].items():
                case = f"{product['product']} ({', '.join(product['ops'])}), {of['precision']}"
                yield case, candidate, of["round"], seconds


def _ops(record: Mapping[str, Any]) -> Times:
    for of in record["rounds"]:
        for tree, found in of["of"].items():
            for op, seconds in found["op_s"].items():
                yield f"{record['case']}, {op}, {trees(record)}", tree, of["round"], seconds


def trees(record: Mapping[str, Any]) -> str:
    """The commits that a recording compares."""
    return "{ours} against {before}".format(**record["revisions"])


# Readers of each benchmark's recordings, and the base of its ratios: null for the first row's variant.
KINDS: dict[str, tuple[Callable[[Mapping[str, Any]], Times], str | None]] = {
    "taskloom.bench.step/1": (_steps, "task"),
    "taskloom.bench.metg/1": (_granularities, "ours task"),
    "taskloom.bench.schedulers/1": (_schedulers, None),
    "taskloom.bench.slices/1": (_slices, "auto"),
    "taskloom.bench.agent-cost/1": (_heartbeats, "none"),
    "taskloom.bench.observing/1": (_observing, "bare"),
    "taskloom.bench.overhead/1": (_overhead, "before"),
    "taskloom.bench.revisions/2": (_revisions, "before"),
    "taskloom.bench.products/1": (_products, "own"),
    "taskloom.bench.ops/1": (_ops, "before"),
}


def row(key: Key, strata: Sequence[np.ndarray[Any, np.dtype[np.float64]]]) -> Measured:
    """The ratio over occasions, with its components of variance."""
    machine, label, variant = key
    found = pool(strata, "occasions")
    no_interval = found.estimate.low is None or bool(found.broken)
    several = [logs for logs in strata if len(logs) > 1]
    within = math.sqrt(np.mean([logs.var(ddof=1) for logs in several])) if several else None
    centres = [float(np.median(logs)) for logs in strata]
    return {
        "machine": machine,
        "case": label,
        "variant": variant,
        "occasions": len(strata),
        "rounds": [len(logs) for logs in strata],
        "ratio": found.estimate.value,
        "ratio_interval": None if no_interval else [found.estimate.low, found.estimate.high],
        "diagnosis": list(found.broken),
        "scope": found.scope,
        "lowest": math.exp(min(centres)),
        "highest": math.exp(max(centres)),
        "between_occasions": found.between,
        "between_rounds": within,
        "advised": None if within is None or not found.between else math.ceil(within / found.between),
    }


def table(report: Mapping[str, Any]) -> str:
    """The rows and figures as Markdown."""
    lines = [f"# Recordings of several occasions, {report['at'][:10]}", "", f"From {', '.join(report['records'])}."]
    if report["rows"]:
        lines += ratio_lines(report["rows"])
    lines += [
        "", "Figures, with a value for each occasion in order of time. They contain the host's speed and have no "
        "interval.", "", "| machine | figure | unit | occasions |", "|---|---|---|---|",
    ]  # fmt: skip
    for r in report["figures"]:
        lines.append(f"| {r['machine']} | {r['figure']} | {r['unit']} | {', '.join(map(rounded, r['values']))} |")
    return "\n".join(lines) + "\n"


def rounded(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def ratio_lines(rows: Sequence[Measured]) -> list[str]:
    """The table of ratios."""
    lines = [
        "", "Ratio: time of the variant / of the base, above 1 where the base is faster. The interval is about what "
        "the last column says. Spread: the lowest and highest occasion's median. Sd: of the ratio's logarithm between "
        "occasions, and between rounds of one. Advised: rounds on each further occasion if starting one costs as much "
        "as a round.", "",
        "| machine | case | variant | occasions (rounds) | ratio | 95 % | spread | sd between, in | advised | about |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for r in rows:
        deviations = (r["between_occasions"], r["between_rounds"])
        sds = ", ".join("-" if deviation is None else f"{deviation:.1%}" for deviation in deviations)
        lines.append(
            f"| {r['machine']} | {r['case']} | {r['variant']} | {r['occasions']} ({', '.join(map(str, r['rounds']))}) "
            f"| {r['ratio']:.3f} | {limits(r['ratio_interval'])} | {r['lowest']:.3f} to {r['highest']:.3f} | {sds} "
            f"| {r['advised'] or '-'} | {r['scope']} |"
        )
    return lines


if __name__ == "__main__":
    main()
