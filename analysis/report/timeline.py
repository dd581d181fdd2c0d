"""Timelines of the report: traced, and replayed on more cores from a one-thread profile."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from gpt2core.spec.result import median
from taskloom.analysis.forecast import fork_join_spans, task_spans
from taskloom.analysis.outlook import Outlook
from taskloom.analysis.processes import Process
from taskloom.analysis.profile import Profile
from taskloom.analysis.report.content import ReplayedRow, ReplayedStep, Span, Task, TracedSteps
from taskloom.analysis.statistics import step_median
from taskloom.analysis.trace import WAITS, Trace, busy
from taskloom.analysis.variants import Group, Variant, by_variant, tiles_of, variant_of
from taskloom.analysis.wording import tiles_name

REPLAYED_CORES = 4
STEPS = 2  # shown, so that tasks across their boundary are visible
PIECES = 2500  # spans shorter than this part of the shown time are joined with their neighbours
COUNTS = 300  # points of the curve of busy cores


def replayed(ahead: Outlook, profiles: Mapping[int, Profile]) -> ReplayedStep | None:
    """One step under both schedulers, replayed on a few cores; None without a profile whose forecast is given."""
    given = [forecast for forecast in ahead.forecasts if forecast.given]
    if not given:
        return None
    source = max(given, key=lambda forecast: forecast.tasks)
    profile = profiles[source.source_run_id]
    rows = [
        ReplayedRow(scheduler, [
            (span.core, *profile.kinds[span.kind], span.begin_s, span.end_s) for span in spans(profile, REPLAYED_CORES)
        ])
        for scheduler, spans in (("fork-join", fork_join_spans), ("task", task_spans))
    ]  # fmt: skip
    return ReplayedStep(REPLAYED_CORES, tiles_name(source.source), source.source_run_id, rows)


def to_show(processes: Sequence[Process], traced_runs: Collection[int]) -> list[int]:
    """One traced run for each scheduler: the fastest with the most threads and with the slices for which most
    schedulers have traces."""
    places: dict[tuple[int, str], dict[str, list[Group]]] = {}
    for group in by_variant(processes):
        traced = [process for process in group if process.run_id in traced_runs]
        if traced:
            place = int(group[0].config["threads"]), tiles_of(group)
            places.setdefault(place, {}).setdefault(variant_of(group).scheduler, []).append(traced)
    if not places:
        return []

    def worth(place: tuple[int, str]) -> tuple[int, int, float]:
        groups = [group for alike in places[place].values() for group in alike]
        return place[0], len(places[place]), -min(step_median(group) for group in groups)

    schedulers = places[max(places, key=worth)]
    return [min(groups, key=lambda g: step_median(g))[0].run_id for _, groups in sorted(schedulers.items())]


def traced(processes: Sequence[Process], traces: Mapping[int, Trace]) -> list[TracedSteps]:
    """Consecutive steps of each trace, by run: the pair nearest to the median. Seconds count from their begin."""
    found = []
    for group in by_variant(processes):
        for process in group:
            if process.run_id in traces:
                found.append(_row(variant_of(group), process, traces[process.run_id]))
    return found


def _row(variant: Variant, process: Process, trace: Trace) -> TracedSteps:
    steps = list(trace.steps())
    lengths = [step.end_ns - step.begin_ns for step in steps]
    middle = median(lengths)
    shown = min(STEPS, len(steps))
    first = min(range(len(steps) - shown + 1), key=lambda i: abs(sum(lengths[i : i + shown]) - shown * middle))
    begin_ns, end_ns = steps[first].begin_ns, steps[first + shown - 1].end_ns
    spans: list[Task] = []
    waits: list[Task] = []
    tasks: list[tuple[int, int]] = []
    preempted: list[Span] = []
    for thread, all_spans in enumerate(trace.threads):
        mine: list[Task] = []
        for each in all_spans:
            what = each.what
            low, high = max(each.begin_ns, begin_ns) - begin_ns, min(each.end_ns, end_ns) - begin_ns
            if low >= high:
                continue
            op, phase = trace.kind(what) if what >= 0 else (WAITS[what], "")
            mine.append((thread, op, phase, low * 1e-9, high * 1e-9))
            if what >= 0:
                ran_until = min(max(each.ran_until_ns - begin_ns, low), high)
                tasks.append((low, ran_until))
                if ran_until < high:
                    preempted.append((thread, op, ran_until * 1e-9, high * 1e-9))
        for span in joined(mine, (end_ns - begin_ns) * 1e-9 / PIECES):
            (spans if span[2] else waits).append(span)
    edges = [(end_ns - begin_ns) * i // COUNTS for i in range(COUNTS + 1)]
    return TracedSteps(
        variant=variant,
        run_id=process.run_id,
        threads=len(trace.threads),
        steps=[(step.step, (step.begin_ns - begin_ns) * 1e-9, (step.end_ns - begin_ns) * 1e-9)
               for step in steps[first : first + shown]],
        flagged=[[*trace.reasons(index)] for index in range(first, first + shown)],
        spans=spans,
        preempted=preempted,
        waits=[(thread, kind, low, high) for thread, kind, _, low, high in waits],
        busy=busy([low for low, _ in tasks], [high for _, high in tasks], edges),
        traced_step_s=middle * 1e-9,
        timed_step_s=process.median_step_s,
        complete=trace.complete,
    )  # fmt: skip


def joined(spans: Sequence[Task], gap_s: float) -> list[Task]:
    """The spans of one thread, neighbours of one op and phase joined if no visible gap lies between."""
    found: list[Task] = []
    for span in spans:
        if found and span[:3] == found[-1][:3] and span[3] - found[-1][4] < gap_s:
            found[-1] = (*found[-1][:4], span[4])
        else:
            found.append(span)
    return found
