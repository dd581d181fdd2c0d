"""Comparison along one axis of an experiment, with everything else equal.

Comparisons, and pooled ratios over these places only, are one family: their p-values are adjusted together (Holm), so
that at most one of 20 sweeps without any difference reports one there, if pairs are independent. Pooled ratios over
places like these and the fastest variant are families of their own (docs/decisions/0021-one-family.md). The declared
question is judged alone and is not in the family (docs/decisions/0029-the-question.md). Comparisons with the faster of
several orders of loops are a family of their own, too (docs/decisions/0037-the-faster-loops.md).
"""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from gpt2core.spec.result import median
from gpt2core.spec.roles import PROBLEM
from taskloom.analysis import sentences
from taskloom.analysis.against_faster import ORDER, against_faster
from taskloom.analysis.compared import Comparison
from taskloom.analysis.comparison import (
    NOISE_FLOOR,
    compare,
    matched_pairs,
    rejudged,
    verdict_of,
)
from taskloom.analysis.estimators import FEWEST, Test, logarithms
from taskloom.analysis.family import Family, decidable
from taskloom.analysis.meaning import says
from taskloom.analysis.pooling import FEWEST_IN_STRATUM, pool
from taskloom.analysis.pooling import Pooled as Pool
from taskloom.analysis.processes import Process, distinct
from taskloom.analysis.rank_tests import Floats
from taskloom.analysis.reasons import Reason, Verdict
from taskloom.analysis.rows import AgainstFaster, Pooled, PrimaryRow, SweepRow
from taskloom.analysis.sentences import reason
from taskloom.analysis.statistics import holm
from taskloom.analysis.validity import doubtful
from taskloom.analysis.variants import Group, Sides, Variant, by_variant, opposed, opposed_as, variant_of, varying
from taskloom.analysis.verdict import Headline, headline

# Threads, first value, other value, order of the loops if there are several, log ratios of each place, their pool.
PooledPlaces = tuple[int, Any, Any, str | None, list[Floats], Pool]


@dataclass(frozen=True)
class Sweep:
    """Comparisons along one axis, of which `comparisons` have a test, and the variant with the smallest median, which
    is proven faster than `beats_share` of the others that compute the same; null if there are too few processes for so
    many comparisons, or no such others. A variant that computes what no other does is not the best.
    family: all statements whose p-values are adjusted together. sequential: decided by estimates that hold at any
    time. primary: the declared question, which is not in the family; primary_missing: it is declared, but no run of
    one of its sides has succeeded. disturbed_runs: those of `runs` with flagged steps or foreign load. verdict: the
    answer in one sentence. against_faster: tasks against the faster of several orders of loops, a family of its own."""

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
    primary: PrimaryRow | None = None
    primary_missing: bool = False
    runs: int = 0
    disturbed_runs: int = 0
    verdict: Headline = field(default_factory=lambda: Headline("No run has succeeded.", "none"))
    against_faster: list[AgainstFaster] = field(
        default_factory=list, metadata=says("tasks against the faster of several orders of loops; empty: one order")
    )


def axes_of(processes: Sequence[Process]) -> list[str]:
    """Settings that vary over the experiment: the scheduler first, those that change the computation last."""
    return varying([facts.variant for facts in distinct(processes)])


def sweep(
    processes: Sequence[Process],
    axis: str | None = None,
    noise_floor: float = NOISE_FLOOR,
    primary: Sides | None = None,
) -> Sweep:
    """Compare along an axis, by default the first of `axes_of`. No rows if it does not vary. primary: the variants of
    the experiment's question."""
    groups, axes = by_variant(processes), axes_of(processes)
    chosen = axis or next(iter(axes), None)
    pairs = _pairs(groups, str(chosen)) if chosen in axes else []
    compared = [compare(a, b, noise_floor) for _, a, b in pairs]
    own = [opposed_as(primary, a[0].variant, b[0].variant) for _, a, b in pairs]
    rest = [found for found, alone in zip(compared, own, strict=True) if not alone]
    tested = sum(found.p_value is not None for found in rest)
    pooled = _pooled(str(chosen), list(itertools.compress(pairs, (found.ratio is not None for found in compared))))
    of_these, of_others = (
        [(of.low, of.n, of.test, of.p_value) for *_, pool in pooled if ((of := pool.estimate).unit == "places") is like]
        for like in (False, True)
    )
    of_rows, of_these_places = _adjusted([(of.ratio_low, of.n, of.test, of.p_value) for of in rest], of_these)
    (of_other_places,) = _adjusted(of_others)
    together = Family(sum(p is not None for p in of_rows), sum(p is not None for p in of_these_places))
    rows, adjusted = [], iter(of_rows)
    for (at, a, b), found, alone in zip(pairs, compared, own, strict=True):
        first, second = a[0].variant[str(chosen)], b[0].variant[str(chosen)]
        if alone:
            columns = _judged_alone(found)
        else:
            p_adjusted = next(adjusted)
            found = rejudged(found, p_adjusted, Family(tested, together.pooled) if p_adjusted is None else together)
            columns = _columns(found, p_adjusted)
        row = SweepRow(at=at, a=first, b=second, primary=alone, **columns)
        several = f" (one of {tested} comparisons)" if tested > 1 and not alone else ""
        rows.append(replace(row, sentence=_sentence(row, chosen, several)))
    medians_s = [median([process.median_step_s for process in group]) for group in groups]
    order = sorted(range(len(groups)), key=medians_s.__getitem__)
    best, beats_share = _fastest([groups[i] for i in order], noise_floor)
    question = None if primary is None else _question(groups, primary, noise_floor)
    made = Sweep(
        axis=chosen,
        comparisons=tested,
        noise_floor=noise_floor,
        rows=rows,
        pooled=_judged(str(chosen), pooled, iter(of_these_places), iter(of_other_places), noise_floor),
        best=None if best is None else variant_of(best),
        best_step_s=None if best is None else median([process.median_step_s for process in best]),
        beats_share=beats_share,
        sequential=any(process.stop_rule for process in processes),
        family=together,
        primary=question,
        primary_missing=primary is not None and question is None,
        runs=len(processes),
        disturbed_runs=sum(map(doubtful, processes)),
        against_faster=against_faster(groups, chosen if chosen in axes else None, noise_floor),
    )
    return replace(made, verdict=headline(made))


def _question(groups: Sequence[Group], primary: Sides, noise_floor: float) -> PrimaryRow | None:
    """The declared comparison; None if one of its variants has no process."""
    sides = [next((group for group in groups if group[0].variant == variant), None) for variant in primary]
    a, b = sides
    if a is None or b is None:
        return None
    of_a, of_b = a[0].variant, b[0].variant
    names = varying([of_a, of_b])
    at = {name: value for name, value in of_a.items() if name not in names}
    axis = names[0] if len(names) == 1 else None
    first, second = (variant[axis] if axis else {n: variant[n] for n in names} for variant in (of_a, of_b))
    columns = _judged_alone(compare(a, b, noise_floor))
    row = PrimaryRow(at=at, a=first, b=second, primary=True, axis=axis, **columns)
    return replace(row, sentence=_sentence(row, axis))


def _sentence(row: SweepRow, axis: str | None, several: str = "") -> str:
    ratio, where = sentences.figures(row.ratio, row.ratio_low, row.ratio_high), sentences.of_settings(row.at)
    return sentences.of_sides(row.verdict, axis, row.a, row.b, ratio, row.why, where=where, several=several)


def _judged_alone(found: Comparison) -> dict[str, Any]:
    """A comparison's columns, judged by its own p-value."""
    able = found.p_value is not None and decidable(found.ratio_low, found.n, found.test, 1)
    return _columns(found, found.p_value if able else None)


def _columns(found: Comparison, p_adjusted: float | None) -> dict[str, Any]:
    """The columns of a row that a comparison fills."""
    names = {item.name for item in fields(SweepRow)} & {item.name for item in fields(Comparison)} - {"a", "b"}
    return {name: getattr(found, name) for name in names} | {"p_adjusted": p_adjusted}


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


def planned(
    variants: Sequence[Mapping[str, Any]], sequential: bool = False, primary: Sides | None = None
) -> Family:
    """The family of a sweep along the first axis if all runs succeed, without the question (`primary`). sequential: a
    stopping rule decides the number of runs; then even six places are no sample of others."""
    axis = next(iter(varying(variants)), "")
    if axis in PROBLEM:  # its values compute different things
        return Family(0)
    pairs = opposed(variants, axis) if axis else []
    places = Counter(
        json.dumps([a.get("threads"), a.get(axis), b.get(axis), _order(a, axis)])
        for a, b in ((variants[i], variants[j]) for i, j in pairs)
    )
    pooled = 0 if axis == "threads" else sum(n > 1 and (sequential or n < FEWEST) for n in places.values())
    alone = sum(opposed_as(primary, variants[i], variants[j]) for i, j in pairs)
    return Family(len(pairs) - alone, pooled)


def _order(variant: Mapping[str, Any], axis: str) -> Any:
    """The order of the loops of a comparison of schedulers, if the experiment has several. Places differ in it as
    alternatives of which one is the best, so no ratio is pooled over them."""
    return variant.get(ORDER) if axis == "scheduler" else None


def planned_by(processes: Sequence[Process], primary: Sides | None = None) -> Family:
    """The family of an experiment's sweep along the first axis."""
    variants = [group[0].variant for group in by_variant(processes)]
    return planned(variants, any(process.stop_rule for process in processes), primary)


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
) -> list[PooledPlaces]:
    """Places with the same number of threads, pooled; none if there is only one place."""
    families: dict[str, tuple[list[Mapping[str, Any]], list[Floats]]] = {}
    sequential = any(process.stop_rule for _, a, _ in pairs for process in a)
    for _, a, b in pairs:
        matched = matched_pairs(a, b)
        if matched:
            logs = logarithms([p.median_step_s for p, _ in matched]) - logarithms([p.median_step_s for _, p in matched])
            of_a, of_b = a[0].variant, b[0].variant
            key = json.dumps([a[0].config["threads"], of_a[axis], of_b[axis], _order(of_a, axis)])
            variants, places = families.setdefault(key, ([], []))
            variants.append(of_a)
            places.append(logs)
    found = []
    for key, (variants, places) in families.items():
        if len(places) > 1 and axis != "threads":
            pooled = pool(places, "places", sequential)
            scope = sentences.of_places(pooled.scope, varying(variants))
            found.append((*json.loads(key), places, replace(pooled, scope=scope)))
    return found


def _judged(
    axis: str,
    pooled: Sequence[PooledPlaces],
    of_these: Iterator[float | None],
    of_others: Iterator[float | None],
    noise_floor: float,
) -> list[Pooled]:
    """Verdicts of the pooled ratios by their adjusted p-values."""
    rows = []
    for threads, first, second, order, places, found in pooled:
        of = found.estimate
        family = Family(0, sum(other.estimate.unit == of.unit for *_, other in pooled))
        p_adjusted, pairs, text = next(of_others if of.unit == "places" else of_these), sum(map(len, places)), None
        outcome = verdict_of(of.value, of.low, of.high, 1.0 if p_adjusted is None else p_adjusted, noise_floor)
        alone = verdict_of(of.value, of.low, of.high, of.p_value, noise_floor)
        why = _why_pooled(found, pairs, family, p_adjusted, outcome, alone)
        if why.kind == "too-few-in-family":
            text = f"too few {of.unit}: one of {family} needs at least {why.needed}, whatever the times"
        verdict = "undecided" if found.broken else outcome
        ratio = sentences.figures(of.value, of.low, of.high)
        several = f" ({pairs} pairs of runs, {found.scope})"
        where = sentences.of_settings({**({} if order is None else {ORDER: order}), "threads": threads})
        rows.append(Pooled(
            threads, first, second, len(places), pairs, of.value, of.low, of.high, p_adjusted, verdict, found.scope,
            found.between, list(found.broken), text if verdict == "undecided" else None, of.unit, why,
            sentences.of_sides(verdict, axis, first, second, ratio, why, where=where, several=several),
            order,
        ))  # fmt: skip
    return rows


def _why_pooled(
    found: Pool, pairs: int, family: Family, p_adjusted: float | None, outcome: Verdict, alone: Verdict
) -> Reason:
    """The reason of a pooled verdict. outcome, alone: by the adjusted p-value, and by its own."""
    of = found.estimate
    if of.low is None:
        if pairs < FEWEST:
            return reason("too-few", needed=FEWEST, unit="pairs")
        return reason("too-few-at-a-place", needed=FEWEST_IN_STRATUM, unit="pairs")
    if found.broken:
        return reason("dependent", findings=found.broken)
    if outcome != "undecided":
        return reason("equivalent" if outcome == "same" else "significant")
    if p_adjusted is None:
        return reason("too-few-in-family", needed=family.needed(of.test), of=family, unit=of.unit)
    return reason("wide") if alone == "undecided" else reason("adjusted", of=family)
