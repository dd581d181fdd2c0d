"""The stopping rule: whether another block of repetitions is worth its time.

It uses the width of a confidence sequence of the declared metric, from the signs of the pairs within blocks, which is
valid after every block (Howard et al. 2021; estimators.anytime). The verdicts of such an experiment use the same signs,
since a fixed-sample p-value is not valid under repeated looks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gpt2core.spec.result import median
from taskloom.analysis.against_faster import rivals
from taskloom.analysis.estimators import logarithms, sequential_bounds
from taskloom.analysis.variants import Sides, opposed, varying

Reason = Literal["narrow-enough", "max-repetitions", "budget", "no-results"]
Metric = Literal["ratio", "median_step_s"]


@dataclass(frozen=True)
class Watched:
    """A variant's values of the primary metric, by block; blocks in which it failed are missing."""

    variant: Mapping[str, Any]
    by_block: Mapping[int, float]


@dataclass(frozen=True)
class Stopping:
    """State of an experiment with `stop`. rel_ci: half the relative width of the widest 95 % confidence sequence, of
    the ratios along the first axis, also with each order of loops, or without an axis of the median step; null while
    there are too few blocks.
    reason: null while the experiment continues."""

    repetitions: int
    rel_ci: float | None
    spent_s: float
    reason: Reason | None
    metric: Metric


def half_width(values: Sequence[float]) -> float | None:
    """Half the width of the median's confidence sequence over the median; None for too few values."""
    bounds = sequential_bounds(values)
    return None if bounds is None else (bounds[1] - bounds[0]) / (2 * median(values))


def ratio_half_width(a: Mapping[int, float], b: Mapping[int, float]) -> float | None:
    """Half the relative width for the ratio of two variants, over the blocks in which both ran."""
    both = sorted(a.keys() & b.keys())
    bounds = sequential_bounds(logarithms([a[block] for block in both]) - logarithms([b[block] for block in both]))
    return None if bounds is None else (bounds[1] - bounds[0]) / 2


def metric_of(variants: Sequence[Mapping[str, Any]], declared: Metric | None) -> Metric:
    """Metric of the stopping rule: the declared one, else the ratio if there is anything to compare."""
    return declared or ("ratio" if varying(variants) else "median_step_s")


def widest(watched: Sequence[Watched], metric: Metric, primary: Sides | None = None) -> float | None:
    """The largest half width of the metric; None while any is missing. primary: the sides of the only ratio that
    counts."""
    variants = [each.variant for each in watched]
    if metric == "ratio" and primary is not None:
        widths = [ratio_half_width(*(watched[variants.index(side)].by_block for side in primary))]
    elif metric == "ratio" and varying(variants):
        axis = varying(variants)[0]
        loops = [pair for of in rivals(variants, axis) for pairs in of.pairs.values() for pair in pairs]
        pairs = dict.fromkeys([*opposed(variants, axis), *loops])
        widths = [ratio_half_width(watched[i].by_block, watched[j].by_block) for i, j in pairs]
    else:
        widths = [half_width(list(each.by_block.values())) for each in watched]
    known = [width for width in widths if width is not None]
    return max(known) if known and len(known) == len(widths) else None


def judge(
    watched: Sequence[Watched],
    repetitions: int,
    spent_s: float,
    rel_ci: float,
    max_repetitions: int,
    budget_s: float | None,
    declared: Metric | None = None,
    primary: Sides | None = None,
) -> Stopping:
    """Decision after a complete block: continue, or stop with a reason.

    The budget ends when another block of mean length would exceed it. primary: the sides of the question, whose ratio
    alone must be narrow enough.
    """
    metric = metric_of([each.variant for each in watched], declared)
    width = widest(watched, metric, primary)
    reason: Reason | None = None
    if not all(each.by_block for each in watched):
        reason = "no-results"
    elif width is not None and width <= rel_ci:
        reason = "narrow-enough"
    elif repetitions >= max_repetitions:
        reason = "max-repetitions"
    elif budget_s is not None and spent_s * (repetitions + 1) / repetitions > budget_s:
        reason = "budget"
    return Stopping(repetitions, width, spent_s, reason, metric)
