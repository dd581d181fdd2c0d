"""The figures of a report, each from the report alone."""

from __future__ import annotations

from collections.abc import Sequence

from gpt2core.spec.phases import PASSES, by_phase, in_order
from gpt2core.spec.result import median
from taskloom.analysis.causes import RooflineRow
from taskloom.analysis.growth import Growth, GrowthPoint
from taskloom.analysis.outlook import Forecast
from taskloom.analysis.report.colours import ARENA, MODES, PHASE, TIME, colour_of, op_colour
from taskloom.analysis.report.conclusion import (
    across,
    axis_of,
    by_order,
    milliseconds,
    place,
    place_of,
    sides,
    threads,
    variant_name,
)
from taskloom.analysis.report.content import Report
from taskloom.analysis.report.ratios import Ratio, figure_of
from taskloom.analysis.report.svg import (
    INK,
    ROW,
    SOFT,
    Scale,
    bar,
    dot,
    figure,
    legend,
    line,
    plain,
    rect,
    row_name,
    text,
    x_axis,
    y_axis,
)
from taskloom.analysis.rows import AgainstFaster, Pooled, SweepRow
from taskloom.analysis.scaling import ScalingRow
from taskloom.analysis.variants import Variant
from taskloom.analysis.wording import told_apart

WIDTH, LEFT, RIGHT = 900, 250, 150
UNITS = {"batch": "samples", "seq": "tokens", "side": "rows of an image"}
DASHES = ("", "7 4", "2 3", "10 3 2 3")


def _names(rows: Sequence[Variant | ScalingRow], top: float) -> list[str]:
    """Names of variants down the left side."""
    return [part for i, row in enumerate(rows) for part in row_name(LEFT - 8, top + ROW * (i + 0.5), variant_name(row))]


def runtime(report: Report) -> str:
    """The phases of each variant's step as bars; the median step as a line, with its interval."""
    rows = report.scaling.rows
    top, height = 34, 34 + ROW * len(rows) + 48
    longest = max(max(row.step_s.high or 0, row.step_s.median, sum(row.phase_s.values())) for row in rows)
    x = Scale(0, longest * 1.03e3, LEFT, WIDTH - RIGHT)
    parts = [*x_axis(x, top, top + ROW * len(rows), "milliseconds a step (median)", plain), *_names(rows, top)]
    shown = in_order(phase for row in rows for phase in row.phase_s)
    for i, row in enumerate(rows):
        y, at = top + ROW * i + 4, 0.0
        for phase, s in by_phase(row.phase_s).items():
            label = f"{phase}: {milliseconds(s)}"
            parts.append(rect(x(at), y, x(at + 1e3 * s) - x(at), ROW - 8, PHASE[phase], label))
            at += 1e3 * s
        low, high, middle, median = row.step_s.low, row.step_s.high, y + (ROW - 8) / 2, x(1e3 * row.step_s.median)
        parts.append(line([(median, y - 2), (median, y + ROW - 6)], INK, 2.5))
        if low is not None and high is not None:
            ends = x(1e3 * low), x(1e3 * high)
            parts.append(line([(ends[0], middle), (ends[1], middle)], INK, 1.6))
            parts += [line([(end, middle - 5), (end, middle + 5)], INK, 1.6) for end in ends]
        right = max(x(1e3 * (high or 0)), x(at), median) + 8
        parts.append(text(right, middle + 4, milliseconds(row.step_s.median), size=11))
    parts += legend([(phase, PHASE[phase], "box") for phase in shown], WIDTH - RIGHT + 60, top + 10)
    return figure(WIDTH, height, parts, "Time of a step by variant and phase")


def ratios(report: Report) -> str:
    """The ratios of the sweep with their intervals over the noise floor; right of 1, the second is faster."""
    sweep = report.sweep
    named: list[tuple[str, SweepRow | Pooled | AgainstFaster]] = [
        *((place_of(row), row) for row in across(sweep)),
        *((f"the faster by {row.op_order}, {threads(row.threads)}", row) for row in sweep.against_faster),
        *((f"all {row.places} places, {by_order(row)}{threads(row.threads)}", row) for row in sweep.pooled),
        *((place_of(row), row) for row in sweep.rows),
    ]
    rows = [(place(sweep, row, where), row, row.ratio) for where, row in named if row.ratio is not None]
    if not rows:
        return ""
    drawn = []
    for name, row, ratio in rows:
        colour = colour_of(row.b if ratio > 1 else row.a) if axis_of(sweep, row) == "scheduler" else INK
        drawn.append(Ratio(name, ratio, row.ratio_low, row.ratio_high, row.verdict, colour))
    return figure_of(drawn, sides(sweep), sweep.noise_floor, LEFT, WIDTH)


def samples(report: Report) -> str:
    """Every timed step (dots) and every process's median (rings), by variant."""
    rows = report.samples
    top, height = 34, 34 + ROW * len(rows) + 48
    every = [1e3 * s for row in rows for process in row.processes for s in process.step_s]
    x = Scale(min(every) * 0.97, max(every) * 1.02, LEFT, WIDTH - 40)
    parts = [*x_axis(x, top, top + ROW * len(rows), "milliseconds a step", plain)]
    parts += _names([row.variant for row in rows], top)
    for i, row in enumerate(rows):
        colour, count = colour_of(row.variant.scheduler), len(row.processes)
        for j, process in enumerate(row.processes):
            y = top + ROW * i + 5 + (ROW - 10) * (j + 0.5) / count
            for number, s in enumerate(process.step_s):
                shade = INK if number in process.outlier_steps else colour
                parts.append(f'<circle cx="{x(1e3 * s):.1f}" cy="{y:.1f}" r="1.6" fill="{shade}" fill-opacity="0.45"/>')
            middle = median(process.step_s)
            label = f"run {process.run_id}: {milliseconds(middle)}" + ", an outlier" * process.outlier
            parts.append(dot(x(1e3 * middle), y, INK if process.outlier else colour, 3, label, hollow=True))
    return figure(WIDTH, height, parts, "Distribution of samples")


def speedup(report: Report) -> str:
    """Speedup against one thread of the same scheduler and slices, ideal scaling and work-span bounds."""
    rows = report.scaling.rows
    most = max((row.threads for row in rows if row.speedup is not None), default=1)
    if most == 1:
        return ""
    height, bottom, right = 380, 320, WIDTH - 330
    x, y = Scale(1, most, 70, right), Scale(0, _highest(rows, "speedup", most), bottom, 30)
    parts, entries = _speedups(rows, "speedup", x, y)
    for kind in ("fork_join", "task"):
        highest = [bound for row in report.efficiency if row.bounds for bound in getattr(row.bounds, kind)
                   if bound.threads == most]  # fmt: skip
        if highest:
            best, name = max(bound.speedup_high for bound in highest), kind.replace("_", "-")
            parts.append(line([(x(most) - 26, y(best)), (x(most), y(best))], colour_of(name), 3))
            entries.append((f"bound of {name}: {best:.2f}", colour_of(name), ""))
    parts += legend(entries, right + 30, 48)
    return figure(WIDTH, height, parts, "Speedup")


def phase_speedups(report: Report) -> str:
    """Speedups of forward and, if it is a phase, of backward, beside each other."""
    rows = report.scaling.rows
    most = max((row.threads for row in rows if row.speedup_forward is not None), default=1)
    if most == 1:
        return ""
    parts: list[str] = []
    entries: list[tuple[str, str, str]] = []
    shown = in_order(phase for row in rows for phase in row.phase_s)
    for i, phase in enumerate(each for each in PASSES if each in shown):
        left = 70 + 320 * i
        x, y = Scale(1, most, left, left + 250), Scale(0, _highest(rows, f"speedup_{phase}", most), 260, 30)
        drawn, entries = _speedups(rows, f"speedup_{phase}", x, y)
        parts += [*drawn, text(left + 125, 20, phase, "middle", 12, INK, bold=True)]
    return figure(WIDTH, 310, [*parts, *legend(entries, 670, 48)], "Speedup of forward and backward")


def _highest(rows: Sequence[ScalingRow], key: str, most: int) -> float:
    """The end of an axis of speedups: above ideal scaling and the measured speedups, intervals included."""
    return 1.1 * max(most, *(getattr(row, f"{key}_high") or 0 for row in rows))


def _speedups(
    rows: Sequence[ScalingRow], key: str, x: Scale, y: Scale
) -> tuple[list[str], list[tuple[str, str, str]]]:
    """Axes, ideal scaling and a line for variants that differ in the threads alone, with the legend's entries."""
    label = "speedup" if x.start == 70 else ""  # once on the page's left
    parts = x_axis(x, y.end, y.start, "threads", plain, min(6, round(x.high) - 1))  # whole threads
    parts += y_axis(y, x.start, x.end, label, plain)
    parts.append(line([(x(1), y(1)), (x(x.high), y(x.high))], SOFT, 1.5, "2 3"))
    entries = [("ideal", SOFT, "2 3")]
    groups: dict[tuple[str, str], list[ScalingRow]] = {}
    for row in rows:
        if getattr(row, key) is not None:
            groups.setdefault((row.scheduler, told_apart(row)), []).append(row)
    cuts = list(dict.fromkeys(cut for _, cut in groups))
    for number, ((scheduler, cut), same) in enumerate(groups.items()):
        name = f"{scheduler} {cut}"
        dash, colour = DASHES[cuts.index(cut) % len(DASHES)], colour_of(scheduler)
        ordered = sorted(same, key=lambda row: row.threads)
        parts.append(line([(x(row.threads), y(getattr(row, key))) for row in ordered], colour, 2, dash))
        for row in ordered:
            at = x(row.threads)
            if row.threads > 1 and getattr(row, f"{key}_low") is not None:
                shift = 3 * (number - len(groups) / 2) - 12
                parts.append(bar(at + shift, y(getattr(row, f"{key}_low")), y(getattr(row, f"{key}_high")), colour))
            parts.append(dot(at, y(getattr(row, key)), colour, 3.5, f"{name}: {getattr(row, key):.3f}"))
        entries.append((name, colour, dash))
    return parts, entries


def efficiency(report: Report) -> str:
    """Plot of the split of the threads' time, for variants with more than one thread."""
    rows = [(row.variant, row.waiting.times_s) for row in report.efficiency if row.waiting is not None]
    if not rows:
        return ""
    top, height = 34, 34 + ROW * len(rows) + 48
    x = Scale(0, 100, LEFT, WIDTH - RIGHT)
    parts = [*x_axis(x, top, top + ROW * len(rows), "% of the threads' time", plain)]
    parts += _names([variant for variant, _ in rows], top)
    for i, (_, values) in enumerate(rows):
        at = 0.0
        for (name, colour), value in zip(TIME.items(), values, strict=True):
            share = 100 * value / sum(values)
            label = f"{name}: {share:.2f} %"
            parts.append(rect(x(at), top + ROW * i + 4, x(at + share) - x(at), ROW - 8, colour, label))
            at += share
        parts.append(text(WIDTH - RIGHT + 6, top + ROW * i + 16, f"{100 * values[0] / sum(values):.1f} %", size=11))
    parts += legend([(name, colour, "box") for name, colour in TIME.items()], WIDTH - RIGHT + 54, top + 10)
    return figure(WIDTH, height, parts, "Where the threads' time went")


def roofline(row: RooflineRow) -> str:
    """The ops of one variant under its roof, sized by their share of time."""
    peaks, ops = row.peaks, [(op, op.intensity) for op in row.ops if op.intensity and op.achieved_gflop_per_s > 0]
    if peaks is None or not ops:
        return ""
    height, bottom, right, ridge = 430, 370, WIDTH - 310, peaks.ridge
    spread = [intensity for _, intensity in ops]
    x = Scale(min(*spread, ridge) / 1.5, max(*spread, ridge) * 1.5, 80, right, 10)
    rates = [op.achieved_gflop_per_s for op, _ in ops]
    most = peaks.registers_gflop_per_s or peaks.gflop_per_s
    y = Scale(min(*rates, x.low * peaks.triad_gb_per_s), most * 1.5, bottom, 30, 10)
    parts = [
        *x_axis(x, 30, bottom, "flop per byte (compulsory)", plain),
        *y_axis(y, 80, right, "GFLOP/s, all threads", plain),
    ]
    roof = [(x(x.low), y(x.low * peaks.triad_gb_per_s)), (x(ridge), y(peaks.gflop_per_s))]
    parts.append(line([*roof, (x(x.high), y(peaks.gflop_per_s))], INK, 2.2))
    parts.append(text(right - 4, y(peaks.gflop_per_s) + 14, f"{peaks.gflop_per_s:.0f} GFLOP/s", "end", 11))
    if peaks.registers_gflop_per_s:
        parts.append(line([(x(ridge), y(most)), (x(x.high), y(most))], INK, 1.2, "4 3"))
        parts.append(text(right - 4, y(most) - 7, f"registers: {most:.0f} GFLOP/s", "end", 11))
    bandwidth = f"{peaks.triad_gb_per_s:.1f} GB/s"
    parts.append(text(x(x.low) + 6, y(x.low * peaks.triad_gb_per_s) - 12, bandwidth, size=11))
    for op, intensity in ops:
        label = f"{op.op} {op.phase}: {op.time_share:.1%} of time, {op.share:.0%} of its roof"
        radius = 3 + 14 * op.time_share**0.5
        at = x(intensity), y(op.achieved_gflop_per_s)
        parts.append(
            f'<circle cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="{radius:.1f}" fill="{op_colour(op.op)}" '
            f'fill-opacity="0.6" stroke="{INK}" stroke-width="0.6"><title>{label}</title></circle>'
        )
    for i, (op, _) in enumerate(ops[:14]):
        name = f"{op.op} {op.phase[:3]}. {op.time_share:.0%}"
        parts.append(rect(right + 24, 40 + 19 * i, 12, 11, op_colour(op.op)))
        parts.append(text(right + 42, 50 + 19 * i, f"{name}, {op.share:.0%} of roof", size=11))
    return figure(WIDTH, height, parts, f"Roofline of {variant_name(row.variant)}")


def forecast(found: Forecast) -> str:
    """Speedup to many cores under both schedulers, bandwidth growing (solid) or held (dashed); rings: measured."""
    cores = [point.cores for point in found.curves[0].points]
    height, bottom, right = 400, 340, WIDTH - 300
    highest = max(point.speedup for curve in found.curves for point in curve.points)
    x, y = Scale(1, max(cores), 70, right, 2), Scale(1, highest * 1.2, bottom, 30, 2)
    parts = [*x_axis(x, 30, bottom, "cores", plain), *y_axis(y, 70, right, "speedup over one core", plain)]
    end = min(x.high, y.high)
    parts.append(line([(x(1), y(1)), (x(end), y(end))], SOFT, 1.5, "2 3"))
    entries = [("ideal", SOFT, "2 3")]
    for curve in found.curves:
        colour, dash = colour_of(curve.scheduler), "" if curve.bandwidth == "grows" else "7 4"
        parts.append(line([(x(p.cores), y(p.speedup)) for p in curve.points], colour, 2.2, dash))
        entries.append((f"{curve.scheduler}, bandwidth {curve.bandwidth}", colour, dash))
        base_s = curve.points[0].step_s
        for point in curve.points:
            if point.measured_s is not None and not dash:
                measured, step = milliseconds(point.measured_s), milliseconds(point.step_s)
                label = f"measured {measured}, forecast {step} ({point.error:+.1%})"
                parts.append(dot(x(point.cores), y(base_s / point.measured_s), colour, 4.5, label, hollow=True))
    parts += legend(entries, right + 30, 48)
    at = 48 + 19 * len(entries)
    parts.append(dot(right + 41, at - 4, INK, 4.5, hollow=True))
    parts.append(text(right + 59, at, "measured step"))
    for i, (name, span) in enumerate((("task", found.span_s), ("fork-join", found.fork_join_span_s))):
        label = f"T1/Tinf, {name}: {found.work_s / span:.1f}"
        parts.append(text(right + 30, at + 26 + 18 * i, label, size=11, colour=SOFT))
    return figure(WIDTH, height, parts, "Forecast")


def memory(report: Report) -> str:
    """Arenas of each variant, stacked, and the peak of the process."""
    rows = report.memory
    if not rows:
        return ""
    kinds = list(rows[0].memory.measured_bytes)
    top, height, unit = 34, 34 + ROW * len(rows) + 48, 2**20
    peaks = [None if r.memory.peak_compiled else r.memory.peak_rss_bytes for r in rows]
    totals = [max(sum(r.memory.measured_bytes.values()), p or 0) for r, p in zip(rows, peaks, strict=True)]
    x = Scale(0, max(totals) / unit * 1.03, LEFT, WIDTH - RIGHT)
    parts = [*x_axis(x, top, top + ROW * len(rows), "MiB", plain)]
    parts += _names([row.variant for row in rows], top)
    for i, (row, peak_bytes) in enumerate(zip(rows, peaks, strict=True)):
        at, y = 0.0, top + ROW * i + 4
        for kind, colour in zip(kinds, ARENA, strict=False):
            size = row.memory.measured_bytes.get(kind, 0) / unit
            parts.append(rect(x(at), y, x(at + size) - x(at), ROW - 8, colour, f"{kind}: {size:,.1f} MiB"))
            at += size
        if peak_bytes:
            peak = x(peak_bytes / unit)
            parts.append(line([(peak, y - 2), (peak, y + ROW - 6)], INK, 2.5))
    entries = [(kind, colour, "box") for kind, colour in zip(kinds, ARENA, strict=False)]
    parts += legend([*entries, ("peak RSS", INK, "")], WIDTH - RIGHT + 40, top + 10)
    return figure(WIDTH, max(height, 34 + 19 * (len(kinds) + 2)), parts, "Memory by variant")


def memory_growth(found: Sequence[Growth]) -> str:
    """All arenas of training and of inference along each axis, by the formula, and measured peaks."""
    if not found:
        return ""
    parts: list[str] = []
    names = [f"{mode}_{what}bytes" for mode in MODES for what in ("", "peak_")]
    every = [size for one in found for point in one.points for name in names if (size := _mib(point, name))]
    y = Scale(min(every), max(every), 220, 20, 2)
    for i, one in enumerate(found):
        left, points = 80 + 430 * i, one.points
        x = Scale(points[0].size, points[-1].size, left, left + 330, 2)
        fixed = ", ".join(f"{name} {value}" for name, value in one.fixed.items())
        label = f"{one.axis}, {UNITS[one.axis]} ({fixed})"
        parts += [*x_axis(x, 20, 220, label, plain), *y_axis(y, left, left + 330, "MiB" if i == 0 else "", plain)]
        for mode, colour in MODES.items():
            places = [(x(point.size), y(size)) for point in points if (size := _mib(point, f"{mode}_bytes"))]
            parts.append(line(places, colour))
            for point in points:
                if peak := _mib(point, f"{mode}_peak_bytes"):
                    sentence = f"{mode}, measured peak: {peak:,.1f} MiB"
                    parts.append(dot(x(point.size), y(peak), colour, 4.5, sentence, hollow=True))
    drawn = [mode for mode in MODES if any(_mib(point, f"{mode}_bytes") for point in found[0].points)]
    words = [*((mode, MODES[mode]) for mode in drawn), ("circles: measured peaks", INK)] if len(drawn) > 1 else []
    parts += [text(90 + 130 * i, 290, word, size=11, colour=colour) for i, (word, colour) in enumerate(words)]
    return figure(WIDTH, 300, parts, "Growth of memory")


def _mib(point: GrowthPoint, name: str) -> float:
    """A size at this point; 0 if it is unknown."""
    size: int | None = getattr(point, name)
    return (size or 0) / 2**20
