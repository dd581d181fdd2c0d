"""Compares B with A: an interval, a test and a noise floor declared beforehand decide; the verdict may be undecided."""

from __future__ import annotations

import itertools
import json
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np

from gpt2core.spec.result import median
from gpt2core.spec.roles import PROBLEM, with_role
from gpt2core.spec.wording import counted, noun_for
from taskloom.analysis import estimators, sentences
from taskloom.analysis.agreement import COMPARED, first_disagreement, without
from taskloom.analysis.compared import Comparison, InstructionsRatio, Side
from taskloom.analysis.diagnosis import diagnose
from taskloom.analysis.estimators import CONFIDENCE, FEWEST, TAIL, Estimate, Unit, e_value, logarithms
from taskloom.analysis.family import Family
from taskloom.analysis.fingerprint import core_differences, differing, environment_differences
from taskloom.analysis.pooling import FEWEST_IN_STRATUM, pool
from taskloom.analysis.processes import Facts, Process, distinct
from taskloom.analysis.rank_tests import mann_whitney_p_value
from taskloom.analysis.reasons import Kind, Reason, Verdict
from taskloom.analysis.sentences import reason
from taskloom.analysis.statistics import step_interval, step_values, superiority
from taskloom.analysis.validity import doubtful, marks, summary
from taskloom.analysis.wording import WORK, disturbed_share

NOISE_FLOOR = 0.01  # relative; smaller differences have the verdict `same`
MIXED = 0.2  # a monotone drift alone then gives p > 0.2, since times have the ranks of their blocks


def compare(a: Sequence[Process], b: Sequence[Process], noise_floor: float = NOISE_FLOOR) -> Comparison:
    """Compare two selections of one configuration each. Raises ValueError if one is empty."""
    if not a or not b:
        raise ValueError("a side is empty")
    sides = _side(a), _side(b)
    differs = _differences([*a, *b])
    marked, brief = marks([*a, *b]), summary([*a, *b])
    disturbed_runs = sum(map(doubtful, (*a, *b)))
    refusal = _refusal(a, b)
    if refusal is not None:
        refused = Comparison(
            *sides, "refused", None, None, None, False, None, None, noise_floor, differs, marked, refusal
        )
        why = reason("refused", findings=[refusal])
        return _worded(replace(refused, brief=brief, disturbed_runs=disturbed_runs, why=why))
    evidence = weigh(a, b)
    found = evidence.estimate
    decision = _decide(found, noise_floor, evidence.broken, evidence.lacking)
    reasons = [decision.reason, evidence.design]
    if differs:
        reasons.append("not like for like: see differs")
    if disturbed_runs:
        reasons.append(disturbed_share(disturbed_runs, len(a) + len(b)).lower())
    return _worded(Comparison(
        *sides,
        verdict=decision.verdict,
        ratio=found.value,
        ratio_low=found.low,
        ratio_high=found.high,
        paired=found.paired,
        p_value=found.p_value,
        superiority=superiority(evidence.a_s, evidence.b_s, found.paired),
        noise_floor=noise_floor,
        differs=differs,
        marks=marked,
        reason="; ".join(reasons),
        ratio_middle=found.middle,
        n=found.n,
        unit=found.unit,
        test=found.test,
        scope=evidence.scope,
        e_value=evidence.e_value,
        sequential=found.test == "signs",
        diagnosis=list(evidence.diagnosis),
        instructions=_instructions(a, b),
        brief=brief,
        disturbed_runs=disturbed_runs,
        why=decision.why,
    ))  # fmt: skip


def _worded(found: Comparison) -> Comparison:
    """The comparison with its sentence."""
    figures = sentences.figures(found.ratio, found.ratio_low, found.ratio_high)
    runs = len(found.a.runs) + len(found.b.runs)
    words = sentences.of_variants(found.verdict, found.a.variant, found.b.variant, figures, found.why)
    return replace(found, sentence=sentences.disturbed(words, found.disturbed_runs, runs))


def _instructions(a: Sequence[Process], b: Sequence[Process]) -> InstructionsRatio:
    lacking = next((why for value, why in (process.instructions for process in (*a, *b)) if value is None), None)
    if lacking is not None:
        return InstructionsRatio(None, reason=lacking)
    evidence = weigh(a, b, lambda process: process.instructions[0] or 0.0)
    found = evidence.estimate
    if evidence.broken:
        return InstructionsRatio(found.value, n=found.n, reason=f"the values show {' and '.join(evidence.broken)}")
    return InstructionsRatio(found.value, found.low, found.high, found.n)


@dataclass(frozen=True)
class Decision:
    """Verdict on B relative to A from the times alone."""

    verdict: Verdict
    ratio: Estimate
    p_value: float | None
    reason: str
    why: Reason


def decide(a: Sequence[float], b: Sequence[float], paired: bool, noise_floor: float = NOISE_FLOOR) -> Decision:
    """Faster or slower: the test is significant, the interval is on that side of 1, and the ratio is beyond the noise
    floor. Same: two one-sided tests and the whole interval place the ratio within the noise floor. Else undecided."""
    return _decide(estimators.paired(a, b) if paired else estimators.unpaired(a, b), noise_floor)


def _decide(
    found: Estimate, noise_floor: float, broken: Sequence[str] = (), lacking: Kind | None = None
) -> Decision:
    outcome = verdict_of(found.value, found.low, found.high, found.p_value, noise_floor)
    why = _why(found, outcome, broken, lacking)
    text = sentences.evidence(found, outcome, noise_floor, why)
    return Decision("undecided" if why.kind == "dependent" else outcome, found, found.p_value, text, why)


def _why(found: Estimate, outcome: Verdict, broken: Sequence[str], lacking: Kind | None) -> Reason:
    """The reason of a verdict by interval and test alone. lacking: the reason if the design allows neither."""
    if found.low is not None and found.high is not None:
        if outcome == "undecided":
            return reason("wide", findings=broken)
        if broken:
            return reason("dependent", findings=broken)
        return reason("equivalent" if outcome == "same" else "significant")
    if lacking is not None:
        unit: Unit = "occasions" if lacking == "not-interleaved" else "pairs"
        return reason(lacking, needed=None if lacking == "not-planned" else FEWEST, unit=unit, findings=broken)
    needed = Family(1).needed(found.test)
    if found.paired and found.n >= needed:
        return reason("too-few-on-an-occasion", needed=FEWEST_IN_STRATUM, unit="pairs", findings=broken)
    return reason("too-few", needed=needed, unit=found.unit, findings=broken)


@dataclass(frozen=True)
class Evidence:
    """The times of a comparison, their estimate, and a description of the design. broken: reasons why the interval may
    not hold. lacking: what the design lacks if it allows neither interval nor test."""

    a_s: Sequence[float]
    b_s: Sequence[float]
    estimate: Estimate
    design: str
    scope: str = ""
    e_value: float | None = None
    broken: tuple[str, ...] = ()
    diagnosis: tuple[str, ...] = ()
    lacking: Kind | None = None


Value = Callable[[Process], float]
STEP: Value = attrgetter("median_step_s")


def weigh(a: Sequence[Process], b: Sequence[Process], value: Value = STEP, tail: float = TAIL) -> Evidence:
    """Estimate from two variants' processes: paired where blocks pair them, else two samples, which need one
    interleaved occasion or enough occasions to be the sample. Under a stopping rule only estimates that hold at any
    time decide. value: of a process, positive. tail: what the interval leaves out at each end."""
    matched = matched_pairs(a, b)
    if len(matched) >= FEWEST or len(a) == len(b) == len(matched) > 1:
        return _in_pairs(a, b, matched, value, tail)
    return _side_by_side(a, b, value, tail)


def matched_pairs(a: Sequence[Process], b: Sequence[Process]) -> list[tuple[Process, Process]]:
    """Processes that ran in one block, in the order of a's blocks. Each is in one pair only: pairs that share a process
    are not independent."""
    partners: dict[Hashable, deque[Process]] = {}
    for process in b:
        partners.setdefault(process.pair, deque()).append(process)
    found = [
        (process, partners[process.pair].popleft())
        for process in a
        if process.pair is not None and partners.get(process.pair)
    ]
    return sorted(found, key=lambda pair: pair[0].block)


def _in_pairs(
    a: Sequence[Process],
    b: Sequence[Process],
    matched: Sequence[tuple[Process, Process]],
    value: Value,
    tail: float,
) -> Evidence:
    sequential = any(process.stop_rule for process in (*a, *b))
    a_s, b_s = [value(p) for p, _ in matched], [value(p) for _, p in matched]
    logs = logarithms(a_s) - logarithms(b_s)
    strata: dict[Hashable, list[float]] = {}
    for (process, _), log in zip(matched, logs, strict=True):
        strata.setdefault(process.occasion, []).append(log)
    found = diagnose(np.exp(logs))
    design, scope = f"{counted(len(matched), 'pair')} of processes", ""
    if len(matched) < max(len(a), len(b)):
        design += f", {counted(len(a) + len(b) - 2 * len(matched), 'process')} without a partner left out"
    if len(strata) == 1:
        estimate = estimators.anytime(logs, tail=tail) if sequential else estimators.of_logs(logs, tail=tail)
    else:
        pooled = pool([np.array(values) for values in strata.values()], "occasions", sequential, tail)
        estimate, scope = pooled.estimate, pooled.scope
        design += f" on {len(strata)} occasions: {scope}"
        found = replace(found, broken=pooled.broken)  # within occasions, since they may differ from each other
    return Evidence(a_s, b_s, estimate, design, scope, e_value(logs), found.broken, tuple(found.findings))


def _side_by_side(a: Sequence[Process], b: Sequence[Process], value: Value, tail: float) -> Evidence:
    a_s, b_s = [value(p) for p in a], [value(p) for p in b]
    design = f"{len(a)} and {len(b)} processes, not paired"
    if len(a) == len(b) == 1:
        design = "one process each: the figures describe their steps, and another process may be faster or slower"
        steps_s = step_values(a), step_values(b)
        return Evidence(*steps_s, estimators.bare(a_s, b_s), design, lacking="one-process")
    if interleaved(a, b) and not any(process.stop_rule for process in (*a, *b)):
        sides = [diagnose([value(p) for p in sorted(side, key=lambda p: p.block)]) for side in (a, b)]
        broken, diagnosis = (
            tuple(dict.fromkeys(itertools.chain(*texts)))
            for texts in ((side.broken for side in sides), (side.findings for side in sides))
        )
        return Evidence(a_s, b_s, estimators.unpaired(a_s, b_s, tail=tail), design, broken=broken, diagnosis=diagnosis)
    of_a, of_b = (
        list(by_occasion([p.occasion for p in side], values).values()) for side, values in ((a, a_s), (b, b_s))
    )
    if min(len(of_a), len(of_b)) >= FEWEST:
        counts = f"{len(of_a)} and {len(of_b)} occasions, one value each"
        return Evidence(a_s, b_s, estimators.unpaired(of_a, of_b, "occasions", tail), counts)
    lacking: Kind = "not-planned" if interleaved(a, b) else "not-interleaved"
    design += {
        "not-planned": ": their number was not fixed beforehand, and only pairs are valid then",
        "not-interleaved": f": not of one interleaved occasion, and only {FEWEST} occasions a side show how much those "
        "differ",
    }[lacking]
    return Evidence(a_s, b_s, estimators.bare(a_s, b_s), design, lacking=lacking)


def interleaved(a: Sequence[Process], b: Sequence[Process]) -> bool:
    """Whether both ran on one occasion, neither side later than the other: each side's middle block lies between the
    other's first and last, and a rank test of their blocks finds no difference at MIXED."""
    if len({process.occasion for process in (*a, *b)}) > 1 or a[0].occasion is None:
        return False
    blocks = [np.sort([float(process.block) for process in side]) for side in (a, b)]
    around = all(mine[0] <= other[len(other) // 2] <= mine[-1] for mine, other in (blocks, blocks[::-1]))
    return around and mann_whitney_p_value(*blocks) > MIXED


def by_occasion(occasions: Sequence[Hashable], values: Sequence[float]) -> dict[Hashable, float]:
    """The median of each known occasion."""
    known: dict[Hashable, list[float]] = {}
    for value, occasion in zip(values, occasions, strict=False):
        if occasion is not None:
            known.setdefault(occasion, []).append(value)
    return {occasion: median(of) for occasion, of in known.items()}


def rejudged(found: Comparison, p_adjusted: float | None, family: Family) -> Comparison:
    """The same comparison as one statement of a family: decided by an adjusted p-value, null for too few processes for
    any verdict. Same and refused do not change. The reason of an undecided one says if so few processes cannot decide
    it alone."""
    called = found.verdict in ("faster", "slower")
    sound = found.why.kind != "dependent"
    if found.p_value is None or not sound or (found.verdict != "undecided" and not called):
        return found
    if called and p_adjusted is not None and p_adjusted < 1 - CONFIDENCE:
        return found
    unit: Unit = "pairs" if found.paired else "occasions" if found.unit == "occasions" else "processes"
    if family.size > 1 and family.smallest_p(found.n, found.test) >= 1 - CONFIDENCE:
        needed = family.needed(found.test)
        why = reason("too-few-in-family", needed=needed, of=family, unit=unit, findings=found.why.findings)
    elif called:
        why = reason("adjusted", of=family, findings=found.why.findings)
    else:
        return found
    text = sentences.in_family(why, family, p_adjusted, found.reason)
    return _worded(replace(found, verdict="undecided", reason=text, why=why))


def _side(processes: Sequence[Process]) -> Side:
    variants = [facts.variant for facts in distinct(processes)]
    shared = {k: v for k, v in variants[0].items() if all(k in other and other[k] == v for other in variants)}
    run_ids = [process.run_id for process in processes]
    return Side(run_ids, shared, step_interval(processes), run_ids)


def _differences(processes: Sequence[Process]) -> list[str]:
    """Differences beside the compared settings. What a task does may follow from these, as the default fusion does."""
    named = {name for facts in distinct(processes) for name in facts.variant}
    compared = [name for name in COMPARED if not named or name in named or name not in WORK]
    left_out = (*compared, *PROBLEM, *with_role("place"))
    configs: list[Mapping[str, Any]] = [without(facts.config, left_out) for facts in distinct(processes)]
    names = sorted({name for config in configs for name in config})
    return [*environment_differences(processes), *core_differences(processes), *differing(configs, names)]


def _refusal(a: Sequence[Process], b: Sequence[Process]) -> str | None:
    """Reason why no ratio may be shown, or None."""
    both = sorted({process.run_id for process in a} & {process.run_id for process in b})
    if both:
        return f"A and B share {noun_for(len(both), 'run')} {', '.join(map(str, both))}"
    for name, side in (("A", a), ("B", b)):
        mixed = differing([facts.config for facts in distinct(side)], COMPARED)
        if mixed:
            return f"{name} mixes configurations: " + "; ".join(mixed)
    agreement = first_disagreement(a, b)
    return None if agreement.holds else agreement.reason


def verdict_of(
    ratio: float, low: float | None, high: float | None, p_value: float | None, noise_floor: float
) -> Verdict:
    """Verdict of a ratio by its interval and p-value; undecided without them."""
    if low is None or high is None or p_value is None:
        return "undecided"
    if p_value < 1 - CONFIDENCE and low > 1 and ratio >= 1 + noise_floor:
        return "faster"
    if p_value < 1 - CONFIDENCE and high < 1 and ratio <= 1 / (1 + noise_floor):
        return "slower"
    if 1 / (1 + noise_floor) < low and high < 1 + noise_floor:
        return "same"
    return "undecided"


def identity(process: Process) -> str:
    """A key that is equal for repetitions: the same variant and configuration, on any cores."""
    return process.facts.once(_identity)


def _identity(facts: Facts) -> str:
    return json.dumps([facts.variant, without(facts.config, ("cores",))], sort_keys=True)
