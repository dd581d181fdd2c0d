"""Forecast of a step on more ranks: one rank's step is replayed, and its link carries the messages in their order.

All ranks are alike, so a rank receives from the others what it sends, at the same time. An exchange arrives when the
link has carried it, after those that began before it, plus the latency. Not modelled: time that the MPI library takes
of the cores while messages are on their way, and messages that wait until a thread looks after them.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from gpt2core.spec import schedulers
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import ConfigError
from gpt2core.spec.result import median
from gpt2core.spec.wording import counted, enumerated
from taskloom.analysis.agreement import without
from taskloom.analysis.forecast import LARGE_ERROR, Cores, fork_join_step_on, task_step_on
from taskloom.analysis.meaning import says
from taskloom.analysis.processes import Process
from taskloom.analysis.profile import Profile
from taskloom.analysis.rank_work import Exchange, Ranks, Way, sent_kinds
from taskloom.analysis.statistics import step_median
from taskloom.analysis.variants import Group, Variant, variant_of

RANKS = (1, 2, 4, 8, 16, 32, 64)
SHARED = ("ranks", "parallel", "batch", "cores")  # settings that may differ between the source and a measured variant
SIZES = ("model", "seq", "parallel")  # settings that decide which numbers of ranks there can be
WAYS: tuple[Way, ...] = ("strong", "weak")
DIVIDED = {"tensor": "the matrices", "hybrid": "the batch of some layers and the matrices of others"}


class Link(NamedTuple):
    """What connects a rank with the others: seconds until a message arrives, and bytes a second."""

    latency_s: float
    bytes_per_s: float


NO_LINK = Link(0.0, math.inf)  # messages take no time


class Linked(Cores):
    """The cores of a rank, and its link."""

    def __init__(self, profile: Profile, cores: int, link: Link, exchanges: Sequence[Exchange]) -> None:
        super().__init__(profile, cores, None)
        self._link, self._free_s = link, 0.0
        self._sends = {each.send: each for each in exchanges}
        self._arrives_s = {each.arrived: 0.0 for each in exchanges}

    def apart(self, task: int) -> bool:
        return task in self._arrives_s

    def begin(self, task: int, core: int) -> None:
        if task not in self._arrives_s:
            super().begin(task, core)
            return
        self._begun[core] = self.now_s
        heapq.heappush(self._compute, (max(self.now_s, self._arrives_s[task]), task, core))

    def end(self) -> tuple[int, int]:
        task, core = super().end()
        if task in self._sends:
            _, arrived, size = self._sends[task]
            self._free_s = max(self.now_s, self._free_s) + size / self._link.bytes_per_s
            self._arrives_s[arrived] = self._free_s + self._link.latency_s
        return task, core


def rank_step_s(
    profile: Profile, ranks: Ranks, scheduler: str, link: Link, threads: int = 1, overhead_s: float = 0.0,
    dynamic: bool = False,
) -> float:  # fmt: skip
    """A step with these ranks of so many threads, from the profile of one rank. Raises ValueError for exchanges that
    are not forecast."""
    one = ranks.scaled(profile, overhead_s)
    machine = Linked(one, threads, link if ranks.total > 1 else NO_LINK, ranks.exchanges(profile))
    if _follows_graph(scheduler):
        return task_step_on(machine, one, threads)
    return fork_join_step_on(machine, one, threads, dynamic)


def _follows_graph(scheduler: str) -> bool:
    facts = schedulers.facts(scheduler)
    return facts is not None and facts.second_moment


@dataclass(frozen=True)
class RankPoint:
    """A forecast step with a number of ranks."""

    ranks: int = field(metadata=says("number of ranks"))
    batch: int = field(metadata=says("sequences or images of a step, of all ranks together"))
    step_s: float = field(metadata=says("forecast of a step, seconds"))
    ideal_s: float = field(
        metadata=says("strong: the forecast with one rank, divided by the ranks; weak: that forecast; seconds")
    )
    efficiency: float = field(metadata=says("ideal_s / step_s"))
    exposed_s: float = field(metadata=says("what messages add to the step, seconds"))
    measured_s: float | None = field(metadata=says("median of the measured steps, seconds; null: not measured"))
    error: float | None = field(metadata=says("step_s / measured_s - 1; null: not measured"))


@dataclass(frozen=True)
class RankCurve:
    """Forecasts of one way to scale."""

    way: Way = field(metadata=says("strong: the batch of all ranks is held; weak: it grows with their number"))
    points: list[RankPoint] = field(metadata=says("by the number of ranks, as far as it fits batch and model"))


@dataclass(frozen=True)
class RankForecast:
    """Forecasts of one variant with other numbers of ranks."""

    source: Variant = field(metadata=says("variant of several ranks whose profile gives the work"))
    source_run_id: int = field(metadata=says("its profiled run"))
    source_ranks: int = field(metadata=says("its number of ranks"))
    latency_s: float = field(metadata=says("of a message between rank 0 and the rank farthest from it, seconds"))
    bytes_per_s: float = field(metadata=says("between rank 0 and the rank farthest from it, bytes a second"))
    curves: list[RankCurve] = field(metadata=says("strong and weak scaling"))
    worst_error: float | None = field(metadata=says("largest relative error; null: no step was measured"))
    assumptions: list[str] = field(metadata=says("of the forecast, in words"))
    given: bool = field(
        metadata=says("false: worst_error is above 0.1, so the curves have measured numbers of ranks only")
    )


def several(process: Process) -> bool:
    """Whether a process has several ranks."""
    return int(process.config.get("ranks", 1)) > 1


def rank_sources(groups: Sequence[Group], profiled: Container[int]) -> list[int]:
    """The runs whose profiles the forecasts of variants with several ranks use."""
    return [run.run_id for group in groups if several(group[0]) and (run := _source(group, profiled))]


def _source(group: Group, profiled: Container[int]) -> Process | None:
    """The profiled run nearest to the variant's median."""
    median_s = step_median(group)
    known = [run for run in group if run.run_id in profiled]
    return min(known, key=lambda run: abs(run.median_step_s - median_s), default=None)


def rank_forecasts(
    groups: Sequence[Group], profiles: Mapping[int, Profile], ranks: Sequence[int] = RANKS
) -> tuple[list[RankForecast], list[str]]:
    """A forecast for each variant with several ranks, and reasons for missing ones. profiles: by run."""
    found, missing = [], []
    for group in groups:
        if not several(group[0]):
            continue
        try:
            found.append(made := _forecast(group, groups, profiles, ranks))
        except ValueError as error:
            missing.append(f"{variant_of(group).name}: {error}")
            continue
        if not made.given:
            missing.append(
                f"{made.source.name}: the forecast differs from measured steps by up to {made.worst_error:.0%}, more "
                f"than {LARGE_ERROR:.0%}, so no other number of ranks is forecast"
            )
    return found, missing


def _forecast(
    group: Group, groups: Sequence[Group], profiles: Mapping[int, Profile], ranks: Sequence[int]
) -> RankForecast:
    """Raises ValueError with the reason why there is none."""
    run, link, config = _source(group, profiles), _link(group), group[0].config
    scheduler, source, batch, threads = (config[name] for name in ("scheduler", "ranks", "batch", "threads"))
    facts = schedulers.facts(scheduler)
    if facts is None or (facts.order == "graph" and not facts.second_moment):
        raise ValueError(f"steps of {scheduler} are not replayed")
    if run is None:
        raise ValueError("no run of several ranks has a profile")
    if link is None:
        raise ValueError("latency and bandwidth between the ranks were not measured")
    profile, measured_s = profiles[run.run_id], _measured_s(group, groups)
    parallel, overhead_s = str(config.get("parallel", "data")), _overhead_s(run, profile)

    def replayed_s(of: Ranks, through: Link) -> float:
        return rank_step_s(
            profile, of, scheduler, through, threads, overhead_s, dynamic=config.get("assignment") == "dynamic"
        )

    numbers = sorted({1, source, *ranks, *(count for count, _ in measured_s)})
    found = []
    for way in WAYS:
        alone_s, points = replayed_s(Ranks(source, 1, way, parallel), link), []
        for count in numbers:
            of_all, rest = (batch, 0) if way == "strong" else divmod(batch * count, source)
            if rest or not _fits(config, count, of_all):
                continue
            of = Ranks(source, count, way, parallel)
            step_s, silent_s = replayed_s(of, link), replayed_s(of, NO_LINK)
            ideal_s, known_s = alone_s / count if way == "strong" else alone_s, measured_s.get((count, of_all))
            error = None if known_s is None else step_s / known_s - 1
            points.append(
                RankPoint(count, of_all, step_s, ideal_s, ideal_s / step_s, step_s - silent_s, known_s, error)
            )
        found.append(RankCurve(way, points))
    worst = max((abs(p.error) for curve in found for p in curve.points if p.error is not None), default=None)
    given = worst is None or worst <= LARGE_ERROR
    if not given:
        found = [replace(c, points=[p for p in c.points if p.measured_s is not None]) for c in found]
    return RankForecast(
        variant_of(group), run.run_id, source, *link, found, worst, _assumptions(run, profile, link), given
    )


def _fits(config: Mapping[str, object], ranks: int, batch: int) -> bool:
    """Whether so many ranks can share so large a batch."""
    sizes = {name: config[name] for name in SIZES if name in config}
    try:
        TrainConfig.from_dict({**sizes, "ranks": ranks, "batch": batch})
    except ConfigError:
        return False
    return True


def _link(group: Group) -> Link | None:
    """The slowest of rank 0's links, medians over the runs; None if none was measured."""
    links = [
        [(rank["latency_s"], rank["bytes_per_s"]) for rank in run.communication if rank.get("bytes_per_s")]
        for run in group
    ]
    every = [list(zip(*each, strict=True)) for each in links if each]
    if not every:
        return None
    return Link(median([max(latency) for latency, _ in every]), median([min(rate) for _, rate in every]))


def _measured_s(group: Group, groups: Sequence[Group]) -> dict[tuple[int, int], float]:
    """Median steps of the variants that differ from this one at most in ranks and batch, by both. One rank divides
    nothing, so it is a measurement for either way."""

    def rest(of: Group) -> tuple[Mapping[str, object], ...]:
        return without(of[0].config, SHARED), without(of[0].variant, SHARED)

    def parallel(of: Group) -> object:
        return of[0].config.get("parallel", "data") if several(of[0]) else parallel(group)

    alike = [each for each in groups if rest(each) == rest(group) and parallel(each) == parallel(group)]
    return {(int(of[0].config.get("ranks", 1)), int(of[0].config["batch"])): step_median(of) for of in alike}


def _overhead_s(run: Process, profile: Profile) -> float:
    """Scheduling time of a task: what rank 0's first thread neither works nor waits."""
    threads = run.result.get("threads")
    if not threads:
        return 0.0
    spent_s = math.fsum(threads[0].get(name) or 0.0 for name in ("useful_s", "barrier_s", "starvation_s", "idle_s"))
    of_a_step_s = (math.fsum(run.after_warmup_s) - spent_s) / len(run.after_warmup_s)
    return max(0.0, of_a_step_s * int(run.config["threads"]) / len(profile.seconds))


def _assumptions(run: Process, profile: Profile, link: Link) -> list[str]:
    source, threads = int(run.config["ranks"]), int(run.config["threads"])
    divide = "ranks divide the batch: the time of a task is proportional to a rank's part of it"
    if (divided := DIVIDED.get(str(run.config.get("parallel")))) is not None:
        divide = (
            f"ranks divide {divided}: the time of a task is proportional to the batch and to a rank's part of the "
            "work, but that of what each rank does whole to the batch, and that of sums of ranks' parts to their bytes"
        )
    return [
        f"a message takes {link.latency_s * 1e6:.1f} us and the time of its bytes at {link.bytes_per_s / 1e6:,.1f} "
        f"MB/s, as measured between rank 0 and the farthest of {counted(source, 'rank')}; each rank has such a link of "
        "its own in each direction, which carries one exchange after the other",
        f"{divide}; that of updates is proportional to its part of the weights",
        f"each rank computes with {counted(threads, 'thread')}, on cores as fast as with {source} ranks",
        f"messages ({enumerated(sent_kinds(profile))}) take no time of cores but for the calls that send them",
    ]
