"""Step times of a configuration on a machine over time: finds changes, and decides whether a slowdown is real.

A change point in the history is only a suspicion; fresh runs confirm a regression. If only the trainer's sources
changed and a worker has kept both builds, the builds before and after run in turn; otherwise the new one runs, and the
canary has to exclude the machine. A canary is fixed work that no version of Taskloom changes. If runs have one, the
series is step time / canary time, since a slower machine affects both. Without a canary, a change without different
software is attributed to the environment.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from gpt2core.spec.result import median
from gpt2core.spec.series import SOFTWARE, series_config, series_key, series_machine
from gpt2core.spec.wording import counted
from taskloom.analysis.changepoints import MIN_SEGMENT, change_points
from taskloom.analysis.comparison import NOISE_FLOOR, by_occasion, compare, decide
from taskloom.analysis.diagnosis import diagnose
from taskloom.analysis.estimators import CONFIDENCE, unpaired
from taskloom.analysis.fingerprint import differing
from taskloom.analysis.processes import Process
from taskloom.analysis.thresholds import StepLimits

State = Literal["suspected", "confirming", "confirmed", "dismissed"]
Cause = Literal["software", "environment", "unproven", "unexplained"]
LIBRARIES = tuple(name for name in SOFTWARE if name != "core_hash")
VERSION = "core_version"  # it names the commit; only other sources make it a difference
MOVES = MIN_SEGMENT // 2  # a change may move by this number of runs as more runs arrive; its confirmation stays valid
CONFIRMING_RUNS = 6  # fresh runs of a confirmation
CONFIRMING_PAIRS = 8  # or blocks of both builds
FEWEST_OCCASIONS = 3  # to estimate how much occasions differ


@dataclass(frozen=True)
class SeriesPoint:
    """One run of a series: its median step, and its canary's time if it has one."""

    run_id: int
    step_s: float
    software: Mapping[str, Any]
    canary_s: float | None = None


@dataclass(frozen=True)
class Since:
    """The commits between which a level changed: of the last run before and of the first one after.

    of: submitted: those that the submitters named; trainer: those of the trainers. dirty: sources of either run
    differed from its commit. url: by the operator's template; null without one.
    """

    last_before: str
    first_after: str
    of: Literal["submitted", "trainer"]
    dirty: bool = False
    url: str | None = None


@dataclass(frozen=True)
class Change:
    """A change of level between two neighbouring runs.

    ratio: after / before, above 1 slower; of step time / canary time if the runs have canaries. Its bounds are null for
    fewer than six occasions on a side, each of which counts by its median, and for occasions that are not independent.
    They assume that there is a change and that it is where it was found.
    differs: software that changed at the same time. builds: hashes of the trainer's sources before and after, if
    nothing else changed, so that fresh runs can compare both.
    cause: software: the software changed and the canary did not; environment: the software did not change, and there is
    no canary or it changed too; unproven: the software changed, and there is no canary or it changed too; unexplained:
    neither software nor canary changed.
    since: the range of commits; null: a commit is unknown, or both are the same.
    """

    last_before: int
    first_after: int
    before_s: float
    after_s: float
    ratio: float
    ratio_low: float | None
    ratio_high: float | None
    differs: list[str]
    cause: Cause = "unproven"
    builds: list[str] = field(default_factory=list)
    since: Since | None = None


@dataclass(frozen=True)
class Alert:
    """A slowdown, and the result of fresh runs."""

    change: Change
    state: State
    confirming_experiment_id: int | None
    reason: str


@dataclass(frozen=True)
class Series:
    """All runs of one configuration on one machine, oldest first."""

    config: dict[str, Any]
    machine: dict[str, Any]
    points: list[SeriesPoint]
    changes: list[Change]
    alerts: list[Alert]
    over_canary: bool = False  # changes are of step time / canary time
    threshold: StepLimits | None = None


@dataclass(frozen=True)
class SeriesList:
    """Every series of the latest runs, or the series of one run."""

    items: list[Series]


@dataclass(frozen=True)
class SeriesChanges:
    """Changes of a series within its latest runs, and the results of fresh runs. runs: number of runs examined."""

    series_id: int
    runs: int
    over_canary: bool
    changes: list[Change]
    alerts: list[Alert]
    threshold: StepLimits | None = None


@dataclass(frozen=True)
class Confirmation:
    """An experiment that confirms a suspicion: its succeeded runs, and whether more will come. builds: the trainers
    before and after the change, if its blocks run both."""

    experiment_id: int
    run_ids: frozenset[int]
    active: bool
    builds: tuple[str, ...] = ()


def series(
    processes: Sequence[Process], confirmations: Mapping[int, Confirmation], noise_floor: float = NOISE_FLOOR
) -> list[Series]:
    """Every series among the processes, those with most runs first. processes: oldest first. confirmations: by the run
    after the change. Their runs are not part of the history, because they judge it."""
    groups: dict[str, list[Process]] = {}
    for process in processes:
        groups.setdefault(series_key(process.config, process.environment), []).append(process)
    found = [_series(group, confirmations, noise_floor) for group in groups.values()]
    return sorted(found, key=lambda one: -len(one.points))


def _series(group: Sequence[Process], confirmations: Mapping[int, Confirmation], noise_floor: float) -> Series:
    again = frozenset[int]().union(*(confirmation.run_ids for confirmation in confirmations.values()))
    newest = next((process.canary_sha256 for process in reversed(group) if process.canary_sha256), None)
    with_canary = [process for process in group if newest is not None and process.canary_sha256 == newest]
    relative = 2 * len(with_canary) > len(group)  # older runs without this canary are then left out
    earlier = [process for process in (with_canary if relative else group) if process.run_id not in again]
    values = [level(process, relative) for process in earlier]
    starts = change_points(values, noise_floor)
    bounds = [0, *starts, len(values)]
    changes, alerts = [], []
    for i, start in enumerate(starts):
        before, after = earlier[bounds[i] : start], earlier[start : bounds[i + 2]]
        moved = relative and _canary_moved(before, after, noise_floor)
        change = _change(before, after, relative, moved)
        changes.append(change)
        if change.ratio > 1:
            near = earlier[max(0, start - MOVES) : start + MOVES + 1]
            asked_near = [confirmations[process.run_id] for process in near if process.run_id in confirmations]
            confirmation = asked_near[-1] if asked_near else None
            confirming = frozenset() if confirmation is None else confirmation.run_ids
            fresh = [process for process in group if process.run_id in confirming]
            if confirmation is not None and confirmation.builds:
                alerts.append(interleaved_alert(change, confirmation, fresh, noise_floor))
                continue
            fresh = [process for process in fresh if not relative or process.canary_sha256 == newest]
            alerts.append(
                alert(
                    change,
                    values[bounds[i] : start],
                    confirmation,
                    [level(process, relative) for process in fresh],
                    noise_floor,
                    [process.occasion for process in before],
                    moved,
                )
            )
    points = [
        SeriesPoint(
            process.run_id,
            process.median_step_s,
            {name: process.environment.get(name) for name in (VERSION, *SOFTWARE)},
            process.canary_s,
        )
        for process in group
    ]
    config, machine = series_config(group[0].config), series_machine(group[0].environment)
    return Series(config, machine, points, changes, alerts, relative)


def level(process: Process, relative: bool) -> float:
    """Value of a series: the median step, or its ratio to the canary's time."""
    return process.median_step_s / (process.canary_s or 1.0) if relative else process.median_step_s


def _canary_moved(before: Sequence[Process], after: Sequence[Process], noise_floor: float) -> bool:
    """Whether the canary's own median changed too: by more than the noise floor, and by half of the level's change or
    more. Then the change may be the canary's, or that of a machine which the canary follows only in part."""

    def change(relative: bool) -> float:
        left, right = (median([level(process, relative) for process in side]) for side in (before, after))
        return math.log(right / left)

    of_canary = abs(change(relative=False) - change(relative=True))
    return of_canary >= max(math.log(1 + noise_floor), abs(change(relative=True)) / 2)


def _change(before: Sequence[Process], after: Sequence[Process], relative: bool, moved: bool) -> Change:
    """moved: the runs have a canary, and it changed too."""
    left, right = ([level(process, relative) for process in side] for side in (before, after))
    ratio = unpaired(right, left)
    of_left, of_right = (
        list(by_occasion([process.occasion for process in side], values).values())
        for side, values in ((before, left), (after, right))
    )
    bounds = unpaired(of_right, of_left, "occasions") if of_left and of_right else None
    surely = before[max(0, len(before) - 1 - MOVES)], after[min(MOVES, len(after) - 1)]  # even if the change moves
    hashes = [str(process.environment.get("core_hash")) for process in surely]
    named = SOFTWARE if hashes[0] == hashes[1] else (VERSION, *SOFTWARE)
    differs = differing([process.environment for process in surely], named)
    only_sources = not differing([process.environment for process in surely], LIBRARIES) and hashes[0] != hashes[1]
    independent = not diagnose(of_left).broken and not diagnose(of_right).broken
    cause: Cause = "unproven" if differs else "environment"
    if relative and not moved:
        cause = "software" if differs else "unexplained"
    low, high = (bounds.low, bounds.high) if bounds and independent else (None, None)
    return Change(
        last_before=before[-1].run_id,
        first_after=after[0].run_id,
        before_s=median([process.median_step_s for process in before]),
        after_s=median([process.median_step_s for process in after]),
        ratio=ratio.middle,
        ratio_low=None if low is None else min(low, ratio.middle),
        ratio_high=None if high is None else max(high, ratio.middle),
        differs=differs,
        cause=cause,
        builds=hashes if only_sources else [],
    )


def interleaved_alert(
    change: Change, confirmation: Confirmation, fresh: Sequence[Process], noise_floor: float = NOISE_FLOOR
) -> Alert:
    """Decision from fresh runs of both builds, paired in blocks on one machine, so that a difference is due to the
    sources."""
    identity = confirmation.experiment_id
    if confirmation.active:
        return Alert(change, "confirming", identity, f"{len(fresh)} fresh runs of both builds so far")
    old, new = ([p for p in fresh if p.environment.get("core_hash") == build] for build in confirmation.builds)
    if not old or not new:
        text = "only one of the two builds ran on this machine; queue fresh runs"
        return Alert(change, "suspected", identity, text)
    found = compare(old, new, noise_floor)
    text = f"old and new build, interleaved: {found.reason}"
    if found.verdict == "slower":
        return Alert(replace(change, cause="software"), "confirmed", identity, text)
    if found.verdict in ("same", "faster"):
        text += "; the old build is now as slow, so the environment has changed"
        return Alert(replace(change, cause="environment"), "dismissed", identity, text)
    return Alert(change, "suspected", identity, f"undecided: {text}")


def alert(
    change: Change,
    before: Sequence[float],
    confirmation: Confirmation | None,
    fresh: Sequence[float] = (),
    noise_floor: float = NOISE_FLOOR,
    occasions: Sequence[Hashable] = (),
    canary_moved: bool = False,
) -> Alert:
    """suspected -> confirming -> confirmed or dismissed: fresh runs against those before the change.

    before, fresh: values of the series, divided by the canary's time if there is one. occasions: of `before`. If the
    software is the same and there is no canary, slower fresh runs show only that the environment changed. If the canary
    changed at the same time (canary_moved), only both builds in turn can confirm.
    """
    if confirmation is None:
        said = "; the software is the same, so the environment has changed" if change.cause == "environment" else ""
        return Alert(change, "suspected", None, f"found in the history alone; fresh runs must confirm it{said}")
    identity = confirmation.experiment_id
    if confirmation.active:
        return Alert(change, "confirming", identity, f"{len(fresh)} fresh runs so far")
    if len(fresh) < MIN_SEGMENT:
        text = f"only {counted(len(fresh), 'fresh run')} on this machine; queue more"
        return Alert(change, "suspected", identity, text)
    decision = decide(before, fresh, paired=False, noise_floor=noise_floor)
    text = f"{counted(len(fresh), 'fresh run')} against {len(before)} before the change: {decision.reason}"
    slower, faster = _prediction(before, occasions)
    if decision.verdict in ("same", "faster"):
        if faster is not None and math.log(median(fresh)) + faster >= math.log(median(before) * change.ratio):
            text += "; but occasions before the change differed by as much as it"
            return Alert(change, "suspected", identity, f"undecided: {text}")
        if faster is None:
            text += "; another occasion's own speed is not known, and may hide a slowdown"
        return Alert(change, "dismissed", identity, text)
    if decision.verdict != "slower":
        return Alert(change, "suspected", identity, f"undecided: {text}")
    if change.cause == "environment":
        canary = "the canary changed too" if canary_moved else "the runs have no canary"
        text = f"environment: the software is the same, and {canary}; {text}"
        return Alert(change, "suspected", identity, text)
    if canary_moved:
        text = f"undecided: the canary changed with the software; only both builds in turn can tell; {text}"
        return Alert(change, "suspected", identity, text)
    if slower is not None and math.log(median(fresh)) <= slower:
        return Alert(change, "suspected", identity, f"{text}; but occasions before the change differed as much")
    if change.cause == "unproven":
        text += "; without a canary, the machine may have changed with the software"
    return Alert(change, "confirmed", identity, text)


def _prediction(before: Sequence[float], occasions: Sequence[Hashable]) -> tuple[float | None, float | None]:
    """Of another occasion like those before: the upper end of Student's prediction interval of its logarithm, and how
    far that is above their mean. None for too few occasions to estimate how much they differ."""
    from scipy import special

    logs = np.log(list(by_occasion(occasions, before).values()))
    if len(logs) < FEWEST_OCCASIONS:
        return None, None
    reach = float(special.stdtrit(len(logs) - 1, CONFIDENCE)) * float(logs.std(ddof=1)) * math.sqrt(1 + 1 / len(logs))
    return float(logs.mean()) + reach, reach
