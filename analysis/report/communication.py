"""The report's section on exchanges between ranks."""

from __future__ import annotations

from html import escape

from gpt2core.spec.result import EXCHANGE_SIZES, EXCHANGE_TIMES
from taskloom.analysis.communication import RankCommunication
from taskloom.analysis.rank_forecast import RankForecast
from taskloom.analysis.report.conclusion import milliseconds, variant_name
from taskloom.analysis.report.content import Report
from taskloom.analysis.report.elements import figure, mib, ms, share, table
from taskloom.analysis.report.plots import LEFT, RIGHT, WIDTH
from taskloom.analysis.report.svg import INK, ROW, Scale, legend, line, plain, rect, row_name, text, x_axis
from taskloom.analysis.report.svg import figure as drawing

IN_FLIGHT = {"hidden": "var(--useful)", "exposed": "var(--barrier)"}
CAPTION = (
    "Time of a step for which messages are in flight, the mean over timed steps and runs. Exposed: the threads of the "
    "rank wait with no other task ready. Hidden: the rest, in which they compute. Black lines: time in calls of the "
    "MPI library, summed over threads. At the right: the hidden share."
)
FORECAST = (
    "Strong: the batch of all ranks is held. Weak: it grows with their number. Ideal: the forecast with one rank, "
    "under strong scaling divided by the ranks. Exposed: what messages add to the step."
)


def section(report: Report) -> str:
    """Exchanges of each rank; empty without runs of several ranks."""
    rows = [
        (f"{variant_name(row.variant)}, rank {rank.rank}", rank)
        for row in report.communication
        for rank in row.ranks
    ]
    if not rows:
        return ""
    columns = ["variant and rank", "in calls, ms", "in flight, ms", "exposed, ms", "MiB sent", "MiB received"]
    cells = [
        (name, *(ms(getattr(rank, key)) for key in EXCHANGE_TIMES),
         *(mib(round(getattr(rank, key))) for key in EXCHANGE_SIZES))
        for name, rank in rows
    ]  # fmt: skip
    parts = ["<h2>Communication</h2>", figure(_in_flight(rows), CAPTION), table(columns, cells)]
    if report.forecast.ranks:
        parts += ["<h2>Forecast for more ranks</h2>", *map(_forecast, report.forecast.ranks)]
    return "".join(parts)


def _forecast(found: RankForecast) -> str:
    """Steps with more ranks, and the measured ones."""
    worst = found.worst_error
    error = "No step was measured." if worst is None else f"Largest error against a measured step: {worst:.1%}."
    assumed = "".join(f"<li>{escape(assumption)}</li>" for assumption in found.assumptions)
    columns = ["scaling", "ranks", "batch", "forecast, ms", "ideal, ms", "efficiency", "exposed, ms", "measured, ms",
               "error"]  # fmt: skip
    rows = [
        (
            curve.way, str(point.ranks), str(point.batch), ms(point.step_s), ms(point.ideal_s),
            share(point.efficiency), ms(point.exposed_s),
            "-" if point.measured_s is None else ms(point.measured_s),
            "-" if point.error is None else f"{point.error:+.1%}",
        )
        for curve in found.curves for point in curve.points
    ]  # fmt: skip
    return (
        f"<p>{escape(variant_name(found.source))}, from run {found.source_run_id}. "
        f"{FORECAST} {error}</p>{table(columns, rows)}<p>Assumptions:</p><ul>{assumed}</ul>"
    )


def _in_flight(rows: list[tuple[str, RankCommunication]]) -> str:
    top, bottom = 34, 34 + ROW * len(rows)
    longest = max(max(getattr(rank, name) for name in EXCHANGE_TIMES) for _, rank in rows)
    x = Scale(0, longest * 1.03e3, LEFT, WIDTH - RIGHT)
    parts = x_axis(x, top, bottom, "milliseconds of a step (mean)", plain)
    for i, (name, rank) in enumerate(rows):
        y, at = top + ROW * i + 4, 0.0
        parts += row_name(LEFT - 8, y + (ROW - 8) / 2, name)
        exposed_s = min(rank.exposed_s, rank.in_flight_s)
        hidden_s = rank.in_flight_s - exposed_s
        for (what, colour), s in zip(IN_FLIGHT.items(), (hidden_s, exposed_s), strict=True):
            parts.append(rect(x(at), y, x(at + 1e3 * s) - x(at), ROW - 8, colour, f"{what}: {milliseconds(s)}"))
            at += 1e3 * s
        calls = x(1e3 * rank.calls_s)
        parts.append(line([(calls, y - 2), (calls, y + ROW - 6)], INK, 2.2))
        if rank.in_flight_s:
            right = max(x(at), calls) + 8
            parts.append(text(right, y + ROW / 2, f"{hidden_s / rank.in_flight_s:.0%}", size=11))
    entries = [*((name, colour, "box") for name, colour in IN_FLIGHT.items()), ("in calls", INK, "")]
    parts += legend(entries, WIDTH - RIGHT + 60, top + 10)
    return drawing(WIDTH, bottom + 48, parts, "Communication of each rank")
