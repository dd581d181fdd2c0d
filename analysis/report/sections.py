"""The report's sections on step times: verdicts, runtime, causes, memory, forecast."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from gpt2core.spec.goals import LOSS
from gpt2core.spec.phases import PASSES, PHASES
from gpt2core.spec.wording import enumerated, noun_for
from taskloom.analysis.forecast import LARGE_ERROR
from taskloom.analysis.goals import GoalRow, Spent
from taskloom.analysis.levels import Levels
from taskloom.analysis.memory import Memory
from taskloom.analysis.report import communication, lanes, plots
from taskloom.analysis.report.conclusion import (
    Statement,
    milliseconds,
    sides,
    statements,
    variant_name,
)
from taskloom.analysis.report.content import Report, TracedSteps
from taskloom.analysis.report.elements import (
    AT_95,
    BARS,
    OVERLAP,
    figure,
    interval,
    mib,
    ms,
    ms_interval,
    number,
    share,
    table,
)
from taskloom.analysis.rows import AgainstFaster, Pooled
from taskloom.analysis.wording import tiles_name

SPEEDUPS = ("variant", f"speedup of the step {AT_95}", "efficiency", f"of forward {AT_95}", "efficiency",
            f"of backward {AT_95}", "efficiency", f"over best T(1) {AT_95}")  # fmt: skip
SPREAD = (
    "CV: standard deviation / mean. Standard deviations are relative to the step time. Steps advised: number of timed "
    "steps per process that narrows the interval most for the time spent."
)
FACTORS = (
    "Parallel efficiency = load balance x serialisation x transfer, over the threads of all ranks. Computation "
    "scalability: useful time of one thread / useful time of all threads. T1/Tinf: work / span. Gain of task: upper "
    "bound of fork-join time / task time."
)
NOT_CHECKED = "Not checked: no step on more than one thread was measured."
NOT_GIVEN = f", more than {LARGE_ERROR:.0%}: no other number of cores is forecast"
MEMORY_BOUND = (
    "A phase is memory-bound if at least half of its time is in ops below the ridge and its computation scalability is "
    "below 0.9: the same work takes more useful time than on one thread. If only one of the two holds, it is partly "
    "memory-bound."
)
MFU = (
    "MFU: model-FLOP utilisation of the step. Its first column is relative to the measured peak of 1024 x 1024 matrix "
    "products, its second to the peak of multiply-adds in registers, both with the same number of threads."
)


def answer(report: Report) -> str:
    """Verdicts of the sweep."""
    sweep = report.sweep
    if not sweep.rows and sweep.primary is None:
        return ""
    rows = [(where, compared, *_judged(row), *_sample(row)) for where, compared, row in statements(sweep)]
    columns = ["other settings", str(sweep.axis), "verdict", f"ratio {AT_95}", "p, adjusted", "superiority",
               "instructions ratio", "sample"]  # fmt: skip
    counts = [row.instructions for row in sweep.rows if row.instructions is not None]
    lacking = sorted({count.reason for count in counts if count.ratio is None and count.reason})
    text = f" Instructions are unknown: {'; '.join(lacking)}." if lacking else ""
    legend = f"{sides(sweep).ratio} (Hodges-Lehmann); above 1: {sides(sweep).above_1}"
    return (
        figure(plots.ratios(report), f"{legend}. Lines: 95 % intervals. Grey band: the noise floor. Grey dots: "
                "undecided or equivalent.")
        + table(columns, rows, 3)
        + f'<p class="soft">Ratio: {escape(legend)}. p: two-sided, adjusted for multiple comparisons (Holm): all rows '
        "together, but the question, ratios about places like these and comparisons with the faster loops apart. "
        "Superiority: probability that a process of the first value is faster than one of the second; 0.5: no "
        f"difference. Instructions ratio: that of the instructions of a step.{escape(text)}</p>"
    )  # fmt: skip


def _judged(row: Statement) -> tuple[str, str, str]:
    """Verdict, ratio and p-value."""
    p_value = "-" if row.p_adjusted is None else f"{row.p_adjusted:.2g}"
    return row.verdict, number(row.ratio, 3) + interval(row.ratio_low, row.ratio_high), p_value


def _sample(row: Statement) -> tuple[str, str, str]:
    """Superiority, ratio of instructions, and what was sampled."""
    if isinstance(row, Pooled):
        return "-", "-", f"{row.pairs} pairs, {row.scope}"
    if isinstance(row, AgainstFaster):
        return "-", "-", f"{row.n} {row.unit}"
    sampled = (f"{row.n} {row.unit}" if row.n else "-") + ("" if row.paired else ", not paired")
    return number(row.superiority), number(None if row.instructions is None else row.instructions.ratio, 3), sampled


def runtime(report: Report) -> str:
    """Step times, their spread, speedups."""
    over = {str(row.step_s.over) for row in report.scaling.rows}
    units = sorted({row.unit for row in report.scaling.rows})
    rows = [
        (
            variant_name(row),
            ms(row.step_s.median) + ms_interval(row.step_s.low, row.step_s.high),
            f"{ms(row.step_s.q1)} to {ms(row.step_s.q3)}",
            str(row.step_s.n) if len(over) == 1 else f"{row.step_s.n} {row.step_s.over}",
            ", ".join(map(str, row.outliers)) or "-",
            f"{row.tokens_per_s:,.0f}",
            " ".join(["-" if row.final_loss is None else f"{row.final_loss:.5f}",
                      *([] if row.agrees else ["disagrees"])]),
        )
        for row in report.scaling.rows
    ]
    columns = ["variant", f"median step, ms {AT_95}", "quartiles, ms", *(over if len(over) == 1 else ["n"]),
               "outlier runs", f"{', '.join(units)}/s", "final loss"]  # fmt: skip
    spread = [
        (variant_name(row), share(row.step_s.cv), *_levels(row.levels))
        for row in report.scaling.rows
    ]
    speedups = [
        (
            variant_name(row),
            *(
                cell
                for name in ("", *(f"_{phase}" for phase in PASSES))
                for cell in (
                    number(getattr(row, f"speedup{name}"))
                    + interval(getattr(row, f"speedup{name}_low"), getattr(row, f"speedup{name}_high"), 2),
                    number(getattr(row, f"efficiency{name}")),
                )
            ),
            number(row.speedup_best_serial)
            + interval(row.speedup_best_serial_low, row.speedup_best_serial_high, 2),
        )
        for row in report.scaling.rows
        if row.threads > 1
    ]
    overlap = any(row.phases_overlap for row in report.scaling.rows)
    return (
        "<h2>Runtime, speedup, samples</h2>"
        + figure(plots.runtime(report), f"{BARS} Horizontal lines: its 95 % interval"
                  + (", over the steps of a single process where there is only one" if "steps" in over else "")
                  + f".{OVERLAP if overlap else ''}")
        + table(columns, rows)
        + _goals(report.scaling.goals)
        + table(["variant", "CV", "SD between processes", "SD between steps", "steps advised"], spread)
        + f'<p class="soft">{SPREAD}</p>'
        + figure(plots.samples(report), "Dots: timed steps. Rings: medians of processes. Black: outliers, more than "
                  "1.5 interquartile ranges beyond a quartile; all figures include them.")
        + (table(SPEEDUPS, speedups) if speedups else "")
        + f'<p class="soft">{escape(report.scaling.base)}.{OVERLAP if overlap else ""}</p>'
        + figure(plots.speedup(report), "Speedup over one thread of the same scheduler and slices, with its 95 % "
                  "interval. Short horizontal bars: upper bounds from work and span.")
        + figure(plots.phase_speedups(report), "Speedup of forward and of backward, over the same base."
                  + (OVERLAP if overlap else ""))
    )  # fmt: skip


def _goals(rows: Sequence[GoalRow]) -> str:
    """Table of what the way to the runs' goal took; nothing without one."""
    if not rows:
        return ""
    shown = [
        (
            variant_name(row),
            f"{row.metric} {'at most' if row.metric == LOSS else 'at least'} {row.value:g}",
            f"{row.reached} of {row.runs}",
            *(_spent(found, digits) for found, digits in ((row.steps, 0), (row.time_s, 3), (row.energy_j, 1))),
            f"{row.n} {row.over}",
        )
        for row in rows
    ]
    columns = ["variant", "goal", "runs that reached it", f"steps {AT_95}", f"time, s {AT_95}", f"energy, J {AT_95}",
               "values"]  # fmt: skip
    reasons = sorted({row.energy_missing for row in rows if row.energy_missing})
    text = f" Energy is unknown: {'; '.join(reasons)}." if reasons else ""
    return table(columns, shown) + (
        '<p class="soft">Until the first step that reached the goal, warm-up included: medians, of several seeds over '
        f"seeds. They are shown where every run reached the goal.{escape(text)}</p>"
    )


def _spent(found: Spent | None, digits: int) -> str:
    if found is None:
        return "-"
    return number(found.median, digits) + interval(found.low, found.high, digits)


def _levels(found: Levels | None) -> tuple[str, str, str]:
    """Variance components, and how many timed steps are worth one process."""
    if found is None:
        return "-", "-", "-"
    advised = found.steps_advised
    return share(found.process), share(found.step), "-" if advised is None else str(advised)


def causes(report: Report) -> str:
    """Efficiency factors and timelines."""
    rows = []
    for row in report.efficiency:
        found, scaled, bounds = row.efficiency, row.scalability, row.bounds
        names = ("parallel", "load_balance", "serialisation", "transfer")
        spans = ("parallelism", "fork_join_parallelism")
        rows.append((
            variant_name(row.variant),
            *(number(None if found is None else getattr(found, name), 3) for name in names),
            number(None if scaled is None else scaled.computation, 3),
            *(number(None if bounds is None else getattr(bounds, name), 1) for name in spans),
            number(None if bounds is None else bounds.gain_limit),
        ))  # fmt: skip
    columns = ["variant", "parallel efficiency", "load balance", "serialisation", "transfer", "computation scalability",
               "T1/Tinf of the graph", "T1/Tinf with barriers", "gain of task, at most"]  # fmt: skip
    return (
        "<h2>Where the time went</h2>"
        + figure(plots.efficiency(report), "Useful: time in tasks. No work: no task is ready. At barriers: waiting "
                  "for the other threads. Scheduling: all other time.")
        + table(columns, rows)
        + f'<p class="soft">{FACTORS}</p>'
        + figure(lanes.traced(report), _traced_caption(report.traced))
        + figure(
            lanes.timeline(report),
            "Forecast: one step, replayed with the measured task times of a one-thread run and without a bandwidth "
            "limit. Under fork-join, cores idle at the barrier after each op; under task, ops overlap.",
        )
    )  # fmt: skip


def _traced_caption(rows: Sequence[TracedSteps]) -> str:
    parts = [
        f"run {row.run_id}: median step {milliseconds(row.traced_step_s)} traced, "
        f"{milliseconds(row.timed_step_s)} timed"
        + ("" if row.complete else " (the trace is incomplete)")
        for row in rows
    ]
    return (
        "Measured: consecutive steps near the median, traced in a separate attempt whose times are used nowhere else "
        f"({'; '.join(parts)}). Dashed lines: ends of steps. Time that is neither task nor wait is scheduling."
    )


def memory_bound(report: Report) -> str:
    """Rooflines, per phase and per op."""
    shown = [row for row in report.roofline if row.ops]
    if not shown:
        reasons = sorted({reason for row in report.roofline for reason in row.missing})
        text = "; ".join(reasons) or "The results contain no rates of ops."
        return f'<h2>Is it memory-bound?</h2><p class="soft">{escape(text)}</p>'
    sharing = [row for row in shown if row.variant.threads > 1]  # one thread shares the memory with no other
    rows = [
        (
            variant_name(row.variant), phase.phase, phase.answer,
            f"{phase.memory_time_share:.0%}", number(phase.computation_scalability),
            f"{phase.achieved_gflop_per_s:.1f}", f"{phase.achieved_gb_per_s:.1f}",
            f"{phase.bandwidth_share:.0%}", number(phase.intensity, 1),
        )
        for row in sharing or shown
        for phase in sorted(row.phases, key=lambda phase: PHASES.index(phase.phase))
        if phase.phase in (*PASSES, "update")
    ]  # fmt: skip
    mfu = [
        (variant_name(row.variant), share(row.mfu), share(row.mfu_registers)) for row in sharing or shown
    ]
    best = report.sweep.best
    chosen = next((row for row in shown if row.variant == best), shown[-1])
    ops = [
        (
            op.op, op.phase, f"{op.time_share:.1%}", number(op.intensity, 1),
            number(op.achieved_gflop_per_s, 1), number(op.achieved_gb_per_s, 1),
            share(op.share), share(op.registers_share), op.bound,
        )
        for op in chosen.ops
    ]  # fmt: skip
    columns = ["op", "phase", "share of time", "flop/byte", "GFLOP/s", "GB/s", "share of its roof",
               "share of register peak", "bound by"]  # fmt: skip
    name = variant_name(chosen.variant)
    return (
        "<h2>Is it memory-bound?</h2>"
        + table(["variant", "phase", "memory-bound", "time below the ridge", "computation scalability", "GFLOP/s",
                  "GB/s", "share of bandwidth", "flop/byte"], rows, 3)
        + f'<p class="soft">{MEMORY_BOUND}</p>'
        + table(["variant", "MFU, matrix products", "MFU, registers"], mfu)
        + f'<p class="soft">{MFU}</p>'
        + figure(plots.roofline(chosen), f"Roofline of {name}. The roofs were measured on the node with the same "
                  "number of threads. Larger circles: larger shares of time.")
        + f"<details><summary>Ops of {escape(name)}</summary>{table(columns, ops, 2)}</details>"
    )  # fmt: skip


def forecast(report: Report) -> str:
    """Forecast step times on more cores."""
    found = report.forecast
    parts = ["<h2>Forecast for more cores</h2>"]
    for one in found.forecasts:
        worst = one.worst_error
        doubt = "" if one.given else NOT_GIVEN
        error = NOT_CHECKED if worst is None else f"Largest error against a measured step: {worst:.1%}{doubt}."
        runs = enumerated(f"{run_id} ({scheduler})" for scheduler, run_id in one.source_run_ids.items())
        noun = noun_for(len(set(one.source_run_ids.values())), "run")
        caption = (
            f"Slices {tiles_name(one.source)}: forecast from the one-thread {noun} {runs}. "
            f"Solid: bandwidth grows with the cores. Dashed: it stays constant. {error}"
        )
        parts.append(figure(plots.forecast(one), caption))
    if found.forecasts:
        assumed = "".join(f"<li>{escape(assumption)}</li>" for assumption in found.forecasts[0].assumptions)
        parts.append(f"<p>Assumptions:</p><ul>{assumed}</ul>")
        columns = ["scheduler, slices", "bandwidth", "cores", "forecast, ms", "speedup", "measured, ms", "error"]
        rows = [
            (
                f"{curve.scheduler} {tiles_name(one.source)}",
                curve.bandwidth, str(point.cores), ms(point.step_s), number(point.speedup),
                "-" if point.measured_s is None else ms(point.measured_s),
                "-" if point.error is None else f"{point.error:+.1%}",
            )
            for one in found.forecasts for curve in one.curves for point in curve.points
        ]  # fmt: skip
        parts.append(f"<details><summary>All points</summary>{table(columns, rows, 2)}</details>")
    parts += [f'<p class="soft">{escape(reason)}</p>' for reason in found.missing]
    return "".join(parts)


COMPILED = (
    "*: every process of the variant compiled kernels. The peak contains the compiler, so it has no line and is not "
    "comparable with the others."
)


def _peak(memory: Memory) -> str:
    return mib(memory.peak_rss_bytes) + ("*" if memory.peak_compiled else "")


def memory(report: Report) -> str:
    """Sizes of the arenas and peak RSS."""
    if not report.memory:
        return ""
    rows = [
        (
            variant_name(row.variant),
            *(mib(size) for size in row.memory.measured_bytes.values()),
            _peak(row.memory),
            "-" if row.memory.arenas_share is None else f"{row.memory.arenas_share:.0%}",
            "yes" if row.memory.exact else "no",
        )
        for row in report.memory
    ]
    kinds = list(report.memory[0].memory.measured_bytes)
    pieces = list(dict.fromkeys(name for row in report.memory for name in row.memory.resident_bytes))
    resident = [
        (
            variant_name(row.variant),
            *(mib(row.memory.resident_bytes.get(name)) for name in pieces),
            _peak(row.memory),
            f"{row.memory.explained:.0%}",
        )
        for row in report.memory
        if row.memory.explained is not None
    ]
    return (
        "<h2>Memory</h2>"
        + figure(
            plots.memory(report),
            "Bars: arenas, exact to the byte. Black lines: the highest peak RSS of the processes that compiled no "
            "kernels. The second table splits the memory of the process with this peak by the part of the run in which "
            "it grew."
            + (f" {COMPILED}" if any(row.memory.peak_compiled for row in report.memory) else ""),
        )
        + table(["variant (sizes in MiB)", *kinds, "peak RSS", "arenas / peak RSS", "equals the formula"], rows)
        + (table(["variant (resident, MiB)", *pieces, "peak RSS", "sum / peak RSS"], resident) if resident else "")
        + figure(
            plots.memory_growth(report.memory_growth),
            " ".join(["Lines: size of all arenas together, by the formula.",
                      *(one.sentence for one in report.memory_growth)]),
        )
    )


ALL = (answer, runtime, causes, communication.section, memory_bound, forecast, memory)
