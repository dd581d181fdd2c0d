"""One axis of an experiment, everything else equal: is its other value faster, wherever it stands in the sweep?

Several comparisons are a family: their p-values are corrected (Holm), so that a sweep without any difference calls one
in at most one of 20 sweeps.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from analysis.comparison import NOISE_FLOOR, Verdict, compare, rejudged
from analysis.processes import Process
from analysis.statistics import holm, step_interval
from analysis.variants import Group, Variant, by_variant, variant_of


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
class Sweep:
    """Along one axis, and which variant is fastest: it beats `beats_share` of the others beyond doubt."""

    axis: str | None
    comparisons: int
    noise_floor: float
    rows: list[SweepRow]
    best: Variant | None
    best_step_s: float | None
    beats_share: float | None


def axes_of(processes: Sequence[Process]) -> list[str]:
    """Settings that vary over the experiment, the scheduler first."""
    names = list(dict.fromkeys(name for process in processes for name in process.variant))
    varying = [n for n in names if len({json.dumps(p.variant.get(n), sort_keys=True) for p in processes}) > 1]
    return sorted(varying, key=lambda name: name != "scheduler")


def sweep(processes: Sequence[Process], axis: str | None = None, noise_floor: float = NOISE_FLOOR) -> Sweep:
    """Compare along an axis; without one along the scheduler, or the first that varies. Raises ValueError for an axis
    that does not vary."""
    groups, axes = by_variant(processes), axes_of(processes)
    if axis is not None and axis not in axes:
        raise ValueError("an axis that varies: " + (", ".join(axes) or "there is none"))
    chosen = axis or next(iter(axes), None)
    pairs = [] if chosen is None else _pairs(groups, chosen)
    compared = [compare(a, b, noise_floor) for _, a, b in pairs]
    corrected = iter(holm([found.p_value for found in compared if found.p_value is not None]))
    rows = []
    for (at, a, b), found in zip(pairs, compared, strict=True):
        p_adjusted = None if found.p_value is None else next(corrected)
        found = found if p_adjusted is None else rejudged(found, p_adjusted)
        rows.append(SweepRow(
            at, a[0].variant[str(chosen)], b[0].variant[str(chosen)], found.verdict, found.ratio, found.ratio_low,
            found.ratio_high, found.p_value, p_adjusted, found.superiority, found.paired, found.differs,
            found.marks, found.reason,
        ))  # fmt: skip
    best = min(groups, key=lambda group: step_interval(group).median, default=None)
    return Sweep(
        axis=chosen,
        comparisons=sum(found.p_value is not None for found in compared),
        noise_floor=noise_floor,
        rows=rows,
        best=None if best is None else variant_of(best),
        best_step_s=None if best is None else step_interval(best).median,
        beats_share=None if best is None or len(groups) == 1 else _beaten(best, groups, noise_floor),
    )


def _pairs(groups: Sequence[Group], axis: str) -> list[tuple[dict[str, Any], Group, Group]]:
    """(the other settings, first value's variant, another value's variant)."""
    by_rest: dict[str, list[Group]] = {}
    for group in groups:
        rest = {name: value for name, value in group[0].variant.items() if name != axis}
        by_rest.setdefault(json.dumps(rest, sort_keys=True), []).append(group)
    return [(json.loads(rest), same[0], other) for rest, same in by_rest.items() for other in same[1:]]


def _beaten(best: Group, groups: Sequence[Group], noise_floor: float) -> float:
    """The share of the other variants that are slower than the best, corrected for asking of each."""
    found = [compare(best, other, noise_floor) for other in groups if other is not best]
    adjusted = holm([1.0 if each.p_value is None else each.p_value for each in found])
    judged = [rejudged(each, p) for each, p in zip(found, adjusted, strict=True) if each.p_value is not None]
    return sum(each.verdict == "slower" for each in judged) / len(found)
