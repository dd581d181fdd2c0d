"""Tasks against the faster one of several orders of the same loops, such as fork-join by layers and by diagonals.

Whoever loops takes the faster order, and only these times say which one that is. The ratio is the smallest of the
orders' ratios. Tasks are faster than the faster loops if every order's comparison says so: an intersection-union test
(Berger 1982), which needs no correction for the choice. That they are slower is said if one order's comparison says so
with the correction for their number (Bonferroni). Source: docs/decisions/0037-the-faster-loops.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpt2core.spec.schedulers import facts
from taskloom.analysis import sentences
from taskloom.analysis.comparison import compare, matched_pairs, verdict_of, weigh
from taskloom.analysis.estimators import TAIL, Estimate, logarithms
from taskloom.analysis.family import Family, decidable
from taskloom.analysis.pooling import pool
from taskloom.analysis.reasons import Reason
from taskloom.analysis.rows import AgainstFaster, OfOrder
from taskloom.analysis.sentences import reason
from taskloom.analysis.statistics import holm
from taskloom.analysis.variants import Group, varying

ORDER = "op_order"


@dataclass(frozen=True)
class Rivals:
    """Tasks (`b`) and the orders of the loops of one scheduler (`a`) with equally many threads. pairs: by order, the
    variants of both, in the same order of places. at: the settings of the only place; of several, none."""

    threads: int | None
    a: str
    b: str
    pairs: dict[str, list[tuple[int, int]]]
    at: dict[str, Any]


def rivals(variants: Sequence[Mapping[str, Any]], axis: str | None) -> list[Rivals]:
    """What is to be compared with the faster loops: each scheduler of tasks with the first scheduler, where that one
    loops in several orders. Tasks are the same graph in every order, so one order of theirs is enough."""
    if axis != "scheduler":
        return []
    first = str(variants[0]["scheduler"])
    places: dict[str, dict[str, dict[str, int]]] = {}
    for place, variant in enumerate(variants):
        rest = json.dumps({n: v for n, v in variant.items() if n not in (axis, ORDER)}, sort_keys=True)
        places.setdefault(rest, {}).setdefault(str(variant["scheduler"]), {})[str(variant.get(ORDER))] = place
    found: dict[tuple[int | None, str], list[tuple[dict[str, Any], dict[str, tuple[int, int]]]]] = {}
    for rest, schedulers in places.items():
        loops = schedulers.get(first, {}) if _order_of(first) == "ops" else {}
        for name, tasks in schedulers.items():
            if len(loops) > 1 and _order_of(name) == "graph":
                pairs = {order: (at, tasks.get(order, min(tasks.values()))) for order, at in loops.items()}
                found.setdefault((json.loads(rest).get("threads"), name), []).append((json.loads(rest), pairs))
    made = []
    for (threads, name), listed in found.items():
        orders = [order for order in listed[0][1] if all(order in pairs for _, pairs in listed)]
        if len(orders) > 1:
            by_order = {order: [pairs[order] for _, pairs in listed] for order in orders}
            made.append(Rivals(threads, first, name, by_order, listed[0][0] if len(listed) == 1 else {}))
    return made


def _order_of(scheduler: str) -> str | None:
    known = facts(scheduler)
    return None if known is None else known.order


@dataclass(frozen=True)
class _Weighed:
    """One order's comparison. above: upper bound at the level corrected for the number of orders."""

    estimate: Estimate
    above: float | None
    broken: tuple[str, ...]
    why: Reason
    scope: str = ""
    pairs: int = 0


def against_faster(groups: Sequence[Group], axis: str | None, noise_floor: float) -> list[AgainstFaster]:
    """The comparisons with the faster loops. They are a family of their own (Holm)."""
    refused, weighed = [], []
    for each in rivals([group[0].variant for group in groups], axis):
        of = _weighed(each, groups, noise_floor)
        if isinstance(of, Reason):
            refused.append(_refused(each, of, groups))
        elif of:
            weighed.append((each, of, _combined(of)))
    tested = [found for *_, found in weighed if found.low is not None and found.p_value is not None]
    able = [found for found in tested if decidable(found.low, found.n, found.test, len(tested))]
    adjusted = dict(zip(map(id, able), holm([found.p_value or 0.0 for found in able]), strict=True))
    family = Family(len(tested))
    return refused + [
        _judged(each, of, found, adjusted.get(id(found)), family, groups, noise_floor) for each, of, found in weighed
    ]


def _weighed(of: Rivals, groups: Sequence[Group], noise_floor: float) -> dict[str, _Weighed] | Reason:
    """Each order's comparison, or why one is refused; empty if no place has pairs in every order."""
    sides = {order: [(groups[i], groups[j]) for i, j in pairs] for order, pairs in of.pairs.items()}
    compared = {order: [compare(a, b, noise_floor) for a, b in listed] for order, listed in sides.items()}
    for found in (each for listed in compared.values() for each in listed):
        if found.verdict == "refused":
            return found.why
    tail = TAIL / len(sides)
    if len(next(iter(sides.values()))) == 1:
        made = {}
        for order, ((a, b),) in sides.items():
            (found,), evidence = compared[order], weigh(a, b)
            above = weigh(a, b, tail=tail).estimate.high
            made[order] = _Weighed(evidence.estimate, above, evidence.broken, found.why)
        return made
    matched = {order: [matched_pairs(a, b) for a, b in listed] for order, listed in sides.items()}
    whole = [i for i in range(len(next(iter(matched.values())))) if all(listed[i] for listed in matched.values())]
    pooled = {}
    for order, listed in matched.items():
        places = [
            logarithms([p.median_step_s for p, _ in listed[i]]) - logarithms([p.median_step_s for _, p in listed[i]])
            for i in whole
        ]
        if not places:
            return {}
        sequential = any(p.stop_rule for i in whole for pair in listed[i] for p in pair)
        whole_pool, above = pool(places, "places", sequential), pool(places, "places", sequential, tail).estimate.high
        estimate, counted = whole_pool.estimate, sum(map(len, places))
        why = reason("too-few", needed=Family(1).needed(estimate.test), unit="pairs")
        scope = sentences.of_places(whole_pool.scope, varying([sides[order][i][0][0].variant for i in whole]))
        pooled[order] = _Weighed(estimate, above, whole_pool.broken, why, scope, counted)
    return pooled


def _combined(of: Mapping[str, _Weighed]) -> Estimate:
    """The smallest ratio, with bounds and p-value for the smallest of the true ratios.

    Its lower bound is the smallest lower bound. Its upper bound is the smallest of the corrected upper bounds or, with
    too few values for those, the largest upper bound.
    """
    estimates = [each.estimate for each in of.values()]
    least = min(estimates, key=lambda each: each.value)
    lows, highs = [each.low for each in estimates], [each.high for each in estimates]
    above, p_values = [each.above for each in of.values()], [each.p_value for each in estimates]
    low = None if None in lows else min(known for known in lows if known is not None)
    high = None
    if low is not None:
        known = [each for each in (highs if None in above else above) if each is not None]
        high = max(known) if None in above else min(known)
    p_value = None
    if None not in p_values:
        tested = [(each.value, each.p_value or 0.0) for each in estimates]
        slower = [p for value, p in tested if value < 1]
        p_value = min(1.0, len(tested) * min(slower)) if slower else max(p for _, p in tested)
    return replace(least, low=low, high=high, p_value=p_value, n=min(each.n for each in estimates))


def _judged(
    of: Rivals,
    weighed: Mapping[str, _Weighed],
    found: Estimate,
    p_adjusted: float | None,
    family: Family,
    groups: Sequence[Group],
    noise_floor: float,
) -> AgainstFaster:
    faster = min(weighed, key=lambda order: weighed[order].estimate.value)
    broken = tuple(dict.fromkeys(text for each in weighed.values() for text in each.broken))
    outcome = verdict_of(found.value, found.low, found.high, 1.0 if p_adjusted is None else p_adjusted, noise_floor)
    alone = verdict_of(found.value, found.low, found.high, found.p_value, noise_floor)
    orders = Family(len(weighed))
    if found.low is None:
        why = next(each.why for each in weighed.values() if each.estimate.low is None)
    elif broken:
        outcome, why = "undecided", reason("dependent", findings=broken)
    elif outcome != "undecided":
        why = reason("equivalent" if outcome == "same" else "significant")
    elif p_adjusted is None:
        why = reason("too-few-in-family", needed=family.needed(found.test), of=family, unit=found.unit)
    elif found.value < 1 and orders.smallest_p(found.n, found.test) >= 2 * TAIL:
        why = reason("too-few-in-family", needed=orders.needed(found.test), of=orders, unit=found.unit)
    else:
        why = reason("wide") if alone == "undecided" else reason("adjusted", of=family)
    first = weighed[faster]
    several = f" ({first.pairs} pairs of runs, {first.scope})" if first.scope else ""
    listed = [
        OfOrder(order, each.estimate.value, each.estimate.low, each.estimate.high, each.estimate.p_value)
        for order, each in sorted(weighed.items(), key=lambda item: item[1].estimate.value)
    ]
    several += "".join(
        f"; with that by {each.op_order} the ratio is {sentences.figures(each.ratio, each.ratio_low, each.ratio_high)}"
        for each in listed[1:]
    )
    threads = _threads(of, groups)
    return AgainstFaster(
        threads=threads, at=of.at, a=of.a, b=of.b, op_order=faster, orders=listed, ratio=found.value,
        ratio_low=found.low, ratio_high=found.high, p_value=found.p_value, p_adjusted=p_adjusted, verdict=outcome,
        places=len(of.pairs[faster]), n=first.estimate.n, unit=found.unit, why=why,
        sentence=sentences.verdict(
            outcome, f"the faster {of.a} (by {faster})", of.b,
            sentences.figures(found.value, found.low, found.high), why,
            where=sentences.of_settings({**of.at, "threads": threads}), several=several,
        ),
    )  # fmt: skip


def _refused(of: Rivals, why: Reason, groups: Sequence[Group]) -> AgainstFaster:
    threads = _threads(of, groups)
    where = sentences.of_settings({**of.at, "threads": threads})
    return AgainstFaster(
        threads=threads, at=of.at, a=of.a, b=of.b, op_order=None, orders=[], ratio=None, ratio_low=None,
        ratio_high=None, p_value=None, p_adjusted=None, verdict="refused", places=len(next(iter(of.pairs.values()))),
        n=0, unit="pairs", why=why,
        sentence=sentences.verdict("refused", f"the faster {of.a}", of.b, "", why, where=where),
    )  # fmt: skip


def _threads(of: Rivals, groups: Sequence[Group]) -> int:
    (place, _), *_ = next(iter(of.pairs.values()))
    return int(groups[place][0].config["threads"])
