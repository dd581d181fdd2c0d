"""The one maker of sentences about comparisons, from typed reasons and figures. No code reads a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from gpt2core.spec.wording import counted, enumerated
from taskloom.analysis.estimators import CONFIDENCE, FEWEST, Estimate, Unit
from taskloom.analysis.family import Family
from taskloom.analysis.reasons import Kind, Reason, Verdict
from taskloom.analysis.rows import SweepRow
from taskloom.analysis.wording import disturbed_share, is_or_are, settings, value_name, words

UNDECIDED = "It is undecided whether {b} or {a} is faster"
NO_RUN = "No run has succeeded."
NO_SIDE = "The question cannot be answered: no run of one of its sides has succeeded."
NARROW = "more repetitions narrow the interval"


def reason(
    kind: Kind,
    *,
    needed: int | None = None,
    of: Family | None = None,
    unit: Unit | None = None,
    findings: Sequence[str] = (),
) -> Reason:
    """A reason with its sentence."""
    listed = " and ".join(findings)
    words = {
        "significant": "the test and the interval exclude equal times",
        "equivalent": "the whole interval lies within the noise floor",
        "wide": NARROW,
        "dependent": f"the interval does not hold, because the values show {listed}",
        "adjusted": f"the ratio is not significant as one of {of}; {NARROW}",
        "too-few": f"a verdict needs at least {_amount(needed, unit)} on one occasion",
        "too-few-in-family": f"there are too few runs: one of {of} needs at least {_amount(needed, unit)}",
        "too-few-on-an-occasion": f"a verdict needs at least {_amount(needed, unit)} on every occasion",
        "too-few-at-a-place": f"a verdict needs at least {_amount(needed, unit)} at every place",
        "one-process": f"one process a side shows nothing about others; a verdict needs at least "
        f"{_amount(needed, unit)} on one occasion",
        "not-interleaved": f"a verdict needs runs in interleaved blocks, or {_amount(needed, unit)}",
        "not-planned": "the number of runs was not fixed beforehand, and only pairs of runs are valid then",
        "refused": listed,
    }[kind]
    return Reason(kind, needed, None if of is None else of.size, unit, list(findings), _sentence(words))


def _amount(count: int | None, unit: Unit | None) -> str:
    """A sample size: 7 pairs of runs, 6 runs a side, 1 occasion a side."""
    noun = {"pairs": "pair", "processes": "run", "occasions": "occasion", "places": "place", None: "value"}[unit]
    tail = {"pairs": " of runs", "processes": " a side", "occasions": " a side", "places": "", None: ""}[unit]
    return counted(count or 0, noun) + tail


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


def disturbed(sentence: str, count: int, runs: int) -> str:
    """The sentence with the share of disturbed runs: first if most are disturbed."""
    if not count:
        return sentence
    share = disturbed_share(count, runs)
    return f"{share}. {sentence}" if 2 * count > runs else f"{sentence} {share}."


def figures(ratio: float | None, low: float | None, high: float | None) -> str:
    """A ratio with its interval: 1.017 [1.011, 1.023]."""
    if ratio is None:
        return "-"
    return f"{ratio:.3f}" if low is None or high is None else f"{ratio:.3f} [{low:.3f}, {high:.3f}]"


def verdict(
    outcome: Verdict, a: str, b: str, ratio: str, why: Reason, *, where: str = "", several: str = "", verb: str = "is"
) -> str:
    """The verdict on b relative to a. ratio: figures; where, several: with what, and among what they are compared."""
    if outcome == "refused":
        return f"The comparison of {b} with {a}{where} is refused: {' and '.join(why.findings)}."
    reading = f"{a} time / {b} time {ratio}"
    words = {
        "faster": f"{b} {verb} {ratio} times as fast as {a}{where}",
        "slower": f"{b} {verb} slower: {ratio} times as fast as {a}{where}",
        "same": f"{b} and {a} are equivalent within the noise floor{where}: {reading}",
        "undecided": f"{UNDECIDED.format(a=a, b=b)}{where}: {reading}",
    }[outcome]
    missing = f" {why.sentence}" if outcome == "undecided" else ""
    return f"{words}{several}.{missing}"


def of_settings(at: Mapping[str, Any]) -> str:
    """What a comparison has besides its sides: on 2 threads, with slices 1x64, 2 threads."""
    return f" on {settings(at)}" if list(at) == ["threads"] else f" with {settings(at)}" if at else ""


def of_places(scope: str, names: Sequence[str]) -> str:
    """The population of a pooled ratio. names: the settings in which its places differ."""
    return f"{scope}, which differ in {enumerated(map(words, names))}" if names else scope


def of_sides(
    outcome: Verdict, axis: str | None, a: Any, b: Any, ratio: str, why: Reason, *, where: str = "", several: str = ""
) -> str:
    """The verdict on two values of an axis, or on two objects of settings."""
    names = value_name(axis, a), value_name(axis, b)
    return verdict(outcome, *names, ratio, why, where=where, several=several, verb=is_or_are(axis, b))


def of_variants(outcome: Verdict, a: Mapping[str, Any], b: Mapping[str, Any], ratio: str, why: Reason) -> str:
    """The verdict on two variants, named by the settings in which they differ, else A and B."""
    differing = [name for name in a if name in b and a[name] != b[name]]
    if not differing or a.keys() != b.keys():
        return verdict(outcome, "A", "B", ratio, why)
    where = of_settings({name: value for name, value in a.items() if name not in differing})
    if len(differing) == 1:
        return of_sides(outcome, differing[0], a[differing[0]], b[differing[0]], ratio, why, where=where)
    first, second = ({name: side[name] for name in differing} for side in (a, b))
    return of_sides(outcome, None, first, second, ratio, why, where=where)


def listed(axis: str | None, rows: Iterable[SweepRow]) -> Iterator[str]:
    """The sentences of a sweep's rows. Undecided rows of equal sides and for one reason share a sentence."""
    groups: dict[Any, list[SweepRow]] = {}
    for i, row in enumerate(rows):
        shared = (str(row.a), str(row.b), row.why.sentence)
        groups.setdefault(shared if row.verdict == "undecided" else i, []).append(row)
    for row, *others in groups.values():
        if not others:
            yield row.sentence
            continue
        a, b = value_name(axis, row.a), value_name(axis, row.b)
        ratios = "; ".join(
            f"{figures(each.ratio, each.ratio_low, each.ratio_high)}{of_settings(each.at)}"
            for each in (row, *others)
        )
        yield f"{UNDECIDED.format(a=a, b=b)}: {a} time / {b} time {ratios}. {row.why.sentence}"


def evidence(found: Estimate, outcome: Verdict, noise_floor: float, why: Reason) -> str:
    """The reason of a comparison with its figures, for who checks a verdict."""
    ratio = f"ratio {found.value:.4f}"
    if found.low is None or found.high is None:
        if found.p_value is None and found.n >= FEWEST:
            return f"these processes allow no interval and no test ({ratio})"
        place = {"too-few-on-an-occasion": "on every occasion"}.get(why.kind, "on one occasion")
        a_side = "" if found.paired else "a side "
        return f"too few processes to tell, whatever they show: at least {why.needed} {a_side}{place} ({ratio})"
    all_of_it = f"{ratio}, {CONFIDENCE:.0%} interval {found.low:.4f} to {found.high:.4f}, p = {found.p_value:.2g}"
    if why.kind == "dependent":
        return f"would be {outcome}, but the values show {' and '.join(why.findings)} ({all_of_it})"
    if outcome == "same":
        return f"equivalent within the noise floor of {noise_floor:.2%} ({all_of_it})"
    return f"the interval allows more than one verdict ({all_of_it})" if outcome == "undecided" else all_of_it


def in_family(why: Reason, family: Family, p_adjusted: float | None, alone: str) -> str:
    """The reason of a comparison that its family leaves undecided. alone: the reason before."""
    if why.kind == "too-few-in-family":
        least = f"one of {family} needs at least {why.needed} per side to be decided alone"
        return f"too few processes: {least}, whatever the times ({alone})"
    return f"one of {family}: adjusted p = {p_adjusted:.2g} ({alone})"


def membership(comparisons: Family, experiment_id: int, p_adjusted: float | None, alone: Verdict, primary: bool) -> str:
    """With which statements a comparison of two variants of one experiment was judged; empty: with none."""
    if primary:
        return f"It is the question of experiment {experiment_id}, judged alone."
    if comparisons.size == 1:
        return ""
    adjusted = "" if p_adjusted is None else f", adjusted p = {p_adjusted:.2g}"
    return f"It is judged as one of {comparisons} of experiment {experiment_id}{adjusted}; alone: {alone}."
