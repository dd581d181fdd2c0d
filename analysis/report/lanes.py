"""Timelines of a report: a lane for each thread or core, each op in its colour, from the report alone."""

from __future__ import annotations

from collections.abc import Sequence

from taskloom.analysis.report.colours import OP_KINDS, op_colour
from taskloom.analysis.report.conclusion import milliseconds, variant_name
from taskloom.analysis.report.content import Report, Task
from taskloom.analysis.report.plots import WIDTH
from taskloom.analysis.report.svg import INK, SOFT, Scale, figure, legend, line, rect, spans, text
from taskloom.analysis.report.timeline import PIECES, joined

LANE, LANES_LEFT, LANES_RIGHT = 17, 90, WIDTH - 20
WAIT = {"barrier": "var(--at-barrier)", "starvation": "var(--starving)", "idle": "var(--idle)"}
EMPTY, PREEMPTED, WARNING = "var(--lane)", "var(--preempted)", "var(--warn)"


def _lanes(x: Scale, top: float, tasks: Sequence[Task], lanes: int, what: str) -> list[str]:
    """A row for each core or thread with its tasks, and the axis's ticks below."""
    parts = []
    for lane in range(lanes):
        y = top + LANE * lane
        parts.append(text(LANES_LEFT - 8, y + 12, f"{what} {lane}", "end", 11, SOFT))
        parts.append(rect(LANES_LEFT, y, LANES_RIGHT - LANES_LEFT, LANE - 3, EMPTY))
        mine = [task for task in tasks if task[0] == lane]
        parts += spans((
            (y, x(begin_s), x(until_s), op_colour(op), f"{op} ({phase}), {milliseconds(until_s - begin_s)}")
            for _, op, phase, begin_s, until_s in joined(mine, (x.high - x.low) / PIECES)
        ), LANE - 3)  # fmt: skip
    return parts


def _time(x: Scale, top: float) -> list[str]:
    parts = []
    for tick in x.ticks(8):
        parts.append(f'<path d="M{x(tick):.1f} {top:.1f}v5" stroke="{SOFT}"/>')
        parts.append(text(x(tick), top + 18, f"{tick * 1e3:.4g}", "middle", 11, SOFT))
    return parts


def _across(entries: Sequence[tuple[str, str]], y: float) -> list[str]:
    """A legend in one line."""
    return [part for i, (name, colour) in enumerate(entries)
            for part in legend([(name, colour, "box")], LANES_LEFT + 130 * i, y)]  # fmt: skip


def timeline(report: Report) -> str:
    """One step under both schedulers, replayed on a few cores, with the number of busy cores."""
    found = report.timeline
    if found is None:
        return ""
    gap = 66
    height = 40 + len(found.rows) * (found.cores * LANE + gap) + 16
    x = Scale(0, max(span[4] for row in found.rows for span in row.spans), LANES_LEFT, LANES_RIGHT)
    parts, top = [], 40.0
    for row in found.rows:
        end_s = max(span[4] for span in row.spans)
        busy = sum(span[4] - span[3] for span in row.spans) / (end_s * found.cores)
        label = f"{row.scheduler}: {milliseconds(end_s)}, cores busy {busy:.1%}"
        parts.append(text(LANES_LEFT, top - 8, label, bold=True))
        parts += _lanes(x, top, row.spans, found.cores, "core")
        top += found.cores * LANE
        parts += _time(x, top)
        top += gap
    middle = (LANES_LEFT + LANES_RIGHT) / 2
    parts.append(text(middle, top - gap + 34, "milliseconds from the start of the step", "middle"))
    parts += _across(OP_KINDS, height - 12)
    return figure(WIDTH, height, parts, "Timeline of one step")


def traced(report: Report) -> str:
    """Two consecutive traced steps of each scheduler: tasks, waits, and the number of busy threads."""
    rows = report.traced
    if not rows:
        return ""
    curve, gap = 44, 78
    height = 40 + sum(row.threads * LANE + curve + gap for row in rows) + 26
    x = Scale(0, max(row.steps[-1][2] for row in rows), LANES_LEFT, LANES_RIGHT)
    parts, top = [], 40.0
    for row in rows:
        threads, end_s = row.threads, row.steps[-1][2]
        busy = sum(row.busy) / (len(row.busy) * threads)
        name, step_s = variant_name(row.variant), end_s / len(row.steps)
        label = f"{name} (run {row.run_id}): {milliseconds(step_s)} a step"
        parts.append(text(LANES_LEFT, top - 8, f"{label}, threads in tasks {busy:.1%}", bold=True))
        parts += _lanes(x, top, row.spans, threads, "thread")
        parts += spans((
            (top + LANE * thread, x(begin_s), x(until_s), WAIT[kind], f"{kind}, {milliseconds(until_s - begin_s)}")
            for thread, kind, begin_s, until_s in row.waits
        ), LANE - 3)  # fmt: skip
        foot = top + threads * LANE + curve
        parts += spans((
            (top + LANE * thread, x(begin_s), x(until_s), PREEMPTED,
             f"not running for {milliseconds(until_s - begin_s)} of {op}, somewhere within it")
            for thread, op, begin_s, until_s in row.preempted
        ), LANE - 3)  # fmt: skip
        reasons = row.flagged or [[] for _ in row.steps]
        for (step, begin_s, until_s), why in zip(row.steps, reasons, strict=True):
            parts.append(line([(x(until_s), top - 4), (x(until_s), foot)], INK, 1.2, "3 3"))
            label = f"step {step}" + (f", flagged: {', '.join(why)}" if why else "")
            parts.append(text(x(begin_s) + 3, foot - curve + 9, label, size=10, colour=WARNING if why else SOFT))
        y = Scale(0, threads, foot, foot - curve + 12)
        width_s = end_s / len(row.busy)
        points = [(x(width_s * (i + 0.5)), y(count)) for i, count in enumerate(row.busy)]
        parts.append(line(points, "var(--useful)", 1.2))
        parts.append(text(LANES_LEFT - 8, foot - curve / 2 + 8, "busy threads", "end", 11, SOFT))
        parts += [text(LANES_RIGHT + 4, y(count) + 4, str(count), size=10, colour=SOFT) for count in (0, threads)]
        parts += _time(x, foot)
        top = foot + gap
    middle = (LANES_LEFT + LANES_RIGHT) / 2
    parts.append(text(middle, top - gap + 34, "milliseconds from the start of the first step shown", "middle"))
    parts += _across(OP_KINDS, height - 32)
    parts += _across([*WAIT.items(), ("scheduling", EMPTY), ("not running", PREEMPTED)], height - 10)
    return figure(WIDTH, height, parts, "Timeline as traced")
