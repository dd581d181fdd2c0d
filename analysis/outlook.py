"""Forecasts for an experiment, for more cores from the profile of a one-thread run, compared with every measured number
of threads, and for more ranks."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpt2core.spec import schedulers
from gpt2core.spec.result import median
from gpt2core.spec.wording import counted
from taskloom.analysis.forecast import LARGE_ERROR, REPLAYED, Ceiling, Curve, curves, waits_for_ops
from taskloom.analysis.meaning import says
from taskloom.analysis.processes import Facts, Process
from taskloom.analysis.profile import Profile
from taskloom.analysis.rank_forecast import RankForecast, rank_forecasts, rank_sources, several
from taskloom.analysis.roofline import Peaks, peaks_of
from taskloom.analysis.statistics import step_median
from taskloom.analysis.variants import Group, Variant, by_variant, loops_of, variant_of
from taskloom.analysis.wording import tiles_name

CORES = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True)
class Forecast:
    """Forecasts for equal tiles. source: the one-thread variant whose profile gives work and spans; source_run_ids: the
    profiled run of each scheduler's curves; worst_error: the largest relative error on more than one thread, null if
    none was measured. given: false if that error is above LARGE_ERROR; the curves then have only the numbers of cores
    that were measured, to show the error."""

    source: Variant
    source_run_id: int
    source_run_ids: dict[str, int]
    tasks: int
    work_s: float
    span_s: float
    fork_join_span_s: float
    overhead_s: float
    curves: list[Curve]
    worst_error: float | None
    assumptions: list[str]
    given: bool = True


@dataclass(frozen=True)
class Outlook:
    """Forecasts, and reasons for missing ones."""

    forecasts: list[Forecast]
    missing: list[str]
    ranks: list[RankForecast] = field(
        default_factory=list, metadata=says("with more ranks, of each variant with several")
    )


def usable_runs(processes: Sequence[Process]) -> list[int]:
    """Runs whose profiles a forecast can use: those of one thread, and those of several ranks."""
    return [process.run_id for process in processes if _alone(process) or several(process)]


def _alone(process: Process) -> bool:
    """Whether one thread ran all tasks: a profile of several ranks has those of rank 0."""
    return bool(process.config["threads"] == 1 and not several(process))


def sources(processes: Sequence[Process], profiled: Container[int]) -> list[int]:
    """Choose the runs whose profiles a forecast uses."""
    groups = by_variant(processes)
    found = rank_sources(groups, profiled)
    for alike in _by_tiles(groups):
        candidates = _profiled(alike, profiled)
        if candidates:
            found += (_source(candidates, scheduler)[1].run_id for scheduler in _schedulers(candidates))
    return list(dict.fromkeys(found))


def _by_tiles(groups: Sequence[Group]) -> list[list[Group]]:
    tiles: dict[str, list[Group]] = {}
    for group in groups:
        tiles.setdefault(loops_of(group), []).append(group)
    return list(tiles.values())


def _profiled(alike: Sequence[Group], profiled: Container[int]) -> list[tuple[Group, Process]]:
    return [(g, run) for g in alike for run in g if _alone(run) and run.run_id in profiled]


def outlook(
    processes: Sequence[Process], profiles: Mapping[int, Profile], cores: Sequence[int] = CORES
) -> Outlook:
    """A forecast for each way to slice that has a profile, and for each variant with several ranks.

    profiles: by run.
    """
    groups = by_variant(processes)
    of_ranks, missing = rank_forecasts(groups, profiles)
    found = []
    for alike in _by_tiles(groups):
        profiled = _profiled(alike, profiles)
        if several(alike[0][0]):
            continue
        if not profiled:
            missing.append(f"slices {tiles_name(variant_of(alike[0]))}: no one-thread run has a profile")
            continue
        made = _forecast(profiled, profiles, alike, cores)
        found.append(made)
        if not made.given:
            missing.append(
                f"slices {tiles_name(made.source)}: the forecast differs from measured steps by up to "
                f"{made.worst_error:.0%}, more than {LARGE_ERROR:.0%}, so no other number of cores is forecast"
            )
    return Outlook(found, list(dict.fromkeys(missing)), of_ranks)


def _source(profiled: Sequence[tuple[Group, Process]], scheduler: str) -> tuple[Group, Process]:
    """The one-thread run nearest to the median, of this scheduler if possible, since the order of tasks affects caches
    and so their times."""

    medians_s = {id(group): step_median(group) for group, _ in profiled}

    def farness(pair: tuple[Group, Process]) -> tuple[bool, float]:
        group, process = pair
        return process.config["scheduler"] != scheduler, abs(process.median_step_s - medians_s[id(group)])

    return min(profiled, key=farness)


def _schedulers(profiled: Sequence[tuple[Group, Process]]) -> list[str]:
    """REPLAYED, and the schedulers with a one-thread run, which shows their overhead."""
    own = dict.fromkeys(run.config["scheduler"] for _, run in profiled)
    others = [name for name in own if (facts := schedulers.facts(name)) is not None and facts.order != "program"]
    return list(dict.fromkeys([*REPLAYED, *others]))


def _overhead_s(process: Process, profile: Profile) -> float:
    return max(0.0, (process.median_step_s - profile.work_s) / len(profile.seconds))


def _forecast(
    profiled: Sequence[tuple[Group, Process]],
    profiles: Mapping[int, Profile],
    alike: Sequence[Group],
    cores: Sequence[int],
) -> Forecast:
    peaks = _peaks([run for group in alike for run in group])
    source, process = _source(profiled, "task")
    profile = profiles[process.run_id]
    overhead_s = _overhead_s(process, profile)
    runs = {scheduler: _source(profiled, scheduler)[1] for scheduler in _schedulers(profiled)}
    measured_s: dict[tuple[str, int], float] = {}
    for group in alike:
        config = group[0].config
        facts, run = schedulers.facts(config["scheduler"]), runs.get(config["scheduler"])
        if facts is None or run is None:
            continue
        same_runtime = "runtime" not in facts.options or config.get("runtime") == run.config.get("runtime")
        if same_runtime and (facts.order == "ops" or config["sync"] == profile.config.get("sync")):
            measured_s.setdefault((config["scheduler"], int(config["threads"])), step_median(group))
    counts = sorted({*cores, *(threads for _, threads in measured_s)})
    dynamic = any(g[0].config.get("assignment") == "dynamic" for g in alike if waits_for_ops(g[0].config["scheduler"]))
    ceilings = [Ceiling(peaks, "grows"), Ceiling(peaks, "held")] if peaks else [None]
    found = [
        curve
        for ceiling in ceilings
        for scheduler, run in runs.items()
        for curve in curves(
            profiles[run.run_id],
            counts,
            ceiling,
            _overhead_s(run, profiles[run.run_id]),
            measured_s,
            dynamic,
            (scheduler,),
        )
    ]
    errors = [abs(p.error) for c in found for p in c.points if p.error is not None and p.cores > 1]
    worst = max(errors, default=None)
    given = worst is None or worst <= LARGE_ERROR
    shown = {1, *(threads for _, threads in measured_s)}
    return Forecast(
        source=variant_of(source),
        source_run_id=process.run_id,
        source_run_ids={scheduler: run.run_id for scheduler, run in runs.items()},
        tasks=len(profile.seconds),
        work_s=profile.work_s,
        span_s=profile.span_s,
        fork_join_span_s=profile.fork_join_span_s,
        overhead_s=overhead_s,
        curves=found if given else [replace(c, points=[p for p in c.points if p.cores in shown]) for c in found],
        worst_error=worst,
        assumptions=_assumptions(profile, peaks, overhead_s),
        given=given,
    )


def _peaks(processes: Sequence[Process]) -> tuple[Peaks, ...]:
    """Every number of threads at which the node's peaks were measured; the median over runs."""
    threads: dict[int, list[Peaks]] = {}
    for process in processes:
        for found in process.facts.once(_peaks_of):
            threads.setdefault(found.threads, []).append(found)
    return tuple(
        replace(
            measured[0],
            gflop_per_s=median([p.gflop_per_s for p in measured]),
            triad_gb_per_s=median([p.triad_gb_per_s for p in measured]),
        )
        for _, measured in sorted(threads.items())
    )


def _peaks_of(facts: Facts) -> list[Peaks]:
    environment, precision = facts.environment, str(facts.config.get("precision", "fp32"))
    counts = (environment.get("peaks") or {}).get("threads") or {}
    return [found for n in counts if (found := peaks_of(environment, int(n), precision)) is not None]


def _assumptions(profile: Profile, peaks: Sequence[Peaks], overhead_s: float) -> list[str]:
    assumptions = [
        f"each of the {len(profile.seconds):,} tasks of a step takes as long on any core as on one thread; scheduling "
        f"adds {overhead_s * 1e6:.2f} us to each, as measured on one thread",
        "caches, clocks and NUMA distances do not change with the number of cores",
        "a barrier costs only the wait for the last thread",
        f"tasks run in the default breadth-first order with sync = {profile.config.get('sync')}",
    ]
    if not peaks:
        return [*assumptions, "bandwidth is unlimited, since the node's peaks were not measured"]
    measured = ", ".join(f"{p.triad_gb_per_s:.1f} GB/s with {counted(p.threads, 'thread')}" for p in peaks)
    return [
        *assumptions,
        f"tasks below the ridge share the measured bandwidth ({measured}); with more cores than measured, it "
        "grows in proportion (grows) or stays constant (held): a larger machine lies between the two",
    ]
