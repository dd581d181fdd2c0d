"""Report card: the rules of measurement that an experiment meets (docs/methodology.md), with the evidence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Document = Mapping[str, Any]
RULES = (
    "Raw samples are kept, aggregates derived",
    "Warm-up apart; each repetition a fresh process",
    "Medians with nonparametric intervals",
    "Rates from totals; speedups name their base",
    "Tests, effect sizes, correction, a noise floor declared beforehand",
    "Only comparable results are compared",
    "Evidence of validity for each sample",
    "Stopped when the answer was known",
    "Agreement of losses first",
    "Bounds beside results",
    "The node's smallest detectable difference is known",
)


def report_card(document: Document) -> list[dict[str, Any]]:
    """For each rule whether it holds (yes, partly, no), and the evidence."""
    checks = (_raw, _warm_up, _intervals, _bases, _tests, _comparable, _validity, _stopping, _agreement, _bounds,
              _calibrated)  # fmt: skip
    found = []
    for number, (rule, check) in enumerate(zip(RULES, checks, strict=True), 1):
        holds, evidence = check(document)
        found.append({"number": number, "rule": rule, "holds": holds, "evidence": evidence})
    return found


def _raw(document: Document) -> tuple[str, str]:
    design = document["design"]
    if not design["processes"]:
        return "no", "no run has succeeded"
    return "yes", f"{design['timed_steps']} timed steps of {design['processes']} processes, all in this report"


def _warm_up(document: Document) -> tuple[str, str]:
    steps = document["design"]["warmup_steps"]
    if not steps or steps[0] == 0:
        return "no", "a variant has no warm-up step"
    return "yes", f"{' or '.join(map(str, steps))} warm-up steps are left out; every run is a process of its own"


def _intervals(document: Document) -> tuple[str, str]:
    steps_s = [row["step_s"] for row in document["scaling"]["rows"]]
    if not steps_s:
        return "no", "no results"
    few = sum(each["low"] is None or each["over"] == "steps" for each in steps_s)
    if not few:
        return "yes", f"at least {min(each['processes'] for each in steps_s)} processes for each variant"
    holds = "no" if few == len(steps_s) else "partly"
    return holds, f"{few} of {len(steps_s)} variants have too few processes: no 95 % interval over processes"


def _bases(document: Document) -> tuple[str, str]:
    rows = document["scaling"]["rows"]
    without = sum(row["speedup"] is None for row in rows)
    if not rows or without == len(rows):
        return "no", "no one-thread run: no speedups"
    return ("yes", document["scaling"]["base"]) if not without else ("partly", f"{without} variants have no base")


def _tests(document: Document) -> tuple[str, str]:
    sweep = document["sweep"]
    judged = [row for row in sweep["rows"] if row["p_value"] is not None]
    if not judged:
        return "no", "nothing was compared"
    told = f"{len(judged)} comparisons along {sweep['axis']}, corrected (Holm); noise floor {sweep['noise_floor']:.1%}"
    untested = len(sweep["rows"]) - len(judged)
    if untested:
        return "partly", told + f"; {untested} of {len(sweep['rows'])} rows without a valid test"
    if not all(row["paired"] for row in judged):
        return "partly", told + "; not all are paired"
    if any("too few processes" in row["reason"] for row in judged):
        return "partly", told + "; too few processes for a test to say anything"
    return "yes", told + "; all paired"


def _comparable(document: Document) -> tuple[str, str]:
    rows = document["sweep"]["rows"]
    told = [*document["environment"]["differs"], *(text for row in rows for text in row["differs"])]
    differs = list(dict.fromkeys(told))
    return ("no", "; ".join(differs)) if differs else ("yes", "one machine, one software, equal settings")


def _validity(document: Document) -> tuple[str, str]:
    if not any(row["waiting"] for row in document["efficiency"]):
        return "no", "the results bring no evidence"
    if document["unwatched"]:
        told = f"no evidence of other processes in {len(document['unwatched'])} results"
        return "partly", "; ".join([told, *filter(None, [document["disturbed"]])])
    if not document["marks"]:
        return "yes", "no step flagged, no load"
    return "partly", document["disturbed"] or document["marks"][0]


def _stopping(document: Document) -> tuple[str, str]:
    stop = document["design"]["stop"]
    if not stop:
        return "no", f"{document['design']['repetitions']} repetitions were fixed beforehand"
    asked, reached = ", ".join(f"{name} = {value}" for name, value in stop.items()), document["design"]["stopping"]
    if not reached or not reached["reason"]:
        return "partly", f"{asked}; not ended yet"
    width = "no interval yet" if reached["rel_ci"] is None else f"widest interval {reached['rel_ci']:.2%}"
    known = "yes" if reached["reason"] == "narrow-enough" else "partly"
    return known, f"{asked}; ended after {reached['repetitions']} repetitions: {reached['reason']}, {width}"


def _agreement(document: Document) -> tuple[str, str]:
    rows = document["scaling"]["rows"]
    odd = [row for row in rows if not row["agrees"]]
    refused = [row for row in document["sweep"]["rows"] if row["verdict"] == "refused"]
    if odd or refused:
        return "no", f"{len(odd)} variants disagree and get no speedup; {len(refused)} comparisons are refused"
    return ("yes", "losses and weights bit-identical with equal slices") if rows else ("no", "no results")


def _bounds(document: Document) -> tuple[str, str]:
    spans = any(row["bounds"] for row in document["efficiency"])
    peaks = any(row["peaks"] for row in document["roofline"])
    registers = any((row["peaks"] or {}).get("registers_gflop_per_s") for row in document["roofline"])
    roofs = "roofs of triad, products and registers" if registers else "roofs of triad and products"
    told = [name for name, there in (("work and span", spans), (roofs, peaks)) if there]
    return ("yes" if spans and peaks else "partly" if told else "no"), " and ".join(told) or "neither spans nor peaks"


def _calibrated(document: Document) -> tuple[str, str]:
    found = document["calibration"]
    if not found:
        return "no", "no A/A experiment was run on this node"
    if document["design"]["stop"]:
        return "partly", "calibrated for a fixed number of processes; a stopping rule decides by signs and detects less"
    if found["detectable"] is None:
        return "partly", f"{found['processes']} processes a side call no difference on this node, however large"
    told = f"{found['detectable']:.2%} with {found['processes']} processes a side"
    return "yes", f"{told}; {found['false_alarms']} false alarms in {found['comparisons']} A/A experiments"
