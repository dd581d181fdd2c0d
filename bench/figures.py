"""Absolute figures of each benchmark's recordings, for bench.combine: one value of each in every recording.

A ratio is taken between processes of one round (bench.ratios). These figures are not: the host's speed is part of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bench import canary, node_time, observing, peers, slices, ui_figures
from bench.bound import share_of_bound
from gpt2core.spec.result import median
from taskloom.analysis.node_time import timed_share

MIB, MB = 1 << 20, 1_000_000
PRODUCTS = ("logits", "fc", "fc_projection", "qkv", "projection")
Figures = Iterator[tuple[str, float, str]]  # name, value, unit


def figures_of(record: Mapping[str, Any]) -> Figures:
    """The figures of a recording of a benchmark in KINDS."""
    return KINDS[record["schema"]](record)


def _step(record: Mapping[str, Any]) -> Figures:
    for case in record["comparisons"]:
        for row in case["rows"]:
            name = f"{case['label']}: {row['variant']}"
            yield f"{name}, step", 1e3 * row["median_step_s"], "ms"
            yield f"{name}, peak RSS", row["peak_rss_bytes"] / MIB, "MiB"
    for line in record.get("headlines", ()):  # older recordings have none
        yield f"{line['label']}: peak RSS, of {line['peer']}'s", 100 * line["memory_share"], "%"
        if line["clipping"] is not None:
            yield f"{line['label']}: step with clipping, of a step without", 100 * line["clipping"]["ratio"], "%"
    for roof in record["roofs"]:
        ops = [op for op in roof["ops"] if op["op"].removesuffix("_dinp").removesuffix("_dweight") in PRODUCTS]
        if ops and all(op.get("registers_share") is not None for op in ops):
            share = np.average([op["registers_share"] for op in ops], weights=[op["time_s"] for op in ops])
            yield f"{roof['label']}: products, of the registers' rate", 100 * float(share), "%"
            yield f"{roof['label']}: products, of the step", 100 * sum(op["time_share"] for op in ops), "%"
        if (bound := share_of_bound(roof["ops"])) is not None:
            yield f"{roof['label']}: share of the bound", 100 * bound, "%"


def _schedulers(record: Mapping[str, Any]) -> Figures:
    for row in record["rows"]:
        yield f"{row['variant']}, step", 1e3 * row["median_step_s"], "ms"
        yield f"{row['variant']}, idle threads", 100 * row["idle_share"], "%"


def _slices(record: Mapping[str, Any]) -> Figures:
    command = record["command"]
    precision = command[command.index("--precision") + 1] if "--precision" in command else "fp32"
    for case in record["comparisons"]:
        label = f"{case['label']}, {precision}"
        yield f"{label}: step of auto ({slices.name(case['auto'])}), of the best slices'", 100 * case["ratio"], "%"
        for way in case["ways"]:
            yield f"{label}: {slices.name(way['slices'])}, step", 1e3 * way["median_step_s"], "ms"


def _canary(record: Mapping[str, Any]) -> Figures:
    found = canary.over_blocks(record["runs"])  # recordings before 25 November have figures of the canary's median
    if found["correlation"] is None:  # too few blocks
        return
    for of, what in (("target", "step"), ("canary", "canary"), ("over_canary", "step / canary")):
        yield f"{record['case']}: standard deviation of {what}", 100 * found[f"sd_{of}"], "%"
    yield f"{record['case']}: correlation of step and canary", found["correlation"], ""


def _heartbeats(record: Mapping[str, Any]) -> Figures:
    for row in record["rows"]:
        arm = f"heartbeats every {row['heartbeat_s']:g} s"
        yield f"{arm}: timed steps", row["median_total_s"], "s"
        yield f"{arm}: agent, of the machine's time", 100 * row["agent_share"], "%"
        if row["arm"] != "none":
            yield "one heartbeat in 15 s, of a run's time", 100 * row["usual_cost"], "%"


def _observing(record: Mapping[str, Any]) -> Figures:
    for variant in observing.VARIANTS:
        mine = [median(run["step_s"][observing.WARMUP :]) for run in record["runs"] if run["variant"] == variant]
        yield f"{record['given']['model']}: {variant}, step", 1e3 * median(mine), "ms"


def _granularities(record: Mapping[str, Any]) -> Figures:
    for (pattern, system), by_round in peers.values(record).items():
        if by_round:
            yield f"METG, {pattern}, {system}", 1e6 * median([*by_round.values()]), "us"


def _node_time(record: Mapping[str, Any]) -> Figures:
    for model, runs in record["models"].items():
        sums = node_time.total(runs)
        share = timed_share(sums)
        assert share is not None
        yield f"{model}: timed steps, of the node's time", 100 * share, "%"
        yield f"{model}: warm-up, of the node's time", 100 * sums["warmup_s"] / math.fsum(sums.values()), "%"
        yield f"{model}: from claim to first step", median(node_time.first_s(runs)), "s"


def _start(record: Mapping[str, Any]) -> Figures:
    for model, runs in record["warm"].items():
        fresh = record["fresh"][model]
        yield f"{model}: first step, kernels in the cache", median([run["first_step_s"] for run in runs]), "s"
        yield f"{model}: first step, fresh installation", fresh["first_step_s"], "s"
        yield f"{model}: of this, compiling", fresh["compiling_s"], "s"
        yield f"{model}: of this, measuring products", fresh["measuring_s"], "s"


def _traces(record: Mapping[str, Any]) -> Figures:
    for made in record["exports"]:
        yield f"{made['file']}, reading and writing", made["s"], "s"
        yield f"{made['file']}, size", made["bytes"] / MB, "MB"


def _ui(record: Mapping[str, Any]) -> Figures:
    for figure in ui_figures.figures(record):
        yield f"{record['database']}: {figure.name}, p95", figure.p95, figure.unit


def _overhead(record: Mapping[str, Any]) -> Figures:
    for row in record["rows"]:
        for tree, commit in record["revisions"].items():
            case = f"{record['model']}, {row['variant']}, P{record['threads']}"
            yield f"{case}: threads' time of {commit}, of its products'", 100 * row[tree], "%"


def _revisions(record: Mapping[str, Any]) -> Figures:
    for row in record["rows"]:
        for tree, commit in record["revisions"].items():
            yield f"{row['case']}: {row['what']} of {commit}", 1e3 * row[f"{tree}_s"], "ms"


def _ops(record: Mapping[str, Any]) -> Figures:
    for row in record["rows"]:
        for tree, commit in record["revisions"].items():
            if row[f"{tree}_s"] is not None:
                yield f"{record['case']}: {row['op']} of {commit}", 1e3 * row[f"{tree}_s"], "ms"


def _products(record: Mapping[str, Any]) -> Figures:
    for row in record["rows"]:
        case = f"{row['product']} ({', '.join(row['ops'])}), {row['precision']}"
        for candidate, rate in row["gflop_per_s"].items():
            yield f"{case}: {candidate}", rate, "GFLOP/s"
        yield f"{case}: {next(iter(row['gflop_per_s']))}, of the registers' rate", 100 * row["registers_share"], "%"


def _server(record: Mapping[str, Any]) -> Figures:
    for name, part in record["parts"].items():
        for what, value, unit in _part(part):
            yield f"{name}: {what}", value, unit


def _part(part: Mapping[str, Any]) -> Figures:
    """The figures of one part of bench.server."""
    if "first_s" in part:
        for kind, first_s in part["first_s"].items():
            yield f"{kind} of {part['measured']:,} runs, first answer", first_s, "s"
            yield f"{kind} of {part['measured']:,} runs, later answers, p50", *_ms(part["again_s"][kind], 0.5)
        for beside in (each for each in READERS if each in part):
            for what in ("heartbeat", "claim"):
                yield f"{what}, {READERS[beside]}, p99", *_ms(part[beside][f"{what}_s"], 0.99)
            yield f"most memory of the server, {READERS[beside]}", max(part[beside]["rss_bytes"]) / MIB, "MiB"
    elif "largest" in part:
        yield "largest requests, most CPU", max(of["cpu_s"] for of in part["largest"].values()), "s"
        yield "largest requests, most memory", max(of["grown_bytes"] for of in part["largest"].values()) / MIB, "MiB"
    else:
        if "runs_per_s" in part:
            yield f"{part['workers']} workers empty a queue of {part['runs']:,} runs", part["elapsed_s"], "s"
        for key, what in (("latency_s", "lease after submission was sent"), ("submit_s", "submission answered")):
            if isinstance(part.get(key), list):
                yield f"{what}, p50", *_ms(part[key], 0.5)
                yield f"{what}, p99", *_ms(part[key], 0.99)
        if "beats" in part:
            of = f"most memory of the server, heartbeats of {part['workers']} workers"
            yield of, max(part["rss_bytes"]) / MIB, "MiB"
        for kind, taken_s in part.get("answer_s", {}).items():
            yield f"{kind}, {part['stored']:,} runs stored, p99", *_ms(taken_s, 0.99)


READERS = {"idle": "nobody reads", "beside": "beside readers", "unread": "beside readers and unread exports"}


def _ms(values_s: Sequence[float], quantile: float) -> tuple[float, str]:
    return 1e3 * float(np.quantile(values_s, quantile)), "ms"


KINDS: dict[str, Callable[[Mapping[str, Any]], Figures]] = {
    "taskloom.bench.step/1": _step,
    "taskloom.bench.schedulers/1": _schedulers,
    "taskloom.bench.slices/1": _slices,
    "taskloom.bench.canary/1": _canary,
    "taskloom.bench.agent-cost/1": _heartbeats,
    "taskloom.bench.observing/1": _observing,
    "taskloom.bench.metg/1": _granularities,
    "taskloom.bench.node-time/1": _node_time,
    "taskloom.bench.start/1": _start,
    "taskloom.bench.traces/1": _traces,
    "taskloom.bench.ui/5": _ui,
    "taskloom.bench.server/1": _server,
    "taskloom.bench.overhead/1": _overhead,
    "taskloom.bench.revisions/2": _revisions,
    "taskloom.bench.products/1": _products,
    "taskloom.bench.ops/1": _ops,
}
