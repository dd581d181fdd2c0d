"""The verdict of an experiment in one sentence: on its question (`primary`), else on a sweep's first comparison."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from gpt2core.spec.wording import seconds
from taskloom.analysis import sentences
from taskloom.analysis.family import Family
from taskloom.analysis.meaning import says
from taskloom.analysis.reasons import Reason
from taskloom.analysis.rows import AgainstFaster, Pooled, PrimaryRow, SweepRow
from taskloom.analysis.wording import value_name

if TYPE_CHECKING:
    from taskloom.analysis.sweep import Sweep

Row = AgainstFaster | Pooled | SweepRow


@dataclass(frozen=True)
class Headline:
    """Verdict on `b` relative to `a`; none: nothing to compare. primary: on the declared question, judged alone.
    ratio: step time of `a` / step time of `b`. disturbed_runs: those of `runs` with flagged steps or foreign load. why:
    the reason of the verdict."""

    sentence: str
    verdict: Literal["faster", "slower", "same", "undecided", "refused", "none"]
    a: str | None = None
    b: str | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    primary: bool = False
    runs: int = 0
    disturbed_runs: int = 0
    why: Reason | None = None
    needed_extended: int | None = field(
        default=None,
        metadata=says(
            "fewest repetitions that can decide it once extended, as intervals then hold at any time; null: it is not "
            "undecided"
        ),
    )


def headline(found: Sweep) -> Headline:
    """Verdict of a sweep, with a sentence."""
    row = _first(found)
    if row is None:
        sentence = sentences.NO_SIDE if found.primary_missing else sentences.NO_RUN
        if found.best is not None and not found.primary_missing:
            best = f"{found.best.name}, {seconds(found.best_step_s)} a step"
            sentence = f"There is nothing to compare; smallest median: {best}."
        return Headline(sentence, "none", runs=found.runs, disturbed_runs=found.disturbed_runs)
    axis = found.primary.axis if found.primary is not None and row is found.primary else found.axis
    said = row.sentence + (_better(found, row) if isinstance(row, PrimaryRow) else "")
    first = f"{row.a} by {row.op_order}" if isinstance(row, AgainstFaster) and row.op_order else _value(axis, row.a)
    return Headline(
        sentences.disturbed(said, found.disturbed_runs, found.runs),
        row.verdict,
        first,
        _value(axis, row.b),
        row.ratio,
        row.ratio_low,
        row.ratio_high,
        row is found.primary,
        found.runs,
        found.disturbed_runs,
        row.why,
        _needed_extended(row) if row.verdict == "undecided" else None,
    )


def _needed_extended(row: Row) -> int:
    """Fewest repetitions, each with a pair at every place, with which the signs of all pairs can decide."""
    places = 1 if isinstance(row, SweepRow) else row.places
    return math.ceil(Family(row.why.of or 1).needed("signs") / places)


def _value(axis: str | None, value: Any) -> str:
    """A value of the axis, or the names of several settings."""
    return value_name(axis, value) if axis is None else str(value)


def _better(found: Sweep, row: PrimaryRow) -> str:
    """The comparison with the faster loops, where a question is about slower ones."""
    a, b = (_complete(row, side) for side in (row.a, row.b))
    for each in found.against_faster:
        sides = {str(a.get("scheduler")): a, str(b.get("scheduler")): b}
        loops = sides.get(each.a, {})
        if {each.a, each.b} == set(sides) and loops.get("threads", each.threads) == each.threads:
            return "" if loops.get("op_order") == each.op_order else f" {each.sentence}"
    return ""


def _complete(row: PrimaryRow, side: Any) -> dict[str, Any]:
    """All settings of a side of the question that vary."""
    return {**row.at, **(side if row.axis is None else {row.axis: side})}


def _first(found: Sweep) -> Row | None:
    """The question, or else the comparison with the most threads: with the faster loops if there are several orders of
    them, and over all places if there are several."""
    if found.primary is not None or found.primary_missing:
        return found.primary
    if any(row.verdict == "refused" for row in found.rows):
        return next(row for row in found.rows if row.verdict == "refused")
    most = max((row.at.get("threads", 0) for row in found.rows), default=0)
    faster = [row for row in found.against_faster if row.threads >= most]
    if faster:
        return max(faster, key=lambda row: row.threads)
    if found.pooled:
        return max(found.pooled, key=lambda row: row.threads)
    return max(found.rows, key=lambda row: row.at.get("threads", 0), default=None)
