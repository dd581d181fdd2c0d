"""The answer, assembled from the verdicts: every figure is in the report, and every claim is a verdict's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, TypeVar

from gpt2core.spec.phases import PASSES
from gpt2core.spec.schedulers import facts
from gpt2core.spec.wording import counted, enumerated
from taskloom.analysis import sentences
from taskloom.analysis.causes import EfficiencyRow, RooflineRow
from taskloom.analysis.communication import CommunicationRow
from taskloom.analysis.goals import GoalRow
from taskloom.analysis.report.content import Report
from taskloom.analysis.report.elements import ms
from taskloom.analysis.rows import AgainstFaster, Pooled, PrimaryRow, SweepRow
from taskloom.analysis.scaling import ScalingRow, ScalingRows
from taskloom.analysis.sweep import Sweep
from taskloom.analysis.variants import Variant
from taskloom.analysis.verdict import Headline
from taskloom.analysis.wording import Sides, settings, sides_of, tiles_name, told_apart, value_name

Cause = TypeVar("Cause", EfficiencyRow, CommunicationRow, RooflineRow)
Compared = TypeVar("Compared", SweepRow, Pooled)
Statement = SweepRow | Pooled | AgainstFaster


def answer(report: Report) -> list[str]:
    """Up to five points: the verdict on the question and the axis, what disturbed the runs, the fastest variant, why,
    on more cores. Of a workload its answers, and what disturbed the runs."""
    if report.workload is not None and report.workload.networks:
        return [*report.workload.answers, " ".join(_reservations(report))]
    if not report.scaling.rows:
        return ["No run has succeeded: there is nothing to conclude."]
    verdict, fastest = list(_comparisons(report.sweep)), [*_fastest(report), *_runtimes(report)]
    first, third = (verdict, fastest) if verdict else (fastest, [])
    causes = (*_waiting(report), *_communication(report), *_memory_bound(report))
    points = (first, _reservations(report), third, causes, _forecast(report))
    return [text for point in points if (text := " ".join(point))]


def milliseconds(value_s: float) -> str:
    """A step's time, always in milliseconds."""
    return f"{ms(value_s)} ms"


def comparisons(sweep: Sweep) -> list[tuple[str | None, SweepRow]]:
    """The question first, then the other comparisons along the axis; each with its axis."""
    question = [] if sweep.primary is None else [(sweep.primary.axis, sweep.primary)]
    return [*question, *((sweep.axis, row) for row in sweep.rows if not row.primary)]


def statements(sweep: Sweep) -> list[tuple[str, str, Statement]]:
    """Every statement of a sweep, with its place and its sides in words: the question, tasks against the faster loops,
    ratios over several places, the other comparisons."""
    rows = [(place_of(row), against(axis, row), row) for axis, row in comparisons(sweep)]
    faster = [(f"the faster by {row.op_order or '-'}, {at({**row.at, 'threads': row.threads})}",
               f"{row.b} against {row.a}", row) for row in sweep.against_faster]  # fmt: skip
    pooled = [(f"all {row.places} places, {by_order(row)}{threads(row.threads)}", against(sweep.axis, row), row)
              for row in sweep.pooled]  # fmt: skip
    first = sweep.primary is not None
    return [*rows[:first], *faster, *pooled, *rows[first:]]


def across(sweep: Sweep) -> list[PrimaryRow]:
    """The question, if it lies across the axis and so is no row of the sweep."""
    question = sweep.primary
    return [] if question is None or any(row.primary for row in sweep.rows) else [question]


def axis_of(sweep: Sweep, row: Statement) -> str | None:
    """The setting of which a row's sides are values; null: they differ in several."""
    return row.axis if isinstance(row, PrimaryRow) else sweep.axis


def against(axis: str | None, row: SweepRow | Pooled) -> str:
    """The sides of a comparison: task against fork-join."""
    return f"{value_name(axis, row.b)} against {value_name(axis, row.a)}"


def sides(sweep: Sweep) -> Sides:
    """What the comparisons of a sweep have in common."""
    return sides_of((axis_of(sweep, row), row.a, row.b) for row in (*across(sweep), *sweep.rows))


def place(sweep: Sweep, row: Statement, where: str) -> str:
    """The subject of a row of a sweep, its values in the order of the ratio: fork-join / task, 2 threads; without the
    values that all rows share."""
    if sides(sweep).shared:
        return where
    return f"{' / '.join(value_name(axis_of(sweep, row), side) for side in (row.a, row.b))}, {where}"


def place_of(row: SweepRow) -> str:
    """Place of a comparison in the sweep: slices 1x64, 2 threads; the question: everything else equal."""
    return ("the question: " if row.primary else "") + at(row.at)


def by_order(row: Pooled) -> str:
    """The order of the loops of a pooled ratio, if the experiment has several."""
    return f"by {row.op_order}, " if row.op_order else ""


def variant_name(of: Variant | ScalingRow | GoalRow) -> str:
    """task (sync none) 1x64, 2 threads; the sync where steps of the graph may overlap, if it is the same everywhere."""
    known = facts(of.scheduler)
    overlaps = known is not None and known.order == "graph"
    sync = of.sync if overlaps and isinstance(of, Variant) and "sync" not in of.variant else ""
    return f"{of.scheduler}{sync and f' (sync {sync})'} {told_apart(of)}, {threads(of.threads)}"


def _fastest(report: Report) -> Iterator[str]:
    best, beats, rows = report.sweep.best, report.sweep.beats_share, report.scaling.rows
    if best is None:
        return
    row = next(row for row in rows if row.step_s.median == report.sweep.best_step_s and _key(row) == _key(best))
    bounds = row.step_s
    low, high = bounds.low, bounds.high
    over = " over the steps of its only process" if bounds.over == "steps" else ""
    interval = ""
    if low is not None and high is not None:
        interval = f" (95 % interval{over} {milliseconds(low)} to {milliseconds(high)})"
    alone = len(rows) == 1
    leads = "variant with the smallest median" if beats != 1 else "fastest variant"
    leads = "only variant with a result" if alone else leads
    yield (
        f"The {leads} is {variant_name(best)}: {milliseconds(bounds.median)} a step{interval}, "
        f"{row.tokens_per_s:,.0f} {row.unit}/s."
    )
    if any(row.verdict != "refused" for _, row in comparisons(report.sweep)):
        share = "all" if beats == 1 else f"{beats:.0%} of the" if beats else "none of the"
        yield f"It is proven faster than {share} others that compute the same."
    if row.speedup is not None and row.threads > 1:
        low, high = row.speedup_low, row.speedup_high
        interval = "" if low is None else f" [{low:.2f}, {high:.2f}]"
        yield f"It is {row.speedup:.2f}{interval} times as fast as one thread of the same scheduler and slices."
    roofs = next((each for each in report.roofline if each.variant == best), None)
    if roofs is not None and roofs.mfu is not None:
        text = f"{roofs.mfu:.1%} of the peak of matrix products"
        if roofs.mfu_registers is not None:
            text += f" and {roofs.mfu_registers:.1%} of the peak of registers"
        yield f"Its model-FLOP utilisation is {text}, measured with the same number of threads."


def _comparisons(sweep: Sweep) -> Iterator[str]:
    """The experiment's verdict, then those of the other comparisons on the most threads."""
    if sweep.rows or sweep.primary is not None or sweep.primary_missing:
        yield (first := sweep.verdict.sentence)
        yield from (row.sentence for row in sweep.against_faster if row.sentence not in first)
    others = [row for row in sweep.rows if not row.primary]
    most = max((row.at.get("threads", 0) for row in others), default=0)
    places = [row for row in others if row.verdict == "refused" or row.at.get("threads", most) == most]
    pooled = [row for row in sweep.pooled if row.ratio_low is not None]
    yield from (row.sentence for row in _unsaid(pooled, sweep.verdict))
    yield from sentences.listed(sweep.axis, _unsaid(places, sweep.verdict))


def _unsaid(rows: Sequence[Compared], verdict: Headline) -> list[Compared]:
    """Rows without the first one that the experiment's verdict is about: their figures are the same."""
    headline = verdict.verdict, verdict.ratio, verdict.low
    said = next((i for i, row in enumerate(rows) if (row.verdict, row.ratio, row.ratio_low) == headline), None)
    return [row for i, row in enumerate(rows) if i != said]


def _runtimes(report: Report) -> Iterator[str]:
    for name, schedulers in report.environment.runtimes.items():
        yield f"{' and '.join(schedulers)} used the OpenMP runtime {name}."


def at(values: Mapping[str, Any]) -> str:
    """Settings besides the sides of a comparison: slices 1x64, 2 threads."""
    return settings(values) or "everything else equal"


def threads(count: int) -> str:
    return counted(count, "thread")


def _waiting(report: Report) -> Iterator[str]:
    for row in _best_rows(report.scaling, report.efficiency):
        if row.waiting is None:
            continue
        times_s = row.waiting.times_s
        useful, serial, barrier, scheduling = (each / sum(times_s) for each in times_s)
        yield (
            f"Under {variant_name(row.variant)}, the threads spend {useful:.1%} of their time in tasks, "
            f"{barrier:.1%} at barriers, {serial:.1%} without a ready task and {scheduling:.2%} in scheduling."
        )


def _communication(report: Report) -> Iterator[str]:
    for row in _best_rows(report.scaling, report.communication):
        if row.hidden is not None:
            in_flight_s = fmean(rank.in_flight_s for rank in row.ranks)
            yield (
                f"Under {variant_name(row.variant)}, messages between ranks are in flight for "
                f"{milliseconds(in_flight_s)} of a step, of which computation hides {row.hidden:.0%}."
            )


def _memory_bound(report: Report) -> Iterator[str]:
    best = report.sweep.best
    for row in _best_rows(report.scaling, report.roofline):
        if best is None or row.variant.scheduler != best.scheduler:
            continue
        known = {phase.phase: phase for phase in row.phases}
        for phase in (known[name] for name in PASSES if name in known):
            answer = {"yes": "is memory-bound", "no": "is not memory-bound", "partly": "is partly memory-bound"}
            yield f"{phase.phase.capitalize()} {answer[phase.answer]}: {phase.reason}."


def _best_rows(scaling: ScalingRows, rows: Iterable[Cause]) -> list[Cause]:
    """Row of each scheduler's fastest variant on the most threads."""
    step_s = {_key(row): row.step_s.median for row in scaling.rows}
    most = max(row.threads for row in scaling.rows)
    best: dict[str, Cause] = {}
    for row in rows:
        of = row.variant
        known = best.get(of.scheduler)
        if of.threads == most and (known is None or step_s[_key(of)] < step_s[_key(known.variant)]):
            best[of.scheduler] = row
    return list(best.values())


def _key(of: Variant | ScalingRow) -> str:
    return str([of.variant, of.scheduler, of.threads, of.batch_slice, of.token_slice])


def _forecast(report: Report) -> Iterator[str]:
    every = report.forecast.forecasts
    known = [(each, each.worst_error) for each in every if each.worst_error is not None]
    if not known:
        if every:
            yield "Forecasts for more cores are not checked: no step on more than one thread was measured."
        return
    found = [(each, error) for each, error in known if each.given]
    if not found:
        least = min(error for _, error in known)
        yield f"Forecasts for more cores differ from the measured steps by {least:.0%} or more, so none is given."
        return
    within, missed = max(error for _, error in found), len(known) - len(found)
    yield f"From one thread, replaying the graph forecasts the measured steps on more within {within:.1%}."
    if missed:
        worst = max(error for _, error in known)
        yield f"This leaves out {missed} of {counted(len(known), 'forecast')}, which miss by up to {worst:.0%}."
    widest = max((each for each, _ in found), key=lambda forecast: forecast.tasks)
    by_scheduler: dict[str, list[float]] = {}
    for curve in widest.curves:
        by_scheduler.setdefault(curve.scheduler, []).append(curve.points[-1].speedup)
    cores = widest.curves[0].points[-1].cores
    text = enumerated(
        f"{_between(min(values), max(values))} under {scheduler}" for scheduler, values in by_scheduler.items()
    )
    cut = tiles_name(widest.source)
    yield f"On {cores} cores, slices {cut} would reach a speedup of {text}, under the assumptions listed below."


def _of_runs(count: int, report: Report) -> str:
    runs = sum(len(row.processes) for row in report.samples)
    return f"the {runs} runs" if count == runs else f"{count} of {runs} runs"


def _between(low: float, high: float) -> str:
    return f"{low:.1f}" if f"{low:.1f}" == f"{high:.1f}" else f"{low:.1f} to {high:.1f}"


def _reservations(report: Report) -> Iterator[str]:
    """Runs without a result, what disturbed the others, what is left out, and which rules do not hold."""
    left_out, unwatched = report.left_out, report.unwatched
    lacking = {state: count for state, count in report.experiment.by_state.items() if count and state != "succeeded"}
    if lacking:
        states = ", ".join(f"{count} {state}" for state, count in lacking.items())
        yield f"{sum(lacking.values())} of {counted(report.experiment.runs, 'run')} have no result ({states})."
    if left_out:
        several = len(left_out) > 1
        yield (
            f"{counted(len(left_out), 'run')} with foreign load {'are' if several else 'is'} left out, as "
            f"requested; the report lists {'them with their' if several else 'it with its'} samples."
        )
    if unwatched:
        yield f"It is not known whether other processes ran during {_of_runs(len(unwatched), report)}."
    if report.disturbed is None:
        yield "No run was seen to be disturbed." if unwatched else "No run was disturbed."
    else:
        yield f"{report.disturbed}; {'the others' if left_out else 'they'} are marked and included in all figures."
    broken = [rule for rule in report.card if rule.holds != "yes"]
    if broken:
        numbers = ", ".join(str(rule.number) for rule in broken)
        yield f"Measurement rules not fully kept: {numbers} (see the report card)."
