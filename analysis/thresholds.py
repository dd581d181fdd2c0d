"""Thresholds: a reference for the step time of a configuration, and how far from it a measured one may be."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from gpt2core.spec.wording import counted, seconds
from taskloom.analysis.wording import settings as named

if TYPE_CHECKING:  # these load NumPy
    from taskloom.analysis.scaling import ScalingRow
    from taskloom.analysis.statistics import Interval

State = Literal["within", "above", "below", "undecided", "missing"]
EXCEEDED = ("above", "below", "missing")
FIELDS = ("settings", "reference", "lower", "upper")
MOST = sys.float_info.max  # infinity is no JSON
LIMITS = {"lower": (-100.0, 0.0), "upper": (0.0, math.inf)}


class InvalidThreshold(ValueError):
    """A threshold cannot be used; the message names the field, its value, and what is accepted."""


@dataclass(frozen=True)
class StepLimits:
    """reference_s: expected median step time. lower, upper: limits in percent of it; None: no limit."""

    reference_s: float
    lower: float | None = None
    upper: float | None = None

    def limit_s(self, percent: float | None, without: float) -> float:
        """The time at a limit."""
        return without if percent is None else self.reference_s * (1 + percent / 100)

    @property
    def allowed(self) -> str:
        """What is allowed, in words: -10 % to +5 %."""
        least = "anything" if self.lower is None else f"{self.lower:+g} %"
        return f"{least} to {self.upper:+g} %" if self.upper is not None else f"{least} and more"


@dataclass(frozen=True)
class Threshold(StepLimits):
    """The limits of every variant with these settings."""

    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Judged:
    """A variant against its threshold. relative: median / reference - 1. state: by the 95 % interval of the median, and
    by the median alone if there is none; missing: no variant with a result has the settings."""

    settings: Mapping[str, Any]
    reference_s: float
    lower: float | None
    upper: float | None
    median_s: float | None
    low_s: float | None
    high_s: float | None
    relative: float | None
    state: State
    sentence: str


def parse(given: Any) -> list[Threshold]:
    """Thresholds from a file's content, {"threshold": [...]}. Raises InvalidThreshold."""
    entries = given.get("threshold") if isinstance(given, Mapping) else None
    if not isinstance(entries, list) or not entries or set(given) != {"threshold"}:
        raise InvalidThreshold("the file must be a list of [[threshold]], and nothing else")
    return [_threshold(entry, f"threshold {number}") for number, entry in enumerate(entries, 1)]


def _threshold(entry: Any, place: str) -> Threshold:
    if not isinstance(entry, Mapping):
        raise InvalidThreshold(f"{place}: {entry!r} is not a table; accepted are {', '.join(FIELDS)}")
    for name in entry:
        if name not in FIELDS:
            raise InvalidThreshold(f"{place}: there is no field {name!r}; accepted are {', '.join(FIELDS)}")
    settings = entry.get("settings", {})
    if not isinstance(settings, Mapping):
        raise InvalidThreshold(f"{place}: settings: {settings!r}; accepted is a table of settings and values")
    reference_s = _number(entry, "reference", place, 0.0, math.inf)
    if not reference_s:
        raise InvalidThreshold(f"{place}: reference: {entry.get('reference')!r}; accepted are seconds above 0")
    lower, upper = (_number(entry, name, place, *LIMITS[name]) for name in ("lower", "upper"))
    if lower is None and upper is None:
        raise InvalidThreshold(f"{place}: neither lower nor upper is given; accepted are percent, such as upper = 5")
    return Threshold(reference_s, lower, upper, settings)


def _number(entry: Mapping[str, Any], name: str, place: str, least: float, most: float) -> float | None:
    value = entry.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= min(most, MOST):
        limits = f"from {least:g} to {most:g}" if most < math.inf else f"from {least:g}"
        raise InvalidThreshold(f"{place}: {name}: {value!r}; accepted are numbers {limits}")
    return float(value)


def judge(
    thresholds: Sequence[Threshold], rows: Sequence[ScalingRow], shared: Mapping[str, Any] | None = None
) -> list[Judged]:
    """Each variant against each threshold whose settings it has. rows: the variants of a report (`scaling`); shared:
    settings that all of them have."""
    return [judged for threshold in thresholds for judged in _judged(threshold, rows, shared or {})]


def _judged(threshold: Threshold, rows: Sequence[ScalingRow], shared: Mapping[str, Any]) -> Iterator[Judged]:
    found = False
    for row in rows:
        of_row = {name: getattr(row, name) for name in ("scheduler", "threads", "batch_slice", "token_slice")}
        known = {**shared, **of_row, **row.variant}
        if all(name in known and _equal(known[name], value) for name, value in threshold.settings.items()):
            found = True
            variant = row.variant or {"scheduler": row.scheduler, "threads": row.threads}
            yield judge_one(threshold, variant, row.step_s, row.runs)
    if not found:
        sentence = f"Threshold: no variant with a result has {named(threshold.settings)}."
        yield Judged(
            threshold.settings, threshold.reference_s, threshold.lower, threshold.upper,
            None, None, None, None, "missing", sentence,
        )  # fmt: skip


def _equal(actual: Any, expected: Any) -> bool:
    if isinstance(actual, Mapping) and isinstance(expected, str):
        actual = actual.get("name")
    return json.dumps(actual, sort_keys=True) == json.dumps(expected, sort_keys=True)


def judge_one(limits: StepLimits, variant: Mapping[str, Any], step_s: Interval, runs: int) -> Judged:
    """A variant with this many runs against limits."""
    median, low, high = step_s.median, step_s.low, step_s.high
    least, most = limits.limit_s(limits.lower, 0.0), limits.limit_s(limits.upper, math.inf)
    begin, end = (median, median) if low is None or high is None else (low, high)
    state: State = "undecided"
    if begin > most:
        state = "above"
    elif end < least:
        state = "below"
    elif least <= begin and end <= most:
        state = "within"
    relative = median / limits.reference_s - 1
    interval = f" without an interval ({counted(runs, 'run')})"
    if low is not None and high is not None:
        interval = f" [{seconds(low)}, {seconds(high)}]"
    verb = {"within": "is within", "above": "is above", "below": "is below", "undecided": "may be outside"}[state]
    sentence = (
        f"Threshold: {named(variant)} {verb} its limits: {seconds(median)}{interval}, {100 * relative:+.1f} % from the "
        f"reference of {seconds(limits.reference_s)}; {limits.allowed} is allowed."
    )
    return Judged(
        variant, limits.reference_s, limits.lower, limits.upper, median, low, high, relative, state, sentence
    )
