"""One axis of an experiment, everything else equal: is its other value faster, wherever it stands in the sweep?

Several comparisons are a family: their p-values are corrected (Holm), so that a sweep without any difference calls one
in at most one of 20 sweeps.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from taskloom.analysis.comparison import NOISE_FLOOR, Verdict, can_tell, compare, rejudged, verdict_of
from taskloom.analysis.processes import Process
from taskloom.analysis.statistics import holm, median_of_pair_ratios, paired_p_value, step_interval
from taskloom.analysis.variants import Group, Variant, by_variant, variant_of


@dataclass(frozen=True)
class SweepRow:
    """`b` against `a`, the axis's first value, with everything else as in `at`. verdict: by the corrected p-value."""

    at: dict[str, Any]
    a: Any
    b: Any
    verdict: Verdict
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    p_value: float | None
    p_adjusted: float | None
    superiority: float | None
    paired: bool
    differs: list[str]
    marks: list[str]
    reason: str


@dataclass(frozen=True)
class Pooled:
    """`b` against `a` over all places with equally many threads: each pair of runs of one block counts once.

    ratio: the median of the pairs' ratios, with its nonparametric interval; p_value: Wilcoxon signed rank, corrected.
    """

    threads: int
    a: Any
    b: Any
    places: int
    pairs: int
    ratio: float
    ratio_low: float | None
    ratio_high: float | None
    p_adjusted: float
    verdict: Verdict


@dataclass(frozen=True)
class Sweep:
    """Along one axis, and which variant is fastest: it beats `beats_share` of the others beyond doubt; null where there
    are too few processes for so many comparisons."""

    axis: str | None
    comparisons: int
    noise_floor: float
    rows: list[SweepRow]
    pooled: list[Pooled]
    best: Variant | None
    best_step_s: float | None
    beats_share: float | None


def axes_of(processes: Sequence[Process]) -> list[str]:
    """Settings that vary over the experiment, the scheduler first."""
    names = list(dict.fromkeys(name for process in processes for name in process.variant))
    varying = [n for n in names if len({json.dumps(p.variant.get(n), sort_keys=True) for p in processes}) > 1]
    return sorted(varying, key=lambda name: name != "scheduler")


def sweep(processes: Sequence[Process], axis: str | None = None, noise_floor: float = NOISE_FLOOR) -> Sweep:
    """Compare along an axis; without one along the scheduler, or the first that varies. No rows where it does not."""
    groups, axes = by_variant(processes), axes_of(processes)
    chosen = axis or next(iter(axes), None)
    pairs = _pairs(groups, chosen) if chosen in axes else []
    compared = [compare(a, b, noise_floor) for _, a, b in pairs]
    corrected = holm([found.p_value for found in compared if found.p_value is not None])
    following = iter(corrected)
    rows = []
    for (at, a, b), found in zip(pairs, compared, strict=True):
        p_adjusted = None if found.p_value is None else next(following)
        found = found if p_adjusted is None else rejudged(found, p_adjusted, len(corrected))
        rows.append(SweepRow(
            at, a[0].variant[str(chosen)], b[0].variant[str(chosen)], found.verdict, found.ratio, found.ratio_low,
            found.ratio_high, found.p_value, p_adjusted, found.superiority, found.paired, found.differs,
            found.marks, found.reason,
        ))  # fmt: skip
    best = min(groups, key=lambda group: step_interval(group).median, default=None)
    return Sweep(
        axis=chosen,
        comparisons=len(corrected),
        noise_floor=noise_floor,
        rows=rows,
        pooled=_pooled(
            str(chosen), [pair for pair, row in zip(pairs, rows, strict=True) if row.ratio is not None], noise_floor
        ),
        best=None if best is None else variant_of(best),
        best_step_s=None if best is None else step_interval(best).median,
        beats_share=None if best is None or len(groups) == 1 else _beaten(best, groups, noise_floor),
    )


def _pairs(groups: Sequence[Group], axis: str | None) -> list[tuple[dict[str, Any], Group, Group]]:
    """(the other settings, first value's variant, another value's variant)."""
    by_rest: dict[str, list[Group]] = {}
    for group in groups:
        rest = {name: value for name, value in group[0].variant.items() if name != axis}
        by_rest.setdefault(json.dumps(rest, sort_keys=True), []).append(group)
    return [(json.loads(rest), same[0], other) for rest, same in by_rest.items() for other in same[1:]]


def _beaten(best: Group, groups: Sequence[Group], noise_floor: float) -> float | None:
    """The share of the other variants that are slower than the best, corrected for asking of each; None where there are
    too few processes to tell of any."""
    found = [compare(best, other, noise_floor) for other in groups if other is not best]
    if not any(can_tell(each, len(found)) for each in found):
        return None
    adjusted = holm([1.0 if each.p_value is None else each.p_value for each in found])
    judged = [rejudged(each, p, len(found)) for each, p in zip(found, adjusted, strict=True)]
    return sum(each.verdict == "slower" for each in judged) / len(found)


def _pooled(axis: str, pairs: Sequence[tuple[dict[str, Any], Group, Group]], noise_floor: float) -> list[Pooled]:
    """Places of equally many threads together; none where there is but one place."""
    families: dict[str, list[tuple[Group, Group]]] = {}
    for _, a, b in pairs:
        key = json.dumps([a[0].config["threads"], a[0].variant[axis], b[0].variant[axis]])
        families.setdefault(key, []).append((a, b))
    found = []
    for key, places in families.items():
        if len(places) == 1 or axis == "threads":
            continue
        matched = [(left, right) for a, b in places for left, right in _matched(a, b)]
        if not matched:
            continue
        left_s, right_s = [a.median_step_s for a, _ in matched], [b.median_step_s for _, b in matched]
        ratio, low, high = median_of_pair_ratios(left_s, right_s)
        threads, first, second = json.loads(key)
        p_value = paired_p_value(left_s, right_s)
        found.append(Pooled(threads, first, second, len(places), len(matched), ratio, low, high, p_value, "undecided"))
    adjusted = holm([each.p_adjusted for each in found])
    return [
        replace(each, p_adjusted=p, verdict=verdict_of(each.ratio, each.ratio_low, each.ratio_high, p, noise_floor))
        for each, p in zip(found, adjusted, strict=True)
    ]


def _matched(a: Group, b: Group) -> list[tuple[Process, Process]]:
    by_pair = {process.pair: process for process in b if process.pair is not None}
    return [(process, by_pair[process.pair]) for process in a if process.pair in by_pair]
