"""Causes of a variant's step time: one row for each variant of an experiment.

Times are totals over the timed steps of all runs of a variant, so that factors multiply exactly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpt2core.spec import schedulers
from gpt2core.spec.phases import in_order
from gpt2core.spec.result import MOSTLY_USEFUL, median
from taskloom.analysis.efficiency import (
    Counted,
    Efficiency,
    Scalability,
    WaitingSplit,
    critical_s,
    efficiency,
    scalability,
)
from taskloom.analysis.efficiency import waiting_split as split_waiting
from taskloom.analysis.processes import Process
from taskloom.analysis.roofline import MemoryBound, OpRoof, Peaks, memory_bound, model_flop, peaks_of, roofline
from taskloom.analysis.statistics import step_median
from taskloom.analysis.variants import Group, Variant, by_variant, one_thread, variant_of
from taskloom.analysis.work_span import WorkSpan, work_span


@dataclass(frozen=True)
class EfficiencyRow:
    """Use of the threads' time. Values that old results lack are null; `missing` says why. Of several ranks, efficiency
    is that of all their threads, and the rest is of rank 0."""

    variant: Variant
    efficiency: Efficiency | None
    waiting: WaitingSplit | None
    scalability: Scalability | None
    phase_scalability: dict[str, float]
    bounds: WorkSpan | None
    missing: list[str]


@dataclass(frozen=True)
class RooflineRow:
    """Each op's share of its roof, and whether each phase is memory-bound.

    mfu: model-FLOP utilisation, the flop of the model in a median step, of several ranks each one's part, / the flop
    that the peak of products allows in that time; mfu_registers: the same for the peak of registers, null if that was
    not measured.
    """

    variant: Variant
    peaks: Peaks | None
    mfu: float | None
    ops: list[OpRoof]
    phases: list[MemoryBound]
    missing: list[str]
    mfu_registers: float | None = None


@dataclass(frozen=True)
class EfficiencyTable:
    """Use of the threads' time for every variant of an experiment."""

    experiment_id: int
    rows: list[EfficiencyRow]


@dataclass(frozen=True)
class RooflineTable:
    """Share of the node's peaks that the ops of every variant reached."""

    experiment_id: int
    rows: list[RooflineRow]


def efficiencies(processes: Sequence[Process]) -> list[EfficiencyRow]:
    """A row for each variant, in the order of every table."""
    groups = by_variant(processes)
    return [_efficiency(group, one_thread(group, groups)) for group in groups]


def rooflines(processes: Sequence[Process]) -> list[RooflineRow]:
    """A row for each variant, in the order of every table."""
    groups = by_variant(processes)
    return [_roofline(group, one_thread(group, groups)) for group in groups]


def _efficiency(group: Group, reference: Group | None) -> EfficiencyRow:
    threads, missing = int(group[0].config["threads"]), []
    useful_s = thread_times(group, "useful_s")
    elapsed_s = math.fsum(math.fsum(process.timed_s) for process in group)
    spans = _graph(group)
    found = split = scaled = None
    if useful_s is None or max(useful_s) <= 0:
        missing.append("the results contain no times of threads")
    else:
        steps = sum(len(process.timed_s) for process in group)
        span_s = min(steps * _executed_span_s(group, spans), elapsed_s)
        of_all_s = useful_of_ranks(group) or useful_s
        found = efficiency(of_all_s, elapsed_s, critical_s(of_all_s, span_s))
        waited = [thread_times(group, name) for name in ("starvation_s", "idle_s", "barrier_s")]
        if any(times is None for times in waited):
            missing.append("the results do not split the threads' waiting")
        else:
            starved, idle, barrier = (times or [] for times in waited)
            serial = [a + b for a, b in zip(starved, idle, strict=True)]
            split = split_waiting(useful_s, serial, barrier, elapsed_s)
            known = schedulers.facts(group[0].config["scheduler"])
            if threads > 1 and known is not None and not known.tells_scheduling:
                missing.append("the runtime does not separate looking for a task from having none: both are waiting")
        base = None if reference is None else thread_times(reference, "useful_s")
        if base is None or reference is None or math.fsum(base) <= 0:
            missing.append("no one-thread run of the same tiles: computation scalability is unknown")
        else:
            scaled = scalability(
                math.fsum(base) / sum(len(process.timed_s) for process in reference),
                math.fsum(useful_s) / steps,
                counted(reference),
                counted(group),
            )
    bounds = None
    if spans is None:
        missing.append("the results contain no work and span")
    else:
        bounds = work_span(*spans, sorted({1, threads, 2 * threads, 4 * threads}))
    return EfficiencyRow(variant_of(group), found, split, scaled, phase_scalability(group, reference), bounds, missing)


def _executed_span_s(group: Group, spans: tuple[float, float, float] | None) -> float:
    """The span of a step under its scheduler; 0 if it is unknown or steps overlap."""
    config = group[0].config
    facts = schedulers.facts(config["scheduler"])
    if spans is None or facts is None or (facts.order, config["sync"]) == ("graph", "none"):
        return 0.0
    return spans[2] if facts.order == "ops" else spans[1]


def thread_times(group: Group, name: str) -> list[float] | None:
    """Seconds of each thread over all runs of a variant; None if a result lacks them."""
    number, found = int(group[0].config["threads"]), []
    for process in group:
        times = [thread.get(name) for thread in process.result.get("threads") or []]
        if len(times) != number or None in times:
            return None
        found.append(times)
    return [math.fsum(map(float, times)) for times in zip(*found, strict=True)]


def useful_of_ranks(group: Group) -> list[float] | None:
    """Seconds in tasks of each thread of all ranks over all runs of a variant; None if a result lacks them."""
    number = int(group[0].config["threads"]) * int(group[0].config["ranks"])
    found = [process.useful_s for process in group]
    if any(len(times) != number for times in found):
        return None
    return [math.fsum(times) for times in zip(*found, strict=True)]


def counted(group: Group) -> Counted | None:
    """Instructions and cycles per timed step, over all threads; None if they were not counted, or if waiting, which is
    counted too, takes a share above 1 - MOSTLY_USEFUL."""
    useful_s, elapsed_s = thread_times(group, "useful_s"), math.fsum(math.fsum(p.timed_s) for p in group)
    if useful_s is None or math.fsum(useful_s) < MOSTLY_USEFUL * len(useful_s) * elapsed_s:
        return None
    steps = sum(len(process.timed_s) for process in group)
    threads = [t for process in group for t in (process.result.get("counters") or {}).get("threads") or []]
    totals = [math.fsum(thread.get(name) or 0.0 for thread in threads) for name in ("instructions", "cycles")]
    return Counted(totals[0] / steps, totals[1] / steps) if all(totals) else None


def phase_scalability(group: Group, reference: Group | None) -> dict[str, float]:
    """For each phase, the time of its tasks with one thread over their time here."""
    if reference is None:
        return {}
    found = {}
    for phase in in_order(group[0].busy_phase_s):
        base_s, here_s = (_phase_busy_s(each, phase) for each in (reference, group))
        if base_s and here_s:
            found[phase] = base_s / here_s
    return found


def _phase_busy_s(group: Group, phase: str) -> float:
    return median([process.busy_phase_s[phase] for process in group])


def _graph(group: Group) -> tuple[float, float, float] | None:
    """Medians over runs of work, span and fork-join's span of a step; None if a result lacks them."""
    graphs: list[Mapping[str, float]] = [process.result.get("graph") or {} for process in group]
    names = ("t1_s", "tinf_s", "fork_join_tinf_s")
    if not all(graph.get(name) for graph in graphs for name in names):
        return None
    work_s, span_s, fork_join_span_s = (median([graph[name] for graph in graphs]) for name in names)
    return work_s, span_s, fork_join_span_s


def _roofline(group: Group, reference: Group | None) -> RooflineRow:
    threads, precision = int(group[0].config["threads"]), str(group[0].config.get("precision", "fp32"))
    known = (peaks_of(process.environment, threads, precision) for process in group)
    peaks = next((p for p in known if p is not None), None)
    variant = variant_of(group)
    if peaks is None:
        missing = f"the node's peaks with threads = {threads} were not measured (there: taskloom doctor --peaks)"
        return RooflineRow(variant, None, None, [], [], [missing])
    ops = roofline(pooled_ops(group), peaks)
    model_gflop_per_s = model_flop(group[0].config) / int(group[0].config["ranks"]) / step_median(group) / 1e9
    most = peaks.registers_gflop_per_s
    return RooflineRow(
        variant, peaks, model_gflop_per_s / peaks.gflop_per_s, ops,
        memory_bound(ops, phase_scalability(group, reference), peaks), [], model_gflop_per_s / most if most else None,
    )  # fmt: skip


def pooled_ops(group: Group) -> list[dict[str, Any]]:
    """Each op over all runs of a variant: calls, time, flop and bytes added up."""
    totals: dict[tuple[str, str], dict[str, Any]] = {}
    for process in group:
        for op in process.result.get("ops") or []:
            total = totals.setdefault((op["op"], op["phase"]), {"op": op["op"], "phase": op["phase"]})
            for name in ("calls", "time_s", "flop", "bytes"):
                total[name] = total.get(name, 0) + op[name]
    return list(totals.values())
