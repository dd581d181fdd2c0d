"""Is B faster than A? With an interval, a test, a noise floor declared beforehand, and the right to say: undecided."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from taskloom.analysis.agreement import HOW, PROBLEM, first_disagreement, without
from taskloom.analysis.fingerprint import core_differences, differing, environment_differences
from taskloom.analysis.processes import Process
from taskloom.analysis.statistics import (
    CONFIDENCE,
    Interval,
    Ratio,
    paired_p_value,
    paired_ratio_of_medians,
    ratio_of_medians,
    smallest_p_value,
    step_interval,
    step_values,
    superiority,
    unpaired_p_value,
)
from taskloom.analysis.validity import marks

NOISE_FLOOR = 0.01  # relative; smaller differences are called the same
Verdict = Literal["faster", "slower", "same", "undecided", "refused"]


@dataclass(frozen=True)
class Side:
    """One side of a comparison: its runs, the settings they share that vary in their experiment, their step time."""

    runs: list[int]
    variant: dict[str, Any]
    step_s: Interval


@dataclass(frozen=True)
class Comparison:
    """B against A. `ratio`: median step of A / of B; above 1, B is faster. `superiority`: how probably a process of B
    is faster than one of A. Refused: no ratio is given, `reason` says why."""

    a: Side
    b: Side
    verdict: Verdict
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    paired: bool
    p_value: float | None
    superiority: float | None
    noise_floor: float
    differs: list[str]
    marks: list[str]
    reason: str


def compare(a: Sequence[Process], b: Sequence[Process], noise_floor: float = NOISE_FLOOR) -> Comparison:
    """Compare two selections of one configuration each. Raises ValueError if one is empty."""
    if not a or not b:
        raise ValueError("a side is empty")
    sides = _side(a), _side(b)
    differs = _differences([*a, *b])
    marked = marks([*a, *b])
    refusal = _refusal(a, b)
    if refusal is not None:
        return Comparison(*sides, "refused", None, None, None, False, None, None, noise_floor, differs, marked, refusal)
    left, right, paired = _values(a, b)
    decision = decide(left, right, paired, noise_floor)
    reasons = [decision.reason, _unit(a, b, len(left), paired)]
    if differs:
        reasons.append("not like for like: see differs")
    if marked:
        reasons.append("some runs were disturbed: see marks")
    return Comparison(
        *sides,
        decision.verdict,
        decision.ratio.value,
        decision.ratio.low,
        decision.ratio.high,
        paired,
        decision.p_value,
        superiority(left, right, paired),
        noise_floor,
        differs,
        marked,
        "; ".join(reasons),
    )


@dataclass(frozen=True)
class Decision:
    """What the times alone say of B against A."""

    verdict: Verdict
    ratio: Ratio
    p_value: float
    reason: str


def decide(a: Sequence[float], b: Sequence[float], paired: bool, noise_floor: float = NOISE_FLOOR) -> Decision:
    """Faster or slower: the test says so, the interval is on that side of 1, and the ratio is beyond the noise floor.
    Same: the whole interval is within the noise floor. Else undecided."""
    ratio = paired_ratio_of_medians(a, b) if paired else ratio_of_medians(a, b)
    p_value = paired_p_value(a, b) if paired else unpaired_p_value(a, b)
    enough = smallest_p_value(len(a), len(b), paired) <= 1 - CONFIDENCE
    verdict, reason = _judge(ratio, p_value, noise_floor, enough)
    return Decision(verdict, ratio, p_value, reason)


def rejudged(found: Comparison, p_adjusted: float, family: int) -> Comparison:
    """The same comparison as one of `family`: judged by a corrected p-value. Same and undecided stay what they are."""
    if found.verdict not in ("faster", "slower") or p_adjusted < 1 - CONFIDENCE:
        return found
    why = f"one of {family} comparisons: corrected p = {p_adjusted:.2g}"
    if not can_tell(found, family):
        enough = next(n for n in itertools.count(1) if family * smallest_p_value(n, n, found.paired) < 1 - CONFIDENCE)
        why = f"too few processes for {family} comparisons, whatever they show: it takes {enough} a side"
    return replace(found, verdict="undecided", reason=f"{why} ({found.reason})")


def can_tell(found: Comparison, family: int) -> bool:
    """Whether so many processes can call any difference where it is one of `family` comparisons."""
    smallest = smallest_p_value(len(found.a.runs), len(found.b.runs), found.paired)
    return family * smallest < 1 - CONFIDENCE


def _side(processes: Sequence[Process]) -> Side:
    variants = [process.variant for process in processes]
    shared = {k: v for k, v in variants[0].items() if all(k in other and other[k] == v for other in variants)}
    return Side([process.run_id for process in processes], shared, step_interval(processes))


def _differences(processes: Sequence[Process]) -> list[str]:
    """What differs beside the settings that are there to be compared."""
    configs: list[Mapping[str, Any]] = [without(process.config, (*HOW, *PROBLEM)) for process in processes]
    names = sorted({name for config in configs for name in config})
    return [*environment_differences(processes), *core_differences(processes), *differing(configs, names)]


def _refusal(a: Sequence[Process], b: Sequence[Process]) -> str | None:
    """Why no ratio may be shown, if so."""
    both = sorted({process.run_id for process in a} & {process.run_id for process in b})
    if both:
        return "A and B share runs " + ", ".join(map(str, both))
    for name, side in (("A", a), ("B", b)):
        mixed = differing([process.config for process in side], [name for name in HOW if name != "cores"])
        if mixed:
            return f"{name} mixes configurations: " + "; ".join(mixed)
    agreement = first_disagreement(a, b)
    return None if agreement.holds else agreement.reason


def _values(a: Sequence[Process], b: Sequence[Process]) -> tuple[list[float], list[float], bool]:
    """Both sides' values, in pairs if every process has its counterpart and there are two pairs at least."""
    by_pair = {process.pair: process for process in b if process.pair is not None}
    pairs = {process.pair for process in a if process.pair is not None}
    if len(a) == len(b) == len(pairs) == len(by_pair) > 1 and pairs == set(by_pair):
        matched = [by_pair[process.pair] for process in a]
        return step_values(a), step_values(matched), True
    if len(a) == 1 or len(b) == 1:  # steps only against steps: what is nested is never mixed with what is not
        if len(a) == len(b):
            return step_values(a), step_values(b), False
        return [p.median_step_s for p in a], [p.median_step_s for p in b], False
    return step_values(a), step_values(b), False


def _judge(ratio: Ratio, p_value: float, noise_floor: float, enough: bool) -> tuple[Verdict, str]:
    bounds = f"{CONFIDENCE:.0%} interval {ratio.low:.4f} to {ratio.high:.4f}"
    interval = f"ratio {ratio.value:.4f}, {bounds}, p = {p_value:.2g}"
    if not enough:
        return "undecided", f"too few processes to tell, whatever they show ({interval})"
    verdict = verdict_of(ratio.value, ratio.low, ratio.high, p_value, noise_floor)
    if verdict == "same":
        return verdict, f"within the noise floor of {noise_floor:.2%} ({interval})"
    if verdict == "undecided":
        return verdict, f"the interval leaves room for more than one answer ({interval})"
    return verdict, interval


def verdict_of(ratio: float, low: float | None, high: float | None, p_value: float, noise_floor: float) -> Verdict:
    """What a ratio with its interval and its p-value says; undecided without an interval."""
    if low is None or high is None:
        return "undecided"
    if p_value < 1 - CONFIDENCE and low > 1 and ratio >= 1 + noise_floor:
        return "faster"
    if p_value < 1 - CONFIDENCE and high < 1 and ratio <= 1 / (1 + noise_floor):
        return "slower"
    if 1 / (1 + noise_floor) <= low and high <= 1 + noise_floor:
        return "same"
    return "undecided"


def _unit(a: Sequence[Process], b: Sequence[Process], n: int, paired: bool) -> str:
    if paired:
        return f"{n} pairs of processes"
    if len(a) == len(b) == 1:
        return "one process each: this is about their steps, and another process may be faster or slower as a whole"
    return f"{len(a)} and {len(b)} processes, not paired"


def identity(process: Process) -> str:
    """Equal for processes that repeat each other: the same variant and configuration, on whichever cores."""
    return json.dumps([process.variant, without(process.config, ("cores",))], sort_keys=True)
