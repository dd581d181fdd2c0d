"""Report card: the rules of measurement that an experiment meets (docs/methodology.md), with the evidence."""

from __future__ import annotations

from gpt2core.spec.wording import counted, enumerated
from taskloom.analysis.family import Family
from taskloom.analysis.report.content import CardRule, Holds, Measured

RULES = (
    "Raw samples are kept; aggregates are derived from them",
    "Warm-up is excluded; each repetition is a fresh process",
    "Medians have nonparametric 95 % intervals",
    "Rates come from totals; speedups name their base",
    "Comparisons have adjusted p-values, effect sizes and a noise floor declared beforehand",
    "Only comparable results are compared",
    "Each sample has evidence of its validity",
    "The experiment stopped when the answer was known",
    "Losses agree before times are compared",
    "Results are shown with their upper bounds",
    "The node's smallest detectable difference is known",
)


def report_card(found: Measured) -> list[CardRule]:
    """For each rule whether it holds (yes, partly, no), and the evidence."""
    checks = (_raw, _warm_up, _intervals, _bases, _tests, _comparable, _validity, _stopping, _agreement, _bounds,
              _calibrated)  # fmt: skip
    return [
        CardRule(number, rule, *check(found)) for number, (rule, check) in enumerate(zip(RULES, checks, strict=True), 1)
    ]


def _raw(found: Measured) -> tuple[Holds, str]:
    design = found.design
    if not design.processes:
        return "no", "no run has succeeded"
    steps, processes = counted(design.timed_steps, "timed step"), counted(design.processes, "process")
    return "yes", f"this report contains all {steps} of {processes}"


def _warm_up(found: Measured) -> tuple[Holds, str]:
    steps = found.design.warmup_steps
    if not steps or steps[0] == 0:
        return "no", "a variant has no warm-up step"
    return "yes", f"warm-up steps left out of each run: {enumerated(steps, 'or')}; each run is a new process"


def _intervals(found: Measured) -> tuple[Holds, str]:
    steps_s = [row.step_s for row in found.scaling.rows]
    if not steps_s:
        return "no", "no results"
    few = sum(each.low is None or each.over == "steps" for each in steps_s)
    if not few:
        return "yes", f"at least {min(each.processes for each in steps_s)} processes for each variant"
    holds: Holds = "no" if few == len(steps_s) else "partly"
    return holds, f"{few} of {len(steps_s)} variants have no 95 % interval over processes: too few, or dependent ones"


def _bases(found: Measured) -> tuple[Holds, str]:
    rows = found.scaling.rows
    without = sum(row.speedup is None for row in rows)
    if not rows or without == len(rows):
        return "no", "there are no speedups, since there is no one-thread run"
    text = f"variants without a base: {without} of {len(rows)}"
    return ("yes", found.scaling.base) if not without else ("partly", text)


def _tests(found: Measured) -> tuple[Holds, str]:
    sweep = found.sweep
    judged = [row for row in sweep.rows if row.p_value is not None]
    if not judged:
        return "no", "nothing was compared"
    pooled = [row for row in sweep.pooled if row.p_adjusted is not None and row.unit == "pairs"]
    text = f"{Family(len(judged), len(pooled))} along {sweep.axis}, corrected together (Holm)"
    faster = len(sweep.against_faster)
    text += f", and {counted(faster, 'comparison')} with the faster loops apart" if faster else ""
    text += f"; noise floor {sweep.noise_floor:.1%}"
    untested = len(sweep.rows) - len(judged)
    if untested:
        return "partly", text + f"; {untested} of {len(sweep.rows)} rows without a valid test"
    if not all(row.paired for row in judged):
        return "partly", text + "; not all are paired"
    dependent = sum(bool(row.why.findings) for row in judged)
    if dependent:
        return "partly", text + f"; dependent values, so no valid interval, in {counted(dependent, 'comparison')}"
    if any(row.why.kind == "too-few-in-family" for row in judged):
        return "partly", text + "; too few processes to decide one comparison alone"
    return "yes", text + "; all paired"


def _comparable(found: Measured) -> tuple[Holds, str]:
    rows = found.sweep.rows
    differences = [*found.environment.differs, *(text for row in rows for text in row.differs)]
    differs = list(dict.fromkeys(differences))
    return ("no", "; ".join(differs)) if differs else ("yes", "one machine, one software, equal settings")


def _validity(found: Measured) -> tuple[Holds, str]:
    if not any(row.waiting for row in found.efficiency):
        return "no", "the results bring no evidence"
    if found.unwatched:
        text = f"no evidence of other processes in {len(found.unwatched)} results"
        return "partly", "; ".join([text, *filter(None, [found.disturbed])])
    if not found.marks:
        return "yes", "no step is flagged, and no run had foreign load"
    return "partly", found.disturbed or found.marks[0]


def _stopping(found: Measured) -> tuple[Holds, str]:
    stop = found.design.stop
    if added := found.design.extended:
        return "partly", f"{counted(added, 'repetition')} added after the first results; intervals hold at any time"
    if not stop:
        return "no", f"the number of repetitions was fixed beforehand: {found.design.repetitions}"
    rule, reached = ", ".join(f"{name} = {value}" for name, value in stop.items()), found.design.stopping
    if not reached or not reached["reason"]:
        return "partly", f"{rule}; not ended yet"
    width = "no interval yet" if reached["rel_ci"] is None else f"widest interval \u00b1{reached['rel_ci']:.2%}"
    known: Holds = "yes" if reached["reason"] == "narrow-enough" else "partly"
    ended = f"ended after {counted(reached['repetitions'], 'repetition')} ({reached['reason']})"
    return known, f"{rule}; {ended}; {width}"


def _agreement(found: Measured) -> tuple[Holds, str]:
    rows = found.scaling.rows
    odd = [row for row in rows if not row.agrees]
    refused = [row for row in found.sweep.rows if row.verdict == "refused"]
    if odd or refused:
        return "no", f"variants that disagree and get no speedup: {len(odd)}; refused comparisons: {len(refused)}"
    if not rows:
        return "no", "there are no results"
    return "yes", "the results of equal slices are bit-identical"


def _bounds(found: Measured) -> tuple[Holds, str]:
    spans = any(row.bounds for row in found.efficiency)
    peaks = any(row.peaks for row in found.roofline)
    registers = any(row.peaks and row.peaks.registers_gflop_per_s for row in found.roofline)
    measured = ("memory bandwidth", "matrix products", *["registers"] * registers)
    roofs = f"peaks of {', '.join(measured)}"
    present = [name for name, there in (("work and span", spans), (roofs, peaks)) if there]
    none = "the results contain neither work and span nor peaks"
    return ("yes" if spans and peaks else "partly" if present else "no"), "; ".join(present) or none


def _calibrated(found: Measured) -> tuple[Holds, str]:
    known = found.calibration
    if known is None:
        return "no", "no A/A experiment was run on this node"
    if known.detectable is None:
        return "partly", f"with {counted(known.processes, 'process')} per side, no difference can be detected"
    text = f"{known.detectable:.2%} with {counted(known.processes, 'process')} per side"
    if found.design.stop or found.sweep.sequential:
        return "partly", f"{text}, judged by signs, since their number was not fixed beforehand"
    return "yes", f"{text}; false alarms: {known.false_alarms} of {counted(known.comparisons, 'A/A experiment')}"
