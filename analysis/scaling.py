"""Step time, speedup and efficiency of every variant, relative to named bases with their absolute time."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gpt2core.spec import networks
from gpt2core.spec.latency import QUANTILES
from gpt2core.spec.phases import PASSES, in_order
from gpt2core.spec.result import median
from gpt2core.spec.wording import counted
from taskloom.analysis.agreement import agree, digest, rounding_key, without
from taskloom.analysis.comparison import STEP, Value, weigh
from taskloom.analysis.diagnosis import diagnose
from taskloom.analysis.fingerprint import core_differences, environment_differences
from taskloom.analysis.goals import GoalRow, goals
from taskloom.analysis.levels import Levels, levels
from taskloom.analysis.meaning import says
from taskloom.analysis.processes import Process, distinct
from taskloom.analysis.statistics import Interval, outliers, step_interval, step_median
from taskloom.analysis.validity import marks, summary
from taskloom.analysis.variants import Group, by_variant, variant_of
from taskloom.analysis.wording import told_apart

PLACE = ("threads", "cores")


@dataclass(frozen=True)
class ScalingRow:
    """One variant of an experiment, over all its finished runs."""

    variant: dict[str, Any]
    scheduler: str
    threads: int
    batch_slice: int
    token_slice: int
    runs: int
    step_s: Interval
    tokens_per_s: float
    phase_s: dict[str, float] = field(
        metadata=says("median of each phase; if phases overlap, its tasks' time divided by the threads"),
    )
    speedup: float | None = field(
        metadata=says(
            "T(1) of the same scheduler and slices / T(P), Hodges-Lehmann; null without a base, or if results disagree"
        ),
    )
    speedup_low: float | None = field(
        metadata=says(
            "95 % interval, as in a comparison of both variants; null for fewer than six pairs, and if they are not "
            "independent"
        ),
    )
    speedup_high: float | None
    speedup_best_serial: float | None = field(
        metadata=says(
            "T(1) of the variant with the best one-thread median / T(P), Hodges-Lehmann. That variant was chosen by "
            "the same "
            "times, which the interval ignores"
        ),
    )
    speedup_best_serial_low: float | None
    speedup_best_serial_high: float | None
    efficiency: float | None = field(metadata=says("speedup / P"))
    speedup_forward: float | None = field(metadata=says("speedup of the forward phase alone, over the same base"))
    speedup_forward_low: float | None
    speedup_forward_high: float | None
    efficiency_forward: float | None
    speedup_backward: float | None
    speedup_backward_low: float | None
    speedup_backward_high: float | None
    efficiency_backward: float | None
    latency_s: dict[str, float] | None = field(
        default=None,
        kw_only=True,  # earlier reports lack it
        metadata=says("of inference: p50, p90, p99 and max of the step's time, medians over processes"),
    )
    phases_overlap: bool = field(
        metadata=says("phases are the time of their own tasks divided by the threads, without waiting"),
    )
    outliers: list[int] = field(
        metadata=says("runs whose median is over 1.5 interquartile ranges beyond its variant's quartiles; they count"),
    )
    final_loss: float | None
    agrees: bool = field(metadata=says("losses and weights bit-identical to the other rows of the same slices"))
    diagnosis: list[str] = field(default_factory=list, metadata=says("findings against independent runs"))
    levels: Levels | None = field(default=None, metadata=says("variance components of step times"))
    unit: str = field(default="tokens", metadata=says("what tokens_per_s counts: tokens, or images"))


@dataclass(frozen=True)
class ScalingRows:
    """Every variant, with speedups against named bases."""

    base: str = field(metadata=says("bases of the speedups, with their absolute times"))
    rows: list[ScalingRow]
    warnings: list[str]
    brief: list[str] = field(default_factory=list, metadata=says("`warnings` with all disturbed runs in one"))
    goals: list[GoalRow] = field(default_factory=list, metadata=says("of runs with `stop_at`: the way to their goal"))


@dataclass(frozen=True)
class ScalingTable(ScalingRows):
    """Every variant of an experiment, with speedups against named bases."""

    experiment_id: int = field(kw_only=True)


def scaling(processes: Sequence[Process]) -> ScalingRows:
    """A row for each variant, in the order of scheduler, slices and threads."""
    variants = by_variant(processes)
    agreeing = _agreeing(variants)
    warnings = _warnings(processes, variants, agreeing)
    one_thread = [g for g, agrees in zip(variants, agreeing, strict=True) if agrees and g[0].config["threads"] == 1]
    by_place = {_elsewhere(group[0]): group for group in one_thread}
    fastest_first = sorted(one_thread, key=step_median)
    rows: list[ScalingRow] = []
    bases: dict[str, None] = {}
    for group, agrees in zip(variants, agreeing, strict=True):
        base = by_place.get(_elsewhere(group[0])) if agrees else None
        best = next((other for other in fastest_first if agree(other[0], group[0]).holds), None) if agrees else None
        if agrees and base is None:
            warnings.append(f"no one-thread run of {_name(group)}: no speedup")
        for kind, chosen in (("T(1) of", base), ("best one-thread median:", best)):
            if chosen is not None:
                bases[f"{kind} {_name(chosen)} {step_median(chosen) * 1e3:.5g} ms"] = None
        rows.append(_row(group, agrees, base, best))
    text = "Speedup: T(1) of the same scheduler and slices / T(P). Over best T(1): best one-thread median / T(P). "
    return ScalingRows(
        text + "; ".join(bases) if bases else "no one-thread run: no speedup",
        rows,
        list(dict.fromkeys([*warnings, *marks(processes)])),
        list(dict.fromkeys([*warnings, *summary(processes)])),
        goals(processes),
    )


def _elsewhere(process: Process) -> str:
    """A key that is equal for processes that differ only in the number of threads and in their cores."""
    return json.dumps([without(process.config, PLACE), without(process.variant, PLACE)], sort_keys=True)


def _name(group: Group) -> str:
    of = variant_of(group)
    return f"{of.scheduler} {told_apart(of)}"


def _agreeing(variants: Sequence[Sequence[Process]]) -> list[bool]:
    """For each variant, whether its losses and weights are bit-identical to those of the same slices.

    The reference is the most frequent result. In a tie, it is the serial scheduler's result, then the result with the
    fewest threads.
    """
    said = Counter(process.facts for group in variants for process in group)
    given: dict[str, Counter[tuple[tuple[float, ...], str, str]]] = {}
    for facts in sorted(said, key=lambda each: (each.config["scheduler"] != "serial", each.config["threads"])):
        given.setdefault(rounding_key(facts), Counter())[digest(facts)] += said[facts]
    right = {key: max(counted, key=counted.__getitem__) for key, counted in given.items()}
    return [all(digest(facts) == right[rounding_key(facts)] for facts in distinct(group)) for group in variants]


def _row(
    group: Sequence[Process], agrees: bool, base: Sequence[Process] | None, best: Sequence[Process] | None
) -> ScalingRow:
    config, threads = group[0].config, int(group[0].config["threads"])
    speedup = _speedup(base, group, STEP)
    best_serial = _speedup(best, group, STEP)
    forward, backward = (_phase_speedup(base, group, phase) for phase in PASSES)
    medians_s = [process.median_step_s for process in group]
    return ScalingRow(
        variant=dict(group[0].variant),
        scheduler=config["scheduler"],
        threads=threads,
        batch_slice=config["batch_slice"],
        token_slice=config["token_slice"],
        runs=len(group),
        step_s=step_interval(group),
        tokens_per_s=sum(p.tokens for p in group) / sum(sum(p.timed_s) for p in group),
        unit=networks.unit_of(config["model"]),
        phase_s={
            phase: median([process.median_phase_s[phase] for process in group])
            for phase in in_order(group[0].median_phase_s)
        },
        speedup=speedup.value,
        speedup_low=speedup.low,
        speedup_high=speedup.high,
        speedup_best_serial=best_serial.value,
        speedup_best_serial_low=best_serial.low,
        speedup_best_serial_high=best_serial.high,
        efficiency=_per_thread(speedup, threads),
        speedup_forward=forward.value,
        speedup_forward_low=forward.low,
        speedup_forward_high=forward.high,
        efficiency_forward=_per_thread(forward, threads),
        speedup_backward=backward.value,
        speedup_backward_low=backward.low,
        speedup_backward_high=backward.high,
        efficiency_backward=_per_thread(backward, threads),
        latency_s=_latency_s(group),
        phases_overlap=group[0].phases_overlap,
        outliers=[group[i].run_id for i in outliers(medians_s)],
        final_loss=float(group[0].losses[-1]) if group[0].losses else None,
        agrees=agrees,
        diagnosis=diagnose([p.median_step_s for p in sorted(group, key=lambda p: (p.block, p.run_id))]).findings,
        levels=levels(group, warm_steps=1 + int(config["warmup"])),
    )


def _latency_s(group: Group) -> dict[str, float] | None:
    """The median over processes of each quantile of the step's time; None for results that have none."""
    found = [process.result.get("latency") for process in group]
    known = [each for each in found if each]
    if len(known) < len(group):
        return None
    return {name: median([float(each[f"{name}_s"]) for each in known]) for name in (*QUANTILES, "max")}


@dataclass(frozen=True)
class _Speedup:
    """A ratio, or none."""

    value: float | None = None
    low: float | None = None
    high: float | None = None


def _speedup(base: Group | None, group: Group, value: Value) -> _Speedup:
    """Speedup by Hodges-Lehmann, with an interval where a comparison has one and can use it."""
    if base is None:
        return _Speedup()
    if base is group:
        return _Speedup(1.0, 1.0, 1.0)
    if min(value(process) for process in (*base, *group)) <= 0:
        return _Speedup()
    evidence = weigh(base, group, value=value)
    found = evidence.estimate
    return _Speedup(found.value) if evidence.broken else _Speedup(found.value, found.low, found.high)


def _phase_speedup(base: Group | None, group: Group, phase: str) -> _Speedup:
    """Speedup of one phase; none without this phase."""
    if phase not in group[0].median_phase_s:
        return _Speedup()
    return _speedup(base, group, lambda p: p.median_phase_s[phase])


def _per_thread(speedup: _Speedup, threads: int) -> float | None:
    return None if speedup.value is None else speedup.value / threads


def _warnings(
    processes: Sequence[Process], variants: Sequence[Sequence[Process]], agreeing: Sequence[bool]
) -> list[str]:
    """Warnings about the table or one of its variants, without those about single runs."""
    warnings = [f"the environments of the runs differ: {d}" for d in environment_differences(processes)]
    warnings += [f"runs with the same number of threads used other cores: {d}" for d in core_differences(processes)]
    for group, agrees in zip(variants, agreeing, strict=True):
        threads = group[0].config["threads"]
        if not agrees:
            warnings.append(
                f"{_name(group)} with {counted(threads, 'thread')} disagrees with the other results of its slices: "
                "no speedup"
            )
        if any(len(set(f.environment.get("cores", range(threads)))) < threads for f in distinct(group)):
            warnings.append(f"{_name(group)} with {counted(threads, 'thread')} had fewer cores than threads")
    if processes and all(len(group) == 1 for group in variants):
        warnings.append("one process per variant: intervals are over its steps, not over processes; speedups have none")
    return warnings
