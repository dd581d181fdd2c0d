"""A comparison of two variants of one experiment as one statement of that experiment's family.

Whoever compares two variants of a sweep looks at one of several comparisons, and usually at one that stands out. So the
verdict is that of the family, whichever way the two are named.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from taskloom.analysis import sentences
from taskloom.analysis.compared import Comparison, Membership
from taskloom.analysis.comparison import rejudged
from taskloom.analysis.family import Family, decidable
from taskloom.analysis.processes import Process
from taskloom.analysis.sweep import sweep
from taskloom.analysis.variants import Sides, by_variant, opposed_as, varying


def in_family(
    found: Comparison,
    a: Sequence[Process],
    b: Sequence[Process],
    experiment_id: int,
    everyone: Sequence[Process],
    primary: Sides | None,
) -> Comparison:
    """The comparison of runs of one experiment, judged in its family. everyone: the experiment's processes. primary:
    the sides of its question, which is judged alone. Unchanged: both sides are of one variant, or there is no test."""
    sides = a[0].variant, b[0].variant
    if found.p_value is None or sides[0] == sides[1]:
        return found
    if opposed_as(primary, *sides):
        return _member(found, found, experiment_id, Family(1), found.p_value, primary=True)
    family, p_adjusted = _adjusted(found, sides, everyone, primary)
    return _member(rejudged(found, p_adjusted, family), found, experiment_id, family, p_adjusted, primary=False)


def _member(
    judged: Comparison, alone: Comparison, experiment_id: int, family: Family, p_adjusted: float | None, primary: bool
) -> Comparison:
    sentence = sentences.membership(family, experiment_id, p_adjusted, alone.verdict, primary)
    membership = Membership(
        experiment_id, family.comparisons, family.pooled, p_adjusted, alone.verdict, primary, sentence=sentence
    )
    return replace(judged, family=membership)


def _adjusted(
    found: Comparison, sides: Sides, everyone: Sequence[Process], primary: Sides | None
) -> tuple[Family, float | None]:
    """The family, and the adjusted p-value; null if so few processes decide nothing in it."""
    names = varying(sides)
    if len(names) == 1:
        axis = names[0]
        swept = sweep(everyone, axis, found.noise_floor, primary)
        for row in swept.rows:
            if opposed_as(({**row.at, axis: row.a}, {**row.at, axis: row.b}), *sides):
                family = swept.family if row.p_adjusted is not None else Family(swept.comparisons, swept.family.pooled)
                if _is_whole(found, sides, everyone):
                    return family, row.p_adjusted
                return family, _bonferroni(found, family)
    every_pair = Family(math.comb(len(by_variant(everyone)), 2))
    return every_pair, _bonferroni(found, every_pair)


def _is_whole(found: Comparison, sides: Sides, everyone: Sequence[Process]) -> bool:
    """Whether the sides have all runs of their variants."""
    return {*found.a.runs, *found.b.runs} == {process.run_id for process in everyone if process.variant in sides}


def _bonferroni(found: Comparison, family: Family) -> float | None:
    if found.p_value is None or not decidable(found.ratio_low, found.n, found.test, family.size):
        return None
    return min(1.0, family.size * found.p_value)
