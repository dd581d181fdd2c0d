"""Analyses as tables and lines of text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from gpt2core.spec.wording import counted, seconds
from taskloom.analysis.naming import configuration
from taskloom.analysis.thresholds import StepLimits
from taskloom.analysis.wording import settings, sides_of, tiles_name, told_apart, value_name
from taskloom.tables import NONE, SHORT_COMMIT, instant, new_table, number, percent, variant

if TYPE_CHECKING:
    from taskloom.analysis.calibration import Calibration
    from taskloom.analysis.causes import EfficiencyRow, RooflineRow
    from taskloom.analysis.growth import Growth
    from taskloom.analysis.history import Series, Since
    from taskloom.analysis.memory import MemoryRow
    from taskloom.analysis.outlook import Outlook
    from taskloom.analysis.rank_forecast import RankForecast
    from taskloom.analysis.rows import SweepRow
    from taskloom.analysis.sweep import Sweep
    from taskloom.analysis.variants import Variant
    from taskloom.analysis.workload import Workload
    from taskloom.contract.series import SeriesRow

MIB = 1 << 20
Shown = Iterator[Table | str]

COMPILED = "*"  # mark of a peak that contains the compiler


def _row(of: Variant) -> tuple[str, str, str]:
    scheduler = of.scheduler if of.scheduler != "task" or "sync" in of.variant else f"task, sync {of.sync}"
    return scheduler, str(of.threads), told_apart(of)


def _missing(rows: Iterable[tuple[Variant, Sequence[str]]]) -> Iterator[str]:
    by_reason: dict[str, list[str]] = {}
    for of, reasons in rows:
        for reason in reasons:
            by_reason.setdefault(reason, []).append(of.name)
    yield from (f"{'; '.join(names)}: {reason}" for reason, names in by_reason.items())


def sweep(found: Sweep) -> Shown:
    """A line for each comparison, the pooled ratios, what is missing, and the fastest variant."""
    yield f"{'the question: ' if found.verdict.primary else ''}{found.verdict.sentence}"
    if not found.rows:
        yield f"no two variants differ in {found.axis} alone" if found.axis else "no setting varies in this experiment"
        return
    columns = ("other settings", str(found.axis), "verdict", "ratio [95 %]", "p, adjusted", "paired")
    table = new_table(None, *columns, left=3)
    for row in found.rows:
        bounds = "" if row.ratio_low is None else f" [{number(row.ratio_low, 3)}, {number(row.ratio_high, 3)}]"
        table.add_row(
            ("the question: " if row.primary else "") + variant(row.at),
            _against(found, row), row.verdict, number(row.ratio, 3) + bounds,
            NONE if row.p_adjusted is None else f"{row.p_adjusted:.2g}", "yes" if row.paired else "no",
        )  # fmt: skip
    yield table
    sides = sides_of((found.axis, row.a, row.b) for row in found.rows)
    yield f"ratio: {sides.ratio}; above 1: {sides.above_1}"
    verdict = found.verdict.sentence
    sentences = [*(row.sentence for row in found.against_faster), *(row.sentence for row in found.pooled)]
    yield from (sentence for sentence in sentences if sentence not in verdict)
    reasons = [row.why for row in found.rows if row.verdict == "undecided"]
    reasons += [of.why for of in found.pooled if of.verdict == "undecided"]
    yield from dict.fromkeys(why.sentence for why in reasons if why != found.verdict.why)
    if found.best is not None:
        share = "" if found.beats_share is None else f"{found.beats_share:.0%} of the others that compute the same"
        beats = share and f", proven faster than {share}"
        leads = "fastest" if found.beats_share == 1 else "smallest median"
        yield f"{leads}: {found.best.name}, {seconds(found.best_step_s)} a step{beats}"


def _against(found: Sweep, row: SweepRow) -> str:
    return f"{value_name(found.axis, row.b)} against {value_name(found.axis, row.a)}"


def efficiency(rows: Sequence[EfficiencyRow]) -> Shown:
    """Parallel efficiency, its factors, and the split of waiting."""
    names = ("parallel eff.", "load balance", "serialisation", "transfer", "no work", "at barriers", "scheduling")
    table = new_table(None, "scheduler", "threads", "slices BxT", *names, "comp. scalability", "task gain at most")
    for row in rows:
        of, waiting = row.efficiency, row.waiting
        capacity_s = None if waiting is None else sum(
            (waiting.useful_s, waiting.serial_s, waiting.load_balance_s, waiting.scheduling_s)
        )  # fmt: skip
        parts = (None,) * 3 if waiting is None else (waiting.serial_s, waiting.load_balance_s, waiting.scheduling_s)
        factors = (None,) * 4 if of is None else (of.parallel, of.load_balance, of.serialisation, of.transfer)
        table.add_row(
            *_row(row.variant),
            *(number(value, 3) for value in factors),
            *(NONE if part is None or not capacity_s else f"{part / capacity_s:.1%}" for part in parts),
            number(None if row.scalability is None else row.scalability.computation, 3),
            number(None if row.bounds is None else row.bounds.gain_limit, 2),
        )
    yield table
    yield "parallel eff. = load balance x serialisation x transfer"
    yield "no work, at barriers, scheduling: shares of the threads' time"
    yield "task gain at most: upper bound of fork-join time / task time"
    yield from _missing((row.variant, row.missing) for row in rows)


def roofline(rows: Sequence[RooflineRow]) -> Shown:
    """Each variant's ops against its roof, and whether its phases are memory-bound."""
    for row in rows:
        if row.peaks is None or row.mfu is None:
            continue
        title = (
            f"{row.variant.name}: peak {row.peaks.gflop_per_s:.0f} GFLOP/s, {row.peaks.triad_gb_per_s:.1f} GB/s, "
            f"ridge {row.peaks.ridge:.1f} flop/byte; model-FLOP utilisation {row.mfu:.1%} of products"
            + ("" if row.mfu_registers is None else f", {row.mfu_registers:.1%} of registers")
        )
        table = new_table(title, "op", "phase", "share of time", "flop/byte", "GFLOP/s", "GB/s", "of its roof",
                          "of registers", "bound by", left=2)  # fmt: skip
        for op in row.ops:
            table.add_row(
                op.op, op.phase, f"{op.time_share:.1%}", number(op.intensity, 1), number(op.achieved_gflop_per_s, 1),
                number(op.achieved_gb_per_s, 1), percent(op.share), percent(op.registers_share), op.bound,
            )  # fmt: skip
        yield table
        for phase in row.phases:
            rates = f"{phase.achieved_gflop_per_s:.1f} GFLOP/s, {phase.achieved_gb_per_s:.1f} GB/s"
            share = f"{phase.bandwidth_share:.0%} of the bandwidth"
            yield f"{phase.phase} memory-bound? {phase.answer}: {phase.reason}; {rates} ({share})"
    yield from _missing((row.variant, row.missing) for row in rows)


def forecast(found: Outlook) -> Shown:
    """Steps on each number of cores, by scheduler and assumption about bandwidth."""
    for one in found.forecasts:
        curves = [f"{c.scheduler}, bandwidth {c.bandwidth}" for c in one.curves]
        title = f"slices {tiles_name(one.source)}, from run {one.source_run_id}"
        table = new_table(title, "cores", *curves, left=1)
        for i, point in enumerate(one.curves[0].points):
            cells = []
            for curve in one.curves:
                there = curve.points[i]
                error = "" if there.error is None else f" ({there.error:+.1%})"
                cells.append(f"{seconds(there.step_s)}, x{there.speedup:.2f}{error}")
            table.add_row(str(point.cores), *cells)
        yield table
        unchecked = "not checked: no step on more than one thread was measured"
        checked = "in brackets: forecast time / measured time - 1"
        yield f"x: speedup over one core; {unchecked if one.worst_error is None else checked}"
        yield from (f"assumption: {assumption}" for assumption in one.assumptions)
    for ranked in found.ranks:
        yield _more_ranks(ranked)
        yield from (f"assumption: {assumption}" for assumption in ranked.assumptions)
    yield from found.missing


def _more_ranks(of: RankForecast) -> Table:
    """Steps with each number of ranks, beside the measured ones."""
    columns = ("scaling", "ranks", "batch", "forecast", "ideal", "exposed", "measured", "error")
    table = new_table(f"{of.source.name}, from run {of.source_run_id}", *columns, left=1)
    for curve in of.curves:
        for point in curve.points:
            known = (NONE, NONE)
            if point.measured_s is not None and point.error is not None:
                known = seconds(point.measured_s), f"{point.error:+.1%}"
            times = map(seconds, (point.step_s, point.ideal_s, point.exposed_s))
            table.add_row(curve.way, str(point.ranks), str(point.batch), *times, *known)
    return table


def _peak(size_bytes: int | None, compiled: bool | None) -> str:
    return NONE if size_bytes is None else f"{size_bytes / MIB:,.1f}{COMPILED if compiled else ''}"


def memory(rows: Sequence[MemoryRow]) -> Shown:
    """Arenas of each variant, their growth with sequences and tokens, and the parts of the peak."""
    kinds = list(rows[0].memory.measured_bytes) if rows else []
    table = new_table("sizes in MiB", "scheduler", "threads", "slices BxT", *kinds, "peak RSS", "arenas / peak",
                      "per sequence", "per token")  # fmt: skip
    for row in rows:
        found = row.memory
        table.add_row(
            *_row(row.variant),
            *(f"{found.measured_bytes.get(kind, 0) / MIB:,.1f}" for kind in kinds),
            _peak(found.peak_rss_bytes, found.peak_compiled),
            NONE if found.arenas_share is None else f"{found.arenas_share:.0%}",
            f"{sum(found.per_sequence_bytes.values()) / MIB:,.2f}" if found.per_sequence_bytes else NONE,
            f"{sum(found.per_token_bytes.values()) / MIB:,.2f}" if found.per_token_bytes else NONE,
        )
    yield table
    if any(row.memory.peak_compiled for row in rows):
        yield (
            f"{COMPILED}: every process of the variant compiled kernels; its peak contains the compiler and is not "
            "comparable with others"
        )
    for row in rows:
        found = row.memory
        if found.explained is not None:
            text = ", ".join(f"{name} {size / MIB:,.1f}" for name, size in found.resident_bytes.items())
            yield f"{row.variant.name}: resident memory in MiB: {text}; together {found.explained:.0%} of the peak"


def memory_growth(found: Sequence[Growth]) -> Shown:
    """Training beside inference along each axis, and what it amounts to in a sentence."""
    for one in found:
        fixed = ", ".join(f"{name} {value}" for name, value in one.fixed.items())
        title = f"arenas in MiB by {one.axis}, {fixed}"
        table = new_table(title, one.axis, "train", "infer", "infer / train", "weights", "train, peak", "infer, peak",
                          left=0)  # fmt: skip
        for point in one.points:
            table.add_row(
                str(point.size), f"{point.train_bytes / MIB:,.1f}", f"{point.infer_bytes / MIB:,.1f}",
                f"{point.infer_bytes / point.train_bytes:.0%}", f"{point.weights_bytes / MIB:,.1f}",
                _peak(point.train_peak_bytes, False), _peak(point.infer_peak_bytes, False),
            )  # fmt: skip
        yield table
        yield one.sentence


def workload(found: Workload) -> Shown:
    """Of each network: its runs, the ops of its costliest runs, memory, growth, and what it amounts to in sentences."""
    for of in found.networks:
        title = f"{of.model} ({of.network})"
        phases = list(dict.fromkeys(phase.phase for row in of.rows for phase in row.phases))
        table = new_table(title, "mode", "data", "batch", "settings", "step", *phases, "arenas, MiB",
                          "peak, MiB", "MFU", left=2)  # fmt: skip
        for row in of.rows:
            times = {phase.phase: phase for phase in row.phases}
            table.add_row(
                row.mode, row.data, str(row.batch), settings(row.how),
                seconds(row.step_s),
                *(f"{times[name].share:.1%}" if name in times else NONE for name in phases),
                f"{sum(row.memory_bytes.values()) / MIB:,.1f}", _peak(row.peak_rss_bytes, False), percent(row.mfu),
            )  # fmt: skip
        yield table
        for row in (of.rows[place] for place in of.typical):
            table = new_table(f"{title}, {row.mode}: ops of {settings(row.how)}", "op", "phase", "calls", "time",
                              "share", "flop/byte", "GFLOP/s", "GB/s", "of its roof", "bound by", left=2)  # fmt: skip
            for op in row.ops:
                table.add_row(
                    op.op, op.phase, f"{op.calls:.0f}", seconds(op.time_s), f"{op.share:.1%}", number(op.intensity, 1),
                    number(op.gflop_per_s, 1), number(op.gb_per_s, 1), percent(op.roof_share), op.bound or NONE,
                )  # fmt: skip
            yield table
            reasons: dict[str, list[str]] = {}
            for name, why in row.counters.missing.items():
                reasons.setdefault(why, []).append(name)
            yield from (f"not counted ({', '.join(names)}): {why}" for why, names in reasons.items())
        yield from memory_growth(of.growth)
        yield from of.answers
    if len(found.networks) > 1:
        yield from found.answers


def history(found: Sequence[Series]) -> Shown:
    """A line for each series and for each of its changes, with the state of the alert."""
    for one in found:
        last = one.points[-1]
        yield (
            f"{configuration(one.config)} on {one.machine['node']}: {counted(len(one.points), 'run')}, the last is "
            f"run {last.run_id} with {seconds(last.step_s)} a step"
        )
        if one.threshold is not None:
            yield f"  threshold: {seconds(one.threshold.reference_s)}; {one.threshold.allowed} is allowed"
        alerts = {alert.change.first_after: alert for alert in one.alerts}
        for change in one.changes:
            alert = alerts.get(change.first_after)
            state = "faster" if alert is None else f"slower, {alert.state} ({alert.reason})"
            state += f"; cause: {change.cause}"
            low, high = number(change.ratio_low, 3), number(change.ratio_high, 3)
            bounds = "" if change.ratio_low is None else f" [{low}, {high}]"
            differs = f"; {', '.join(change.differs)}" if change.differs else ""
            if change.since is not None:
                differs += f"; {since(change.since)}"
            yield (
                f"  from run {change.first_after} on: {seconds(change.before_s)} -> {seconds(change.after_s)} a step, "
                f"ratio after / before {change.ratio:.3f}{bounds}: {state}{differs}"
            )


def series(items: Iterable[SeriesRow]) -> Table:
    """Table of series with the states of their alerts."""
    table = new_table(None, "series", "configuration", "node", "newest, UTC", "alerts", "latest", "runs", left=5)
    for item in items:
        states = " ".join(alert.state for alert in item.alerts) or NONE
        latest = seconds(item.median_step_s)
        table.add_row(str(item.id), item.name, item.node, instant(item.last_at), states, latest, str(item.runs))
    return table


def thresholds(items: Iterable[SeriesRow]) -> Table:
    """Table of the series that have a threshold."""
    columns = ("series", "configuration", "node", "by", "allowed", "reference", "latest")
    table = new_table(None, *columns, left=5)
    for item in items:
        if item.threshold is not None:
            limits = StepLimits(item.threshold.reference_s, item.threshold.lower, item.threshold.upper)
            times = seconds(limits.reference_s), seconds(item.median_step_s)
            by = item.threshold.set_by
            table.add_row(str(item.id), configuration(item.config), item.node, by, limits.allowed, *times)
    return table


def since(of: Since) -> str:
    """The range of commits of a change, with its link."""
    whose = "commits" if of.of == "submitted" else "commits of the trainer"
    text = f"{whose} {of.last_before[:SHORT_COMMIT]}..{of.first_after[:SHORT_COMMIT]}"
    text += " (changed sources)" if of.dirty else ""
    return text if of.url is None else f"{text}: {of.url}"


def calibrations(found: Sequence[Calibration]) -> Shown:
    """The detectable difference of each node by number of pairs."""
    if not found:
        yield "no node is calibrated; queue a calibration: taskloom experiments calibrate"
    for one in found:
        text = ", ".join(f"{each.relative:.2%} with {counted(each.pairs, 'pair')}" for each in one.detectable
                         if each.relative is not None)  # fmt: skip
        yield (
            f"{one.node} (experiment {one.experiment_id}, {counted(one.pairs, 'pair')}, spread {one.spread:.2%}, at "
            f"most {one.spread_upper:.2%}, both halves: {one.verdict}): smallest difference detected in four of five "
            f"experiments: {text}"
        )
        for difference in dict.fromkeys(each.difference for each in one.power):
            powers = ((each.pairs, each.power) for each in one.power if each.difference == difference)
            text = ", ".join(f"with {counted(pairs, 'pair')} in {p:.0%} of experiments" for pairs, p in powers)
            yield f"  a difference of {difference:.0%} is detected {text}"
        yield (
            f"  false alarms: {one.false_alarms} of {counted(one.comparisons, 'A/A experiment')} "
            f"(rate at most {one.false_alarm_upper:.0%})"
        )
