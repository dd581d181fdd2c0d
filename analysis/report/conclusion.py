"""The answer, assembled from the verdicts: every figure is in the document, and every claim is a verdict's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpt2core.spec.schedulers import facts
from taskloom.analysis.wording import Sides, counted, is_or_are, settings, sides_of, value_name

Document = Mapping[str, Any]
PHASES = ("forward", "backward")


def answer(document: Document) -> list[str]:
    """Up to five points: the verdict on the question and the axis, what disturbed the runs, the fastest variant, why,
    on more cores. What disturbed the runs comes first if most were disturbed."""
    if not document["scaling"]["rows"]:
        return ["No run has succeeded: there is nothing to conclude."]
    verdict, fastest = list(_comparisons(document)), [*_fastest(document), *_runtimes(document)]
    first, third = (verdict, fastest) if verdict else (fastest, [])
    causes = (*_waiting(document), *_memory_bound(document))
    ahead = (first, list(_reservations(document)))
    points = (*(ahead[::-1] if _mostly_disturbed(document) else ahead), third, causes, _forecast(document))
    return [text for sentences in points if (text := " ".join(sentences))]


def milliseconds(value_s: float) -> str:
    """A step's time, always in milliseconds."""
    value = value_s * 1e3
    return f"{value:,.0f} ms" if value >= 1e4 else f"{value:,.4g} ms"


def sides(sweep: Mapping[str, Any]) -> Sides:
    """What the comparisons of a sweep have in common."""
    return sides_of(sweep["axis"], ((row["a"], row["b"]) for row in sweep["rows"]))


def place(sweep: Mapping[str, Any], row: Mapping[str, Any], where: str = "") -> str:
    """The subject of a row of a sweep, its values in the order of the ratio: fork-join / task, 2 threads; without the
    values that all rows share. where: in place of the row's settings."""
    where = where or at(row)
    if sides(sweep).shared:
        return where
    return f"{' / '.join(value_name(sweep['axis'], row[side]) for side in 'ab')}, {where}"


def variant_name(variant: Mapping[str, Any]) -> str:
    """task (sync none) 1x64, 2 threads; sync where steps of the graph may overlap."""
    known = facts(variant["scheduler"])
    overlaps = known is not None and known.order == "graph"
    sync = f" (sync {variant['sync']})" if overlaps and variant.get("sync") else ""
    slices = f"{variant['batch_slice']}x{variant['token_slice']}"
    return f"{variant['scheduler']}{sync} {slices}, {threads(variant['threads'])}"


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
        f"{row['tokens_per_s']:,.0f} tokens/s."
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
        told = f"{roofs['mfu']:.1%} of the peak of matrix products"
        if roofs.get("mfu_registers") is not None:
            told += f" and {roofs['mfu_registers']:.1%} of the peak of registers"
        yield f"Its model-FLOP utilisation is {told}, measured with the same number of threads."


def _comparisons(document: Document) -> Iterator[str]:
    sweep = document["sweep"]
    question = sweep["primary"]
    if question is not None:
        yield _question(question)
    elif sweep["primary_missing"]:
        yield "The question cannot be answered: no run of one of its sides has succeeded."
    others = [_named(sweep["axis"], row) for row in sweep["rows"] if not row["primary"]]
    rows = [row for row in others if row["ratio"] is not None]
    most = max((row["at"].get("threads", 0) for row in rows), default=0)
    pooled = [_named(sweep["axis"], row) for row in sweep["pooled"] if row["ratio_low"] is not None]
    for row in pooled:
        places = f"{counted(row['places'], 'place')} (combinations of the other settings; {row['pairs']} pairs of runs)"
        yield f"Over {places} on {threads(row['threads'])}, {_verdict(row)}. This applies to {row['scope']}."
    told = list(_places([row for row in rows if row["at"].get("threads", most) == most]))
    if told:
        listed = "; ".join(told)
        yield (f"Place by place: {listed}" if pooled else listed[0].upper() + listed[1:]) + "."
    for row in others:
        if row["verdict"] == "refused":
            yield _refused(row)


def _question(row: Mapping[str, Any]) -> str:
    """Verdict on the declared question."""
    named = _named(row["axis"], row)
    if row["verdict"] == "refused":
        return _refused(named)
    where = f", with {at(row)}" if row["at"] else ""
    return f"To the question{where}: {_verdict(named)}."


def _refused(row: Mapping[str, Any]) -> str:
    return f"The comparison of {row['b']} with {row['a']} is refused: {row['reason']}."


def _named(axis: str | None, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A comparison with its values in words, and the verb of the second."""
    words = {side: value_name(axis, row[side]) for side in "ab"}
    return {**row, **words, "verb": is_or_are(axis, row["b"])}


def _places(rows: list[Mapping[str, Any]]) -> Iterator[str]:
    """A clause for each comparison. Undecided comparisons of the same values for the same reason share one."""
    groups: dict[Any, list[Mapping[str, Any]]] = {}
    for i, row in enumerate(rows):
        key = (row["a"], row["b"], _why(row)) if row["verdict"] == "undecided" else i
        groups.setdefault(key, []).append(row)
    for row, *others in groups.values():
        if not others:
            yield f"with {at(row)}, {_verdict(row)}"
            continue
        ratios = "; ".join(f"{_figures(each)} with {at(each)}" for each in (row, *others))
        yield f"{_undecided(row)}{_why(row)}, {row['a']} time / {row['b']} time {ratios}"


def _runtimes(document: Document) -> Iterator[str]:
    for name, schedulers in document["environment"].get("runtimes", {}).items():
        yield f"{' and '.join(schedulers)} used the OpenMP runtime {name}."


def at(row: Mapping[str, Any]) -> str:
    """Place of a comparison in the sweep: slices 1x64, 2 threads."""
    return settings(row["at"]) or "everything else equal"


def threads(count: int) -> str:
    return counted(count, "thread")


def _figures(row: Mapping[str, Any]) -> str:
    bounds = "" if row["ratio_low"] is None else f" [{row['ratio_low']:.3f}, {row['ratio_high']:.3f}]"
    return f"{row['ratio']:.3f}{bounds}"


def _undecided(row: Mapping[str, Any]) -> str:
    return f"it is undecided whether {row['b']} or {row['a']} is faster"


def _verdict(row: Mapping[str, Any]) -> str:
    figures = _figures(row)
    reading = f"{row['a']} time / {row['b']} time {figures}"
    return {
        "faster": f"{row['b']} {row['verb']} {figures} times as fast as {row['a']}",
        "slower": f"{row['b']} {row['verb']} slower than {row['a']}, {figures} times as fast",
        "same": f"{row['b']} and {row['a']} are equivalent within the noise floor, {reading}",
        "undecided": f"{_undecided(row)}, {reading}{_why(row)}",
    }[str(row["verdict"])]


def _why(row: Mapping[str, Any]) -> str:
    """The reason why a comparison is undecided, where the interval does not show it."""
    reason = str(row.get("reason") or "")
    if reason.startswith("too few"):
        return f" ({reason.partition(',')[0]})"
    if reason.startswith("would be"):
        return f" ({reason.partition(' (ratio')[0].partition(' (equivalent')[0]})"
    if not reason and row.get("diagnosis"):
        return f" (the values show {' and '.join(row['diagnosis'])})"
    return f" ({reason.partition(' (')[0]})" if reason.startswith(("one of", "these processes")) else ""


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


def _memory_bound(document: Document) -> Iterator[str]:
    for row in _best_rows(document, "roofline"):
        if row["variant"]["scheduler"] != document["sweep"]["best"]["scheduler"]:
            continue
        known = {phase["phase"]: phase for phase in row["phases"]}
        for phase in (known[name] for name in PHASES if name in known):
            answer = {"yes": "is memory-bound", "no": "is not memory-bound", "partly": "is partly memory-bound"}
            yield f"{phase['phase'].capitalize()} {answer[phase['answer']]}: {phase['reason']}."


def _best_rows(document: Document, table: str) -> list[Mapping[str, Any]]:
    """Row of each scheduler's fastest variant on the most threads."""
    step_s = {_key(row): row["step_s"]["median"] for row in document["scaling"]["rows"]}
    most = max(row["threads"] for row in document["scaling"]["rows"])
    best: dict[str, Mapping[str, Any]] = {}
    for row in document[table]:
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
    told = " and ".join(
        f"{_between(min(values), max(values))} under {scheduler}" for scheduler, values in by_scheduler.items()
    )
    slices = f"{widest['source']['batch_slice']}x{widest['source']['token_slice']}"
    yield f"On {cores} cores, slices {slices} would reach a speedup of {told}, under the assumptions listed below."


def _of_runs(count: int, document: Document) -> str:
    runs = sum(len(row["processes"]) for row in document["samples"])
    return f"the {runs} runs" if count == runs else f"{count} of {runs} runs"


def _between(low: float, high: float) -> str:
    return f"{low:.1f}" if f"{low:.1f}" == f"{high:.1f}" else f"{low:.1f} to {high:.1f}"


def _mostly_disturbed(document: Document) -> bool:
    return bool(2 * document["sweep"]["disturbed_runs"] > document["sweep"]["runs"])


def _reservations(document: Document) -> Iterator[str]:
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
