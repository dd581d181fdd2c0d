"""Workload of networks: where the time and the memory of a step go, with inference beside training, real beside
generated data, and schedulers beside each other. A pure function of finished runs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpt2core.spec.modes import UNREAD
from gpt2core.spec.phases import in_order
from gpt2core.spec.result import median
from taskloom.analysis.causes import RooflineRow, pooled_ops, rooflines
from taskloom.analysis.growth import Growth
from taskloom.analysis.meaning import says
from taskloom.analysis.memory import Memory, MemoryRow
from taskloom.analysis.processes import Process
from taskloom.analysis.roofline import Answer, Bound
from taskloom.analysis.statistics import median_bounds
from taskloom.analysis.sweep import sweep
from taskloom.analysis.variants import Group, Variant, by_variant, variant_of
from taskloom.analysis.workload_sentences import answers, of_several

GENERATED = "synthetic"
COUNTERS = ("instructions", "cycles", "cache_misses")
LINE_BYTES = 64  # of a cache
OLD = "the result was stored without its counters"
RESIZED = ("name", "side")  # of a model: shapes of one network may differ in them
WORK = ("model", "mode", "batch", "seq", "data")  # settings of what a row computes

GrowthOf = Callable[[Sequence[Group], Sequence[MemoryRow]], list[Growth]]


@dataclass(frozen=True)
class WorkPhase:
    """One phase of a step."""

    phase: str
    time_s: float = field(
        metadata=says("median; if phases overlap, the time of the phase's tasks divided by the threads")
    )
    share: float = field(metadata=says("share of all phases"))
    memory_bound: Answer | None = field(metadata=says("null: the node's peaks were not measured, or no op is in it"))
    gflop_per_s: float | None = field(metadata=says("rate of floating-point operations while its ops run"))
    gb_per_s: float | None = field(metadata=says("rate of compulsory bytes while its ops run"))


@dataclass(frozen=True)
class WorkOp:
    """One op type of a step, over all its calls and layers."""

    op: str
    phase: str
    calls: float = field(metadata=says("calls in a step"))
    time_s: float = field(metadata=says("time in a step, summed over the threads"))
    share: float = field(metadata=says("share of the time of all ops"))
    gflop_per_s: float
    gb_per_s: float = field(metadata=says("rate of compulsory bytes"))
    intensity: float | None = field(metadata=says("flop per compulsory byte; null: no flop or no bytes"))
    roof_share: float | None = field(metadata=says("share of its roof; null: the node's peaks were not measured"))
    bound: Bound | None = field(metadata=says("what bounds it; null: the node's peaks were not measured"))


@dataclass(frozen=True)
class WorkCounters:
    """Hardware counters per timed step, over all threads, waiting included."""

    instructions: float | None
    cycles: float | None = field(metadata=says("cycles of the cores"))
    cache_misses: float | None = field(metadata=says("misses of the last cache"))
    miss_gb_per_s: float | None = field(
        metadata=says("bandwidth by cache misses: misses x 64 bytes / time of the timed steps")
    )
    missing: dict[str, str] = field(default_factory=dict, metadata=says("why a counter is null"))


@dataclass(frozen=True)
class WorkRow:
    """One configuration of a network."""

    variant: Variant
    mode: str = field(metadata=says("train or infer"))
    data: str = field(metadata=says("data that the runs read; synthetic: generated"))
    batch: int
    seq: int
    side: int | None = field(metadata=says("of images; null: tokens"))
    precision: str = field(metadata=says("fp32 or bf16"))
    step_s: float = field(metadata=says("median over processes of their median step"))
    step_low_s: float | None = field(metadata=says("lower bound of its 95 % interval; null: too few processes"))
    step_high_s: float | None = field(metadata=says("upper bound of its 95 % interval; null: too few processes"))
    phases: list[WorkPhase]
    ops: list[WorkOp] = field(metadata=says("the costliest first"))
    memory_bytes: dict[str, int] = field(metadata=says("bytes of each arena, exact"))
    peak_rss_bytes: int | None = field(metadata=says("null: every run compiled kernels, or it is unknown"))
    mfu: float | None = field(metadata=says("model-FLOP utilisation; null: the node's peaks were not measured"))
    counters: WorkCounters
    missing: list[str]

    @property
    def how(self) -> dict[str, Any]:
        """How it is computed: the scheduler, what else varies, the number of threads."""
        rest = {name: value for name, value in self.variant.variant.items() if name not in WORK}
        return {"scheduler": self.variant.scheduler, **rest, "threads": self.variant.threads}


@dataclass(frozen=True)
class ModeRatio:
    """Inference relative to training, everything else equal."""

    scheduler: str
    threads: int
    batch: int
    time: float = field(metadata=says("step of inference / step of training"))
    arenas: float = field(metadata=says("arenas of inference / arenas of training"))
    peak: float | None = field(metadata=says("peak memory of the process, likewise; null: one is unknown"))


@dataclass(frozen=True)
class DataRatio:
    """Real data relative to generated data, everything else equal."""

    scheduler: str
    threads: int
    real: str = field(metadata=says("name of the real data"))
    generated: str = field(metadata=says("name of the generated data"))
    time: float = field(metadata=says("step with real data / step with generated data"))
    real_data_s: float = field(metadata=says("data phase with real data"))
    generated_data_s: float = field(metadata=says("data phase with generated data"))


@dataclass(frozen=True)
class SchedulerRatio:
    """One scheduler against another, everything else equal; p-values are adjusted over the experiment."""

    mode: str = field(metadata=says("train or infer"))
    threads: int
    batch: int
    a: str
    b: str
    ratio: float | None = field(metadata=says("step time of `a` / step time of `b`: above 1, `b` is faster"))
    ratio_low: float | None
    ratio_high: float | None
    verdict: str
    sentence: str


@dataclass(frozen=True)
class WorkNetwork:
    """One network of a workload."""

    network: str = field(metadata=says("kind of network"))
    model: str = field(metadata=says("name of the model"))
    rows: list[WorkRow]
    growth: list[Growth]
    modes: list[ModeRatio] = field(metadata=says("inference beside training"))
    data: list[DataRatio] = field(metadata=says("real beside generated data"))
    schedulers: list[SchedulerRatio] = field(metadata=says("schedulers beside each other"))
    typical: list[int] = field(
        metadata=says("places in `rows`, one a mode: generated data, smallest batch, most threads, last scheduler")
    )
    answers: list[str] = field(
        metadata=says("what is memory-bound, where tasks help, what inference and real data cost"),
    )


@dataclass(frozen=True)
class Workload:
    """The workload of each network of an experiment."""

    experiment_id: int
    networks: list[WorkNetwork] = field(metadata=says("one for each kind of model, by its name"))
    answers: list[str] = field(metadata=says("of several networks together; of one, its own"))


def workload(
    experiment_id: int, processes: Sequence[Process], memory: Sequence[MemoryRow], growth_of: GrowthOf
) -> Workload:
    """A network for each kind of model, by its name. memory: a row for each of `by_variant`. growth_of: curves of the
    memory of variants of one network."""
    groups = by_variant(processes)
    found: dict[str, list[int]] = {}
    for run in processes:
        found.setdefault(_network(run.config["model"]), [])
    for place, group in enumerate(groups):
        found[_network(group[0].config["model"])].append(place)
    roofs, compared = rooflines(processes), _compared(processes, groups)
    networks = [
        _of_network([groups[i] for i in places], [memory[i] for i in places], [roofs[i] for i in places],
                    [row for row, at in compared if at in places], growth_of)
        for places in found.values()
    ]  # fmt: skip
    networks.sort(key=lambda of: of.model)
    return Workload(experiment_id, networks, networks[0].answers if len(networks) == 1 else of_several(networks))


def _network(model: Mapping[str, Any]) -> str:
    """A key that is equal for models of one network that differ in the size of their samples only."""
    return json.dumps({name: value for name, value in model.items() if name not in RESIZED}, sort_keys=True)


def _of_network(
    groups: Sequence[Group],
    memory: Sequence[MemoryRow],
    roofs: Sequence[RooflineRow],
    schedulers: Sequence[SchedulerRatio],
    growth_of: GrowthOf,
) -> WorkNetwork:
    model = groups[0][0].config["model"]
    rows = [_row(group, row.memory, roof) for group, row, roof in zip(groups, memory, roofs, strict=True)]
    first_train = sorted(range(len(rows)), key=lambda i: (rows[i].mode != "train", rows[i].data != GENERATED,
                                                          rows[i].batch, i))  # fmt: skip
    rows = [rows[i] for i in first_train]
    growth = growth_of([groups[i] for i in first_train], [memory[i] for i in first_train])
    made = WorkNetwork(
        str(model.get("network", "gpt2")), str(model["name"]), rows, growth, _modes(rows), _data(rows),
        list(schedulers), _typical(rows), [],
    )  # fmt: skip
    return replace(made, answers=answers(made))


def _typical(rows: Sequence[WorkRow]) -> list[int]:
    order = [(row.data == GENERATED, -row.batch, row.variant.threads, i) for i, row in enumerate(rows)]
    return [max(place for place, row in zip(order, rows, strict=True) if row.mode == mode)[-1]
            for mode in dict.fromkeys(row.mode for row in rows)]  # fmt: skip


def _row(group: Group, memory: Memory, roof: RooflineRow) -> WorkRow:
    config, first = group[0].config, group[0]
    values = [process.median_step_s for process in sorted(group, key=lambda each: (each.block, each.run_id))]
    low, high = median_bounds(values, any(process.stop_rule for process in group)) or (None, None)
    return WorkRow(
        variant=variant_of(group),
        mode=first.mode,
        data=str(config["data"]),
        batch=int(config["batch"]),
        seq=int(config["seq"]),
        side=config["model"].get("side"),
        precision=str(config.get("precision", "fp32")),
        step_s=median(values),
        step_low_s=low,
        step_high_s=high,
        phases=_phases(group, roof),
        ops=_ops(group, roof),
        memory_bytes=dict(memory.measured_bytes),
        peak_rss_bytes=None if memory.peak_compiled else memory.peak_rss_bytes,
        mfu=roof.mfu,
        counters=_counters(group),
        missing=list(roof.missing),
    )


def _phases(group: Group, roof: RooflineRow) -> list[WorkPhase]:
    bound = {phase.phase: phase for phase in roof.phases}
    names = in_order(group[0].median_phase_s)
    times = {name: median([process.median_phase_s[name] for process in group]) for name in names}
    total_s = math.fsum(times.values()) or 1.0
    return [
        WorkPhase(
            name, time_s, time_s / total_s,
            bound[name].answer if name in bound else None,
            bound[name].achieved_gflop_per_s if name in bound else None,
            bound[name].achieved_gb_per_s if name in bound else None,
        )
        for name, time_s in times.items()
    ]  # fmt: skip


def _ops(group: Group, roof: RooflineRow) -> list[WorkOp]:
    """Each op type, layers together, the costliest first."""
    steps, threads = sum(len(process.timed_s) for process in group), int(group[0].config["threads"])
    roofs = {(op.op, op.phase): op for op in roof.ops}
    timed = [op for op in pooled_ops(group) if op["time_s"] > 0]
    total_s = math.fsum(op["time_s"] for op in timed) or 1.0
    found = []
    for op in sorted(timed, key=lambda each: -each["time_s"]):
        elapsed_s, known = op["time_s"] / threads, roofs.get((op["op"], op["phase"]))
        found.append(WorkOp(
            op["op"], op["phase"], op["calls"] / steps, op["time_s"] / steps, op["time_s"] / total_s,
            op["flop"] / elapsed_s / 1e9, op["bytes"] / elapsed_s / 1e9,
            op["flop"] / op["bytes"] if op["flop"] and op["bytes"] else None,
            None if known is None else known.share, None if known is None else known.bound,
        ))  # fmt: skip
    return found


def _counters(group: Group) -> WorkCounters:
    steps = sum(len(process.after_warmup_s) for process in group)
    values: dict[str, float | None] = {}
    missing: dict[str, str] = {}
    for name in COUNTERS:
        counted = [thread.get(name) for process in group for thread in _of(process).get("threads") or [{}]]
        if None in counted:
            values[name] = None
            reasons = {str((_of(process).get("unavailable") or {}).get(name, OLD)) for process in group}
            missing[name] = "; ".join(sorted(reasons))
        else:
            values[name] = math.fsum(counted) / steps
    misses, elapsed_s = values["cache_misses"], math.fsum(math.fsum(process.after_warmup_s) for process in group)
    rate = None if misses is None else misses * steps * LINE_BYTES / elapsed_s / 1e9
    if rate is None:
        missing["miss_gb_per_s"] = missing["cache_misses"]
    return WorkCounters(**values, miss_gb_per_s=rate, missing=missing)


def _of(process: Process) -> Mapping[str, Any]:
    return process.result.get("counters") or {}


def _pairs(rows: Sequence[WorkRow], name: str, of: Callable[[WorkRow], bool]) -> list[tuple[WorkRow, WorkRow]]:
    """Each row that `of` selects, with the row that differs from it in `name` alone."""
    ignored = {name, *(each for unread in UNREAD.values() for each in unread if name == "mode")}

    def rest(row: WorkRow) -> str:
        known = {key: value for key, value in row.variant.variant.items() if key not in ignored}
        return json.dumps([known, row.variant.scheduler, row.variant.threads], sort_keys=True)

    others = {rest(row): row for row in reversed(rows) if not of(row)}
    return [(row, others[rest(row)]) for row in rows if of(row) and rest(row) in others]


def _modes(rows: Sequence[WorkRow]) -> list[ModeRatio]:
    return [
        ModeRatio(
            infer.variant.scheduler, infer.variant.threads, infer.batch, infer.step_s / train.step_s,
            sum(infer.memory_bytes.values()) / sum(train.memory_bytes.values()),
            infer.peak_rss_bytes / train.peak_rss_bytes if infer.peak_rss_bytes and train.peak_rss_bytes else None,
        )
        for infer, train in _pairs(rows, "mode", lambda row: row.mode == "infer")
    ]  # fmt: skip


def _data(rows: Sequence[WorkRow]) -> list[DataRatio]:
    return [
        DataRatio(
            real.variant.scheduler, real.variant.threads, real.data, made.data, real.step_s / made.step_s,
            _phase_s(real, "data"), _phase_s(made, "data"),
        )
        for real, made in _pairs(rows, "data", lambda row: row.data != GENERATED)
    ]  # fmt: skip


def _phase_s(row: WorkRow, name: str) -> float:
    return next((phase.time_s for phase in row.phases if phase.phase == name), 0.0)


def _compared(processes: Sequence[Process], groups: Sequence[Group]) -> list[tuple[SchedulerRatio, int]]:
    """Comparisons of schedulers, each with the place of the variant that it is about."""
    places = {json.dumps(group[0].variant, sort_keys=True): place for place, group in enumerate(groups)}
    found = []
    for row in sweep(processes, "scheduler").rows:
        place = places[json.dumps({**row.at, "scheduler": row.b}, sort_keys=True)]
        config = groups[place][0].config
        mode, threads, batch = str(config.get("mode", "train")), int(config["threads"]), int(config["batch"])
        found.append((SchedulerRatio(mode, threads, batch, str(row.a), str(row.b), row.ratio, row.ratio_low,
                                     row.ratio_high, row.verdict, row.sentence), place))  # fmt: skip
    return found
