"""The figure of ratios with their intervals over the noise floor, of a report and of a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from taskloom.analysis.report.svg import INK, ROW, Scale, dot, figure, line, plain, rect, row_name, text, x_axis
from taskloom.analysis.wording import Sides


@dataclass(frozen=True)
class Ratio:
    """A ratio of times as the figure shows it. low, high: null if the interval is unknown."""

    name: str
    ratio: float
    low: float | None
    high: float | None
    verdict: str
    colour: str = INK  # if the verdict says which side is faster


def figure_of(rows: Sequence[Ratio], of: Sides, floor: float, left: float, width: float) -> str:
    """Right of 1, the second is faster. left: room for the names."""
    ends = [end or row.ratio for row in rows for end in (row.low, row.high)]
    reach = max(1 + 2 * floor, *ends, *(1 / end for end in ends)) ** 1.06
    top, bottom = 20, 20 + ROW * len(rows)
    x = Scale(1 / reach, reach, left, width - 40)
    label = f"noise floor {floor:.1%}"
    band = rect(x(1 / (1 + floor)), top, x(1 + floor) - x(1 / (1 + floor)), bottom - top, "var(--raised)", label)
    parts = [band, *x_axis(x, top, bottom, of.ratio, plain), line([(x(1), top), (x(1), bottom)], INK, 1.4)]
    parts.append(text(x(1) + 12, bottom + 54, f"{of.above_1} \u2192", size=12))
    for i, row in enumerate(rows):
        y = top + ROW * i + ROW / 2
        colour = row.colour if row.verdict in ("faster", "slower") else "var(--edge)"
        parts += row_name(left - 8, y, row.name)
        if row.low is not None and row.high is not None:
            low, high = x(row.low), x(row.high)
            parts.append(line([(low, y), (high, y)], colour, 1.8))
            parts += [line([(end, y - 4), (end, y + 4)], colour, 1.8) for end in (low, high)]
        parts.append(dot(x(row.ratio), y, colour, 5, f"{row.name}: {row.ratio:.3f}, {row.verdict}"))
    return figure(width, bottom + 66, parts, f"Ratios: {of.ratio}")
