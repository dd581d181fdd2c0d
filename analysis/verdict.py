"""The verdict of an experiment in one sentence: on its question (`primary`), else on a sweep's first comparison."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from taskloom.analysis.comparison import ONE_EACH
from taskloom.analysis.estimators import FEWEST
from taskloom.analysis.pooling import FEWEST_IN_STRATUM
from taskloom.analysis.rows import Pooled, SweepRow
from taskloom.analysis.wording import disturbed_share, is_or_are, settings, value_name

if TYPE_CHECKING:
    from taskloom.analysis.sweep import Sweep

Row = Pooled | SweepRow


@dataclass(frozen=True)
class Headline:
    """Verdict on `b` relative to `a`; none: nothing to compare. primary: on the declared question, judged alone.
    ratio: step time of `a` / step time of `b`. disturbed_runs: those of `runs` with flagged steps or foreign load."""

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


def headline(found: Sweep) -> Headline:
    """Verdict of a sweep, with a sentence."""
    row = _first(found)
    if row is None:
        sentence = "No run has succeeded."
        if found.primary_missing:
            sentence = "The question cannot be answered: no run of one of its sides has succeeded."
        elif found.best is not None:
            best = f"{found.best.name}, {_seconds(found.best_step_s)} a step"
            sentence = f"There is nothing to compare; smallest median: {best}."
        return Headline(sentence, "none", runs=found.runs, disturbed_runs=found.disturbed_runs)
    axis = _axis(found, row)
    return Headline(
        _disturbed(found, _sentence(found, row)),
        row.verdict,
        _value(axis, row.a),
        _value(axis, row.b),
        row.ratio,
        row.ratio_low,
        row.ratio_high,
        row is found.primary,
        found.runs,
        found.disturbed_runs,
    )


def _value(axis: str | None, value: Any) -> str:
    """A value of the axis, or the names of several settings."""
    return value_name(axis, value) if axis is None else str(value)


def _first(found: Sweep) -> Row | None:
    """The question, or else the comparison with the most threads, pooled over all places if there are several."""
    if found.primary is not None or found.primary_missing:
        return found.primary
    if any(row.verdict == "refused" for row in found.rows):
        return next(row for row in found.rows if row.verdict == "refused")
    if found.pooled:
        return max(found.pooled, key=lambda row: row.threads)
    return max(found.rows, key=lambda row: row.at.get("threads", 0), default=None)


def _axis(found: Sweep, row: Row) -> str | None:
    return found.primary.axis if found.primary is not None and row is found.primary else found.axis


def _sentence(found: Sweep, row: Row) -> str:
    axis, several = _axis(found, row), ""
    a, b = value_name(axis, row.a), value_name(axis, row.b)
    verb = is_or_are(axis, row.b)
    if isinstance(row, Pooled):
        at: Mapping[str, Any] = {"threads": row.threads}
        several = f" ({row.pairs} pairs of runs, {row.scope})"
    elif row is found.primary:
        at = row.at
    else:
        at = {name: value for name, value in row.at.items() if name == "threads"}
        several = f" (one of {found.comparisons} comparisons)" if found.comparisons > 1 else ""
    where = f" on {settings(at)}" if list(at) == ["threads"] else f" with {settings(at)}" if at else ""
    if row.verdict == "refused" or row.ratio is None:
        return f"The comparison of {b} with {a}{where} is refused: {row.reason or 'nothing to compare'}."
    interval = "" if row.ratio_low is None else f" [{row.ratio_low:.3f}, {row.ratio_high:.3f}]"
    figures = f"{row.ratio:.3f}{interval} times as fast as {a}{where}"
    reading = f"{a} time / {b} time {row.ratio:.3f}{interval}"
    told = {
        "faster": f"{b} {verb} {figures}",
        "slower": f"{b} {verb} slower: {figures}",
        "same": f"{b} and {a} are equivalent within the noise floor{where}: {reading}",
        "undecided": f"It is undecided whether {b} or {a} is faster{where}: {reading}",
    }
    missing = f" {_missing(row)}" if row.verdict == "undecided" else ""
    return f"{told[row.verdict]}{several}.{missing}"


def _disturbed(found: Sweep, sentence: str) -> str:
    """The sentence with the share of disturbed runs: first if most are disturbed."""
    if not found.disturbed_runs:
        return sentence
    share = disturbed_share(found.disturbed_runs, found.runs)
    return f"{share}. {sentence}" if 2 * found.disturbed_runs > found.runs else f"{sentence} {share}."


def _missing(row: Row) -> str:
    """The reason why a comparison is undecided, or what would decide it, in a sentence."""
    reason = row.reason or " and ".join(row.diagnosis)
    dependent = [finding for finding in row.diagnosis if finding in reason]
    if dependent:
        return f"The interval does not hold, because the values show {' and '.join(dependent)}."
    shortage = re.match("too few [a-z]+: ([^,]+),", reason)
    if shortage:
        return f"There are too few runs: {shortage[1]}."
    if row.ratio_low is not None:
        return "More repetitions narrow the interval."
    if isinstance(row, Pooled):
        if row.pairs < FEWEST:
            return f"A verdict needs at least {FEWEST} pairs of runs."
        return f"A verdict needs at least {FEWEST_IN_STRATUM} pairs of runs with each slicing."
    wanted = re.search(r"whatever they show: (at least \d+) (on [a-z]+ occasion)", reason)
    if wanted and row.paired:
        return f"A verdict needs {wanted[1]} pairs of runs {wanted[2]}."
    if ONE_EACH in reason:
        return f"A verdict needs at least {FEWEST} pairs of runs on one occasion."
    return "A verdict needs runs in interleaved blocks."


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g} s" if value >= 1 else f"{value * 1e3:.4g} ms"
