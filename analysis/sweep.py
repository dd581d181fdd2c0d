"""Comparison along one axis of an experiment, with everything else equal.

Comparisons, and pooled ratios over these places only, are one family: their p-values are adjusted together (Holm), so
that at most one of 20 sweeps without any difference reports one there, if pairs are independent. Pooled ratios over
places like these and the fastest variant are families of their own (docs/decisions/0021-one-family.md).
"""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpt2core.spec.result import median
from taskloom.analysis.comparison import (
    NOISE_FLOOR,
    Comparison,
    InstructionsRatio,
    Verdict,
    compare,
    matched_pairs,
    rejudged,
    verdict_of,
)
from taskloom.analysis.estimators import FEWEST, Test, logarithms
from taskloom.analysis.family import Family, decidable
from taskloom.analysis.pooling import Pooled as Pool
from taskloom.analysis.pooling import pool
from taskloom.analysis.processes import Process, distinct
from taskloom.analysis.rank_tests import Floats
from taskloom.analysis.statistics import holm
from taskloom.analysis.variants import Group, Variant, by_variant, opposed, variant_of, varying


@dataclass(frozen=True)
class SweepRow:
    """`b` against `a`, the axis's first value, with everything else as in `at`. verdict: by p_adjusted, which is null
    if there are too few processes for any verdict."""

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
    ratio_middle: float | None
    n: int
    unit: str
    e_value: float | None
    diagnosis: list[str]
    instructions: InstructionsRatio | None = None


@dataclass(frozen=True)
class Pooled:
    """`b` against `a` over all places with the same number of threads: each pair of runs of a block counts once.

    scope: the population of ratio and interval: places like these, if they are enough for a sample, or only these.
    between_places: standard deviation of the places' log ratios beyond what their pairs explain. diagnosis: findings
    within places under which the interval does not hold, so that the verdict is undecided. p_adjusted: null if there
    are too few pairs for any verdict. reason: says how many pairs are missing; null if none are.
    """

    threads: int
    a: Any
    b: Any
    places: int
    pairs: int
    ratio: float
    ratio_low: float | None
    ratio_high: float | None
    p_adjusted: float | None
    verdict: Verdict
    scope: str
    between_places: float | None
    diagnosis: list[str] = field(default_factory=list)
    reason: str | None = None


@dataclass(frozen=True)
class Sweep:
    """Comparisons along one axis, of which `comparisons` have a test, and the variant with the smallest median, which
    is proven faster than `beats_share` of the others that compute the same; null if there are too few processes for so
    many comparisons, or no such others. A variant that computes what no other does is not the best.
    family: all statements whose p-values are adjusted together. sequential: decided by estimates that hold at any
    time."""

    axis: str | None
    comparisons: int
    noise_floor: float
    rows: list[SweepRow]
    pooled: list[Pooled]
    best: Variant | None
    best_step_s: float | None
    beats_share: float | None
    sequential: bool = False
    family: Family = field(default_factory=lambda: Family(0))


def axes_of(processes: Sequence[Process]) -> list[str]:
    """Settings that vary over the experiment, the scheduler first."""
    return varying([facts.variant for facts in distinct(processes)])


def sweep(processes: Sequence[Process], axis: str | None = None, noise_floor: float = NOISE_FLOOR) -> Sweep:
    """Compare along an axis, by default the scheduler or else the first axis that varies. No rows if it does not
    vary."""
    groups, axes = by_variant(processes), axes_of(processes)
    chosen = axis or next(iter(axes), None)
    pairs = _pairs(groups, str(chosen)) if chosen in axes else []
    compared = [compare(a, b, noise_floor) for _, a, b in pairs]
    tested = sum(found.p_value is not None for found in compared)
    pooled = _pooled(str(chosen), list(itertools.compress(pairs, (found.ratio is not None for found in compared))))
    of_these, of_others = (
        [(of.low, of.n, of.test, of.p_value) for *_, pool in pooled if ((of := pool.estimate).unit == "places") is like]
        for like in (False, True)
    )
    of_rows, of_these_places = _adjusted([(of.ratio_low, of.n, of.test, of.p_value) for of in compared], of_these)
    (of_other_places,) = _adjusted(of_others)
    together = Family(sum(p is not None for p in of_rows), sum(p is not None for p in of_these_places))
    rows = []
    for (at, a, b), found, p_adjusted in zip(pairs, compared, of_rows, strict=True):
        found = rejudged(found, p_adjusted, Family(tested, together.pooled) if p_adjusted is None else together)
        rows.append(SweepRow(
            at, a[0].variant[str(chosen)], b[0].variant[str(chosen)], found.verdict, found.ratio, found.ratio_low,
            found.ratio_high, found.p_value, p_adjusted, found.superiority, found.paired, found.differs,
            found.marks, found.reason, found.ratio_middle, found.n, found.unit, found.e_value, found.diagnosis,
            found.instructions,
        ))  # fmt: skip
    medians_s = [median([process.median_step_s for process in group]) for group in groups]
    order = sorted(range(len(groups)), key=medians_s.__getitem__)
    best, beats_share = _fastest([groups[i] for i in order], noise_floor)
    return Sweep(
        axis=chosen,
        comparisons=tested,
        noise_floor=noise_floor,
        rows=rows,
        pooled=_judged(pooled, iter(of_these_places), iter(of_other_places), noise_floor),
        best=None if best is None else variant_of(best),
        best_step_s=None if best is None else median([process.median_step_s for process in best]),
        beats_share=beats_share,
        sequential=any(process.stop_rule for process in processes),
        family=together,
    )


def _adjusted(*kinds: Sequence[tuple[float | None, int, Test, float | None]]) -> list[list[float | None]]:
    """p-values of (lower bound, n, test, p-value), adjusted over all kinds together (Holm). Null for a statement that
    no times could decide as one of its kind: it cannot err, so it is not in the family."""
    able = []
    for kind in kinds:
        tested = sum(low is not None and p_value is not None for low, _, _, p_value in kind)
        able.append([decidable(low, n, test, tested) for low, n, test, _ in kind])
    chosen = [itertools.compress(kind, decided) for kind, decided in zip(kinds, able, strict=True)]
    adjusted = iter(holm([1.0 if p is None else p for *_, p in itertools.chain(*chosen)]))
    return [[next(adjusted) if decided else None for decided in of_kind] for of_kind in able]


def planned(variants: Sequence[Mapping[str, Any]], sequential: bool = False) -> Family:
    """The family of a sweep along the first axis if all runs succeed. sequential: a stopping rule decides the number of
    runs; then even six places are no sample of others."""
    axis = next(iter(varying(variants)), "")
    pairs = opposed(variants, axis) if axis else []
    places = Counter(
        json.dumps([variants[i].get("threads"), variants[i].get(axis), variants[j].get(axis)]) for i, j in pairs
    )
    pooled = 0 if axis == "threads" else sum(n > 1 and (sequential or n < FEWEST) for n in places.values())
    return Family(len(pairs), pooled)


def planned_by(processes: Sequence[Process]) -> Family:
    """The family of an experiment's sweep along the first axis."""
    variants = [group[0].variant for group in by_variant(processes)]
    return planned(variants, any(process.stop_rule for process in processes))


def _pairs(groups: Sequence[Group], axis: str) -> list[tuple[dict[str, Any], Group, Group]]:
    """(the other settings, first value's variant, another value's variant)."""
    rest = [{name: value for name, value in group[0].variant.items() if name != axis} for group in groups]
    return [(rest[i], groups[i], groups[j]) for i, j in opposed([group[0].variant for group in groups], axis)]


def _fastest(groups: Sequence[Group], noise_floor: float) -> tuple[Group | None, float | None]:
    """The fastest variant that computes the same as another one, and the share of such variants that it beats. If no
    two do, the fastest variant. groups: the fastest first."""
    for best in groups:
        found = [compare(best, other, noise_floor) for other in groups if other is not best]
        if comparable := [each for each in found if each.verdict != "refused"]:
            return best, _beaten(comparable, groups)
    return next(iter(groups), None), None


def _beaten(found: Sequence[Comparison], groups: Sequence[Group]) -> float | None:
    """The share of comparisons of the best variant that prove the other one slower; None if there are too few
    processes. The best one was chosen by the same times, so p-values are adjusted for all pairs of variants."""
    every_pair = math.comb(len(groups), 2)
    if not any(decidable(each.ratio_low, each.n, each.test, every_pair) for each in found):
        return None
    adjusted = [1.0 if each.p_value is None else min(1.0, every_pair * each.p_value) for each in found]
    judged = [rejudged(each, p, Family(every_pair)) for each, p in zip(found, adjusted, strict=True)]
    return sum(each.verdict == "slower" for each in judged) / len(found)


def _pooled(
    axis: str, pairs: Sequence[tuple[dict[str, Any], Group, Group]]
) -> list[tuple[int, Any, Any, list[Floats], Pool]]:
    """Places with the same number of threads, pooled: (threads, first value, other value, log ratios of each place,
    their pool); none if there is only one place."""
    families: dict[str, list[Floats]] = {}
    sequential = any(process.stop_rule for _, a, _ in pairs for process in a)
    for _, a, b in pairs:
        matched = matched_pairs(a, b)
        if matched:
            logs = logarithms([p.median_step_s for p, _ in matched]) - logarithms([p.median_step_s for _, p in matched])
            key = json.dumps([a[0].config["threads"], a[0].variant[axis], b[0].variant[axis]])
            families.setdefault(key, []).append(logs)
    return [
        (*json.loads(key), places, pool(places, "places", sequential))
        for key, places in families.items()
        if len(places) > 1 and axis != "threads"
    ]


def _judged(
    pooled: Sequence[tuple[int, Any, Any, list[Floats], Pool]],
    of_these: Iterator[float | None],
    of_others: Iterator[float | None],
    noise_floor: float,
) -> list[Pooled]:
    """Verdicts of the pooled ratios by their adjusted p-values."""
    rows = []
    for threads, first, second, places, found in pooled:
        of, alike = found.estimate, sum(other.estimate.unit == found.estimate.unit for *_, other in pooled)
        p_adjusted, reason = next(of_others if of.unit == "places" else of_these), None
        if p_adjusted is None and of.low is not None:
            reason = f"too few {of.unit}: {Family(0, alike).shortage(of.test)}, whatever the times"
        verdict = verdict_of(of.value, of.low, of.high, 1.0 if p_adjusted is None else p_adjusted, noise_floor)
        rows.append(Pooled(
            threads, first, second, len(places), sum(map(len, places)), of.value, of.low, of.high, p_adjusted,
            "undecided" if found.broken else verdict, found.scope, found.between, list(found.broken),
            reason if verdict == "undecided" else None,
        ))  # fmt: skip
    return rows
