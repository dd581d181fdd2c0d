"""The report of a workload: for each network time by phase and op, memory and its growth, rates, counters."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from gpt2core.spec.wording import counted
from taskloom.analysis.causes import RooflineRow
from taskloom.analysis.report import plots
from taskloom.analysis.report.colours import ARENA, OP_KINDS, PHASE, op_colour
from taskloom.analysis.report.conclusion import milliseconds
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
from taskloom.analysis.report.svg import INK, ROW, Scale, legend, line, plain, rect, text, x_axis
from taskloom.analysis.report.svg import figure as drawing
from taskloom.analysis.wording import settings
from taskloom.analysis.workload import SchedulerRatio, Workload, WorkNetwork, WorkRow
from taskloom.analysis.workload_sentences import LEAST_SHARE

Part = tuple[str, float, str, str]  # kind in the legend, value, colour, title
QUESTION = "Where do the time and the memory of a step go?"
COUNTED = {"instructions": "instructions", "cycles": "cycles", "cache_misses": "cache misses"}


def section(found: Workload, roofs: Sequence[RooflineRow]) -> str:
    """All networks beside each other, and one after the other."""
    several = len(found.networks) > 1
    return _overview(found.networks) + "".join(_network(of, roofs, says=several) for of in found.networks)


def row_name(row: WorkRow) -> str:
    """train, B4 T64, task, 2 threads; with the data if they are real."""
    size = f"B{row.batch}" + (f" T{row.seq}" if row.side is None else "")
    data = () if row.data == "synthetic" else (row.data,)
    return ", ".join([row.mode, size, *data, settings(row.how)])


def _overview(networks: Sequence[WorkNetwork]) -> str:
    """The answers of several networks: a line each."""
    if len(networks) < 2:
        return ""
    columns = ["network", "memory-bound in training", "in inference",
               f"schedulers in training: ratio {AT_95}, the second is", "in inference", "inference / training: step",
               "arenas", "peak RSS"]  # fmt: skip
    return f"<h2>All networks</h2>{table(columns, [_line(of) for of in networks], 5)}"


def _line(of: WorkNetwork) -> Sequence[str]:
    shown = {row.mode: row for row in (of.rows[place] for place in of.typical)}
    train, infer = (shown.get(mode) for mode in ("train", "infer"))
    beside = [(each.time, each.arenas, each.peak) for each in of.modes if infer is not None
              and (each.scheduler, each.threads, each.batch)
              == (infer.variant.scheduler, infer.variant.threads, infer.batch)]  # fmt: skip
    return (
        of.model, *map(_bound, (train, infer)), *(_compared(row, of.schedulers) for row in (train, infer)),
        *map(share, beside[0] if beside else (None, None, None)),
    )  # fmt: skip


def _bound(row: WorkRow | None) -> str:
    """The phases that are memory-bound, of those that take LEAST_SHARE of a step."""
    phases = [] if row is None else [(each.phase, each.memory_bound) for each in row.phases
                                     if each.share >= LEAST_SHARE]  # fmt: skip
    if all(answer is None for _, answer in phases):
        return "-"
    bound = {"yes": "", "partly": " (partly)"}
    return ", ".join(f"{name}{bound[answer]}" for name, answer in phases if answer in bound) or "none"


def _compared(row: WorkRow | None, ratios: Sequence[SchedulerRatio]) -> str:
    """Ratios of schedulers with the mode, the batch and the threads of a row, with their verdicts."""
    alike = [] if row is None else [each for each in ratios if (each.mode, each.batch, each.threads)
                                    == (row.mode, row.batch, row.variant.threads)]  # fmt: skip
    return "; ".join(f"{each.a} / {each.b} {number(each.ratio, 3)}{interval(each.ratio_low, each.ratio_high)}"
                     f", {each.verdict}" for each in alike) or "-"  # fmt: skip


def _network(of: WorkNetwork, roofs: Sequence[RooflineRow], says: bool) -> str:
    rows = of.rows
    shown = [rows[place] for place in of.typical]
    said = "".join(f"<li>{escape(sentence)}</li>" for sentence in of.answers) if says else ""
    parts = [
        f"<h2>{escape(of.model)} ({escape(of.network)})</h2>{said and f'<ul>{said}</ul>'}",
        figure(_phases(rows), BARS + OVERLAP),
        table(["run", "phase", "time, ms", "share", "memory-bound", "GFLOP/s", "GB/s"], _phase_rows(shown), 2),
        figure(_ops(rows), "Share of each op type in the time of all ops, all layers and threads together."),
        *(_op_table(row) for row in shown),
        *(figure(plots.roofline(roof), f"Roofline of {row_name(row)}, with the roofs that were measured on the node "
                 "with the same number of threads. Larger circles: larger shares of time.")
          for row in shown for roof in roofs if roof.variant == row.variant and roof.ops),
        figure(_memory(rows), "Bars: arenas, exact to the byte. Black lines: the highest peak RSS of the processes "
               "that compiled no kernels."),
        table(["run (sizes in MiB)", *(rows[0].memory_bytes if rows else ()), "peak RSS"], _memory_rows(rows)),
        figure(plots.memory_growth(of.growth),
               " ".join(["Lines: all arenas together, by the formula.", *(one.sentence for one in of.growth)])),
        _ratios(of),
        _counters(rows),
    ]  # fmt: skip
    return "".join(parts)


def _stacked(title: str, label: str, rows: Sequence[tuple[str, Sequence[Part], str, float | None]]) -> str:
    """Stacked bars: (name, parts, text at the end, mark) a row."""
    left, right, height = 300, 210, ROW
    longest = max((max(sum(part[1] for part in parts), mark or 0) for _, parts, _, mark in rows), default=0)
    if not longest:
        return ""
    top, bottom = 20, 20 + height * len(rows)
    x = Scale(0, longest * 1.03, left, plots.WIDTH - right)
    drawn = [*x_axis(x, top, bottom, label, plain)]
    kinds: dict[str, str] = {}
    for i, (name, parts, says, mark) in enumerate(rows):
        y, at = top + height * i, 0.0
        drawn.append(text(left - 8, y + 16, name, "end", 12))
        for kind, value, colour, hint in parts:
            kinds.setdefault(kind, colour)
            drawn.append(rect(x(at), y + 4, x(at + value) - x(at), height - 8, colour, hint))
            at += value
        if mark:
            drawn.append(line([(x(mark), y + 2), (x(mark), y + height - 2)], INK, 2.5))
        drawn.append(text(x(max(at, mark or 0)) + 6, y + 16, says, size=11))
    drawn += legend([(kind, colour, "box") for kind, colour in kinds.items()], plots.WIDTH - right + 80, top + 10)
    return drawing(plots.WIDTH, max(bottom + 48, top + 19 * len(kinds) + 12), drawn, title)


def _phases(rows: Sequence[WorkRow]) -> str:
    return _stacked("Time of a step by phase", "milliseconds a step (median)", [
        (
            row_name(row),
            [(phase.phase, 1e3 * phase.time_s, PHASE[phase.phase], f"{phase.phase}: {milliseconds(phase.time_s)}")
             for phase in row.phases],
            milliseconds(row.step_s), 1e3 * row.step_s,
        )
        for row in rows
    ])  # fmt: skip


def _ops(rows: Sequence[WorkRow]) -> str:
    kinds = {colour: kind for kind, colour in OP_KINDS}
    return _stacked("Time by op type", "% of the time of all ops", [
        (
            row_name(row),
            [(kinds[op_colour(op.op)], 100 * op.share, op_colour(op.op),
              f"{op.op} {op.phase}: {op.share:.1%}")
             for op in sorted(row.ops, key=lambda op: (list(kinds).index(op_colour(op.op)), -op.share))],
            "", None,
        )
        for row in rows
    ])  # fmt: skip


def _memory(rows: Sequence[WorkRow]) -> str:
    return _stacked("Memory", "MiB", [
        (
            row_name(row),
            [(kind, size / 2**20, colour, f"{kind}: {mib(size)} MiB")
             for (kind, size), colour in zip(row.memory_bytes.items(), ARENA, strict=False) if size],
            f"{mib(sum(row.memory_bytes.values()))} MiB",
            None if row.peak_rss_bytes is None else row.peak_rss_bytes / 2**20,
        )
        for row in rows
    ])  # fmt: skip


def _phase_rows(rows: Sequence[WorkRow]) -> list[Sequence[str]]:
    return [
        (row_name(row), phase.phase, ms(phase.time_s), share(phase.share), phase.memory_bound or "-",
         number(phase.gflop_per_s, 1), number(phase.gb_per_s, 1))
        for row in rows for phase in row.phases
    ]  # fmt: skip


def _op_table(row: WorkRow) -> str:
    rows = [
        (op.op, op.phase, number(op.calls, 0), ms(op.time_s), share(op.share),
         number(op.intensity, 1), number(op.gflop_per_s, 1), number(op.gb_per_s, 1),
         share(op.roof_share), op.bound or "-")
        for op in row.ops
    ]  # fmt: skip
    columns = ["op", "phase", "calls a step", "time a step of all threads, ms", "share of time", "flop/byte",
               "GFLOP/s", "GB/s", "share of its roof", "bound by"]  # fmt: skip
    reasons = f'<p class="soft">{escape("; ".join(row.missing))}</p>' if row.missing else ""
    return f"<details><summary>Ops of {escape(row_name(row))}</summary>{table(columns, rows, 2)}</details>{reasons}"


def _memory_rows(rows: Sequence[WorkRow]) -> list[Sequence[str]]:
    return [(row_name(row), *(mib(size) for size in row.memory_bytes.values()), mib(row.peak_rss_bytes))
            for row in rows]  # fmt: skip


def _ratios(of: WorkNetwork) -> str:
    modes = [
        (f"B{row.batch}, {row.scheduler}, {counted(row.threads, 'thread')}", share(row.time),
         share(row.arenas), share(row.peak))
        for row in of.modes
    ]  # fmt: skip
    data = [
        (f"{row.real} / {row.generated}, {row.scheduler}, {counted(row.threads, 'thread')}",
         number(row.time, 3), ms(row.real_data_s), ms(row.generated_data_s))
        for row in of.data
    ]  # fmt: skip
    schedulers = [
        (f"{row.mode}, B{row.batch}, {counted(row.threads, 'thread')}", f"{row.a} / {row.b}",
         number(row.ratio, 3) + interval(row.ratio_low, row.ratio_high), row.verdict)
        for row in of.schedulers
    ]  # fmt: skip
    steps = [(row_name(row), ms(row.step_s) + ms_interval(row.step_low_s, row.step_high_s), share(row.mfu),
              str(row.variant.runs)) for row in of.rows]  # fmt: skip
    return "".join([
        table(["run", f"median step, ms {AT_95}", "MFU", "processes"], steps),
        table(["schedulers", "time of", f"ratio {AT_95}", "the second is"], schedulers, 2) if schedulers else "",
        table(["inference / training", "time", "arenas", "peak RSS"], modes) if modes else "",
        table(["real / generated data", "time of a step", "data phase, real, ms", "generated, ms"], data)
        if data else "",
    ])  # fmt: skip


def _counters(rows: Sequence[WorkRow]) -> str:
    """Counters, or why there are none."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        for name, why in row.counters.missing.items():
            if name in COUNTED and COUNTED[name] not in reasons.setdefault(why, []):
                reasons[why].append(COUNTED[name])
    missing = "".join(f'<p class="soft">Not counted ({", ".join(names)}): {escape(why)}.</p>'
                      for why, names in reasons.items())  # fmt: skip
    known = [row for row in rows if any(getattr(row.counters, name) is not None for name in COUNTED)]
    shown = [(row_name(row), *(number(getattr(row.counters, name), 0) for name in COUNTED),
              number(row.counters.miss_gb_per_s, 2)) for row in known]  # fmt: skip
    columns = ["per step", *COUNTED.values(), "GB/s by misses of 64 bytes"]
    return (table(columns, shown) if shown else "") + missing
