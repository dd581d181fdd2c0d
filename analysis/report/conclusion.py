"""The answer, assembled from the verdicts: every figure is in the document, and every claim is a verdict's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import Any

from gpt2core.spec.phases import PASSES
from gpt2core.spec.schedulers import facts
from gpt2core.spec.wording import counted, enumerated, slices
from taskloom.analysis import sentences
from taskloom.analysis.report.elements import ms
from taskloom.analysis.wording import Sides, settings, sides_of, value_name

Document = Mapping[str, Any]  # the report as JSON; server/read/analysis/document.py describes it


def answer(document: Document) -> list[str]:
    """Up to five points: the verdict on the question and the axis, what disturbed the runs, the fastest variant, why,
    on more cores."""
    if not document["scaling"]["rows"]:
        return ["No run has succeeded: there is nothing to conclude."]
    verdict, fastest = list(_comparisons(document)), [*_fastest(document), *_runtimes(document)]
    first, third = (verdict, fastest) if verdict else (fastest, [])
    causes = (*_waiting(document), *_communication(document), *_memory_bound(document))
    points = (first, reservations(document), third, causes, _forecast(document))
    return [text for point in points if (text := " ".join(point))]


def milliseconds(value_s: float) -> str:
    """A step's time, always in milliseconds."""
    return f"{ms(value_s)} ms"


def across(sweep: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The question, if it lies across the axis and so is no row of the sweep."""
    question = sweep["primary"]
    return [] if question is None or any(row["primary"] for row in sweep["rows"]) else [question]


def axis_of(sweep: Mapping[str, Any], row: Mapping[str, Any]) -> str | None:
    """The setting of which a row's sides are values; null: they differ in several."""
    axis: str | None = row.get("axis", sweep["axis"])
    return axis


def sides(sweep: Mapping[str, Any]) -> Sides:
    """What the comparisons of a sweep have in common."""
    return sides_of((axis_of(sweep, row), row["a"], row["b"]) for row in (*across(sweep), *sweep["rows"]))


def place(sweep: Mapping[str, Any], row: Mapping[str, Any], where: str = "") -> str:
    """The subject of a row of a sweep, its values in the order of the ratio: fork-join / task, 2 threads; without the
    values that all rows share. where: in place of the row's settings."""
    where = where or ("the question: " if row["primary"] else "") + at(row)
    if sides(sweep).shared:
        return where
    return f"{' / '.join(value_name(axis_of(sweep, row), row[side]) for side in 'ab')}, {where}"


def by_order(row: Mapping[str, Any]) -> str:
    """The order of the loops of a pooled ratio, if the experiment has several."""
    return f"by {row['op_order']}, " if row.get("op_order") else ""


def variant_name(variant: Mapping[str, Any]) -> str:
    """task (sync none) 1x64, 2 threads; sync where steps of the graph may overlap."""
    known = facts(variant["scheduler"])
    overlaps = known is not None and known.order == "graph"
    sync = f" (sync {variant['sync']})" if overlaps and variant.get("sync") else ""
    return f"{variant['scheduler']}{sync} {slices(variant)}, {threads(variant['threads'])}"


def _fastest(document: Document) -> Iterator[str]:
    sweep = document["sweep"]
    best = sweep["best"]
    row = next(row for row in document["scaling"]["rows"] if row["step_s"]["median"] == sweep["best_step_s"])
    bounds = row["step_s"]
    low, high = bounds["low"], bounds["high"]
    over = " over the steps of its only process" if bounds["over"] == "steps" else ""
    interval = "" if low is None else f" (95 % interval{over} {milliseconds(low)} to {milliseconds(high)})"
    beats = sweep["beats_share"]
    alone = len(document["scaling"]["rows"]) == 1
    leads = "only variant" if alone else "fastest variant" if beats == 1 else "variant with the smallest median"
    yield (
        f"The {leads} is {variant_name(best)}: {milliseconds(bounds['median'])} a step{interval}, "
        f"{row['tokens_per_s']:,.0f} {row.get('unit', 'tokens')}/s."
    )
    if not alone:
        share = "all" if beats == 1 else f"{beats:.0%} of the" if beats else "none of the"
        yield f"It is proven faster than {share} others that compute the same."
    if row["speedup"] is not None and row["threads"] > 1:
        low, high = row["speedup_low"], row["speedup_high"]
        interval = "" if low is None else f" [{low:.2f}, {high:.2f}]"
        yield f"It is {row['speedup']:.2f}{interval} times as fast as one thread of the same scheduler and slices."
    roofs: Document = next((each for each in document["roofline"] if each["variant"] == best), {})
    if roofs.get("mfu") is not None:
        text = f"{roofs['mfu']:.1%} of the peak of matrix products"
        if roofs.get("mfu_registers") is not None:
            text += f" and {roofs['mfu_registers']:.1%} of the peak of registers"
        yield f"Its model-FLOP utilisation is {text}, measured with the same number of threads."


def _comparisons(document: Document) -> Iterator[str]:
    """The experiment's verdict, then those of the other comparisons on the most threads."""
    sweep = document["sweep"]
    if sweep["rows"] or sweep["primary"] is not None or sweep["primary_missing"]:
        yield (first := str(sweep["verdict"]["sentence"]))
        yield from (row["sentence"] for row in sweep.get("against_faster", ()) if row["sentence"] not in first)
    others = [row for row in sweep["rows"] if not row["primary"]]
    most = max((row["at"].get("threads", 0) for row in others), default=0)
    places = [row for row in others if row["verdict"] == "refused" or row["at"].get("threads", most) == most]
    pooled = [row for row in sweep["pooled"] if row["ratio_low"] is not None]
    for rows in (pooled, places):
        said = next((i for i, row in enumerate(rows) if _is_headline(row, sweep["verdict"])), None)
        if said is not None:
            del rows[said]
    yield from (row["sentence"] for row in pooled)
    yield from sentences.listed(sweep["axis"], places)


def _is_headline(row: Mapping[str, Any], verdict: Mapping[str, Any]) -> bool:
    """Whether the experiment's verdict is that on this row: their figures are the same."""
    return [row[name] for name in ("verdict", "ratio", "ratio_low")] == [
        verdict[name] for name in ("verdict", "ratio", "low")
    ]


def _runtimes(document: Document) -> Iterator[str]:
    for name, schedulers in document["environment"].get("runtimes", {}).items():
        yield f"{' and '.join(schedulers)} used the OpenMP runtime {name}."


def at(row: Mapping[str, Any]) -> str:
    """Place of a comparison in the sweep: slices 1x64, 2 threads."""
    return settings(row["at"]) or "everything else equal"


def threads(count: int) -> str:
    return counted(count, "thread")


def _waiting(document: Document) -> Iterator[str]:
    for row in _best_rows(document, "efficiency"):
        if not row["waiting"]:
            continue
        parts = row["waiting"]
        capacity_s = sum(parts[name] for name in ("useful_s", "serial_s", "load_balance_s", "scheduling_s"))
        useful, serial, barrier, scheduling = (
            parts[name] / capacity_s for name in ("useful_s", "serial_s", "load_balance_s", "scheduling_s")
        )
        yield (
            f"Under {variant_name(row['variant'])}, the threads spend {useful:.1%} of their time in tasks, "
            f"{barrier:.1%} at barriers, {serial:.1%} without a ready task and {scheduling:.2%} in scheduling."
        )


def _communication(document: Document) -> Iterator[str]:
    for row in _best_rows(document, "communication"):
        if row["hidden"] is not None:
            in_flight_s = fmean(rank["in_flight_s"] for rank in row["ranks"])
            yield (
                f"Under {variant_name(row['variant'])}, messages between ranks are in flight for "
                f"{milliseconds(in_flight_s)} of a step, of which computation hides {row['hidden']:.0%}."
            )


def _memory_bound(document: Document) -> Iterator[str]:
    for row in _best_rows(document, "roofline"):
        if row["variant"]["scheduler"] != document["sweep"]["best"]["scheduler"]:
            continue
        known = {phase["phase"]: phase for phase in row["phases"]}
        for phase in (known[name] for name in PASSES if name in known):
            answer = {"yes": "is memory-bound", "no": "is not memory-bound", "partly": "is partly memory-bound"}
            yield f"{phase['phase'].capitalize()} {answer[phase['answer']]}: {phase['reason']}."


def _best_rows(document: Document, table: str) -> list[Mapping[str, Any]]:
    """Row of each scheduler's fastest variant on the most threads."""
    step_s = {_key(row): row["step_s"]["median"] for row in document["scaling"]["rows"]}
    most = max(row["threads"] for row in document["scaling"]["rows"])
    best: dict[str, Mapping[str, Any]] = {}
    for row in document.get(table) or ():  # earlier documents have not all tables
        variant = row["variant"]
        known = best.get(variant["scheduler"])
        if variant["threads"] != most:
            continue
        if known is None or step_s[_key(variant)] < step_s[_key(known["variant"])]:
            best[variant["scheduler"]] = row
    return list(best.values())


def _key(row: Mapping[str, Any]) -> str:
    return str([row["variant"], *(row[name] for name in ("scheduler", "threads", "batch_slice", "token_slice"))])


def _forecast(document: Document) -> Iterator[str]:
    known = [each for each in document["forecast"]["forecasts"] if each["worst_error"] is not None]
    if not known:
        if document["forecast"]["forecasts"]:
            yield "Forecasts for more cores are not checked: no step on more than one thread was measured."
        return
    found = [each for each in known if each["given"]]
    if not found:
        least = min(each["worst_error"] for each in known)
        yield f"Forecasts for more cores differ from the measured steps by {least:.0%} or more, so none is given."
        return
    errors, missed = [each["worst_error"] for each in found], len(known) - len(found)
    yield f"From one thread, replaying the graph forecasts the measured steps on more within {max(errors):.1%}."
    if missed:
        worst = max(each["worst_error"] for each in known)
        yield f"This leaves out {missed} of {len(known)} slicings, whose forecasts miss by up to {worst:.0%}."
    widest = max(found, key=lambda forecast: forecast["tasks"])
    by_scheduler: dict[str, list[float]] = {}
    for curve in widest["curves"]:
        by_scheduler.setdefault(curve["scheduler"], []).append(curve["points"][-1]["speedup"])
    cores = widest["curves"][0]["points"][-1]["cores"]
    text = enumerated(
        f"{_between(min(values), max(values))} under {scheduler}" for scheduler, values in by_scheduler.items()
    )
    cut = slices(widest["source"])
    yield f"On {cores} cores, slices {cut} would reach a speedup of {text}, under the assumptions listed below."


def _of_runs(count: int, document: Document) -> str:
    runs = sum(len(row["processes"]) for row in document["samples"])
    return f"the {runs} runs" if count == runs else f"{count} of {runs} runs"


def _between(low: float, high: float) -> str:
    return f"{low:.1f}" if f"{low:.1f}" == f"{high:.1f}" else f"{low:.1f} to {high:.1f}"


def reservations(document: Document) -> Iterator[str]:
    """What disturbed the runs, what is left out, and which rules do not hold."""
    if document["left_out"]:
        several = len(document["left_out"]) > 1
        yield (
            f"{counted(len(document['left_out']), 'run')} with foreign load {'are' if several else 'is'} left out, as "
            f"requested; the report lists {'them with their' if several else 'it with its'} samples."
        )
    disturbed = document["disturbed"]
    unwatched = document["unwatched"]
    if unwatched:
        yield f"It is not known whether other processes ran during {_of_runs(len(unwatched), document)}."
    if disturbed is None:
        yield "No run was seen to be disturbed." if unwatched else "No run was disturbed."
    else:
        yield f"{disturbed}; {'the others' if document['left_out'] else 'they'} are marked and included in all figures."
    broken = [rule for rule in document["card"] if rule["holds"] != "yes"]
    if broken:
        numbers = ", ".join(str(rule["number"]) for rule in broken)
        yield f"Measurement rules not fully kept: {numbers} (see the report card)."
