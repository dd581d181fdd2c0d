"""Plot of efficiency over time per task as SVG text, with logarithmic axes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from gpt2core.spec.wording import counted

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 860, 480, 70, 230, 40, 50
COLOURS = ("#1b6ca8", "#d1495b", "#2e933c", "#e08e0b", "#7b4fa3", "#00838f", "#8d6e63", "#c2185b", "#5f6f7a", "#827717")
DASHES = ("", "6 4", "2 3", "9 3 2 3")  # of the schedulers, in their order
SHARES = (0.05, 0.1, 0.2, 0.5, 1.0)
HALF = 0.5


class Axes:
    """Scale from time per task and efficiency to positions."""

    def __init__(self, times_s: Sequence[float]) -> None:
        self.low, self.high = math.floor(math.log10(min(times_s))), math.ceil(math.log10(max(times_s)))
        self.high = max(self.high, self.low + 1)

    def x(self, time_s: float) -> float:
        share = (math.log10(time_s) - self.low) / (self.high - self.low)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, efficiency: float) -> float:
        low, high = math.log10(SHARES[0]), math.log10(1.2)
        share = (math.log10(min(max(efficiency, SHARES[0]), 1.2)) - low) / (high - low)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def svg(found: Mapping[str, Any]) -> str:
    """The figure of a result of gpt2core.granularity: a colour for each pattern, dashes for each scheduler."""
    rows = found["metg"]
    axes = Axes([point["task_s"] for row in rows for point in row["grains"]])
    patterns = list(dict.fromkeys(row["pattern"] for row in rows))
    schedulers = list(dict.fromkeys(row["scheduler"] for row in rows))
    config = found["config"]
    title = f"METG: {config['kernel']} kernel, width {config['width']}, {counted(config['threads'], 'thread')}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(LEFT, TOP - 16, title, size=14),
        *_grid(axes),
    ]
    for number, row in enumerate(rows):
        colour = COLOURS[patterns.index(row["pattern"]) % len(COLOURS)]
        dashes = DASHES[schedulers.index(row["scheduler"]) % len(DASHES)]
        style = f'fill="none" stroke="{colour}" stroke-width="1.8" stroke-dasharray="{dashes}"'
        places = " ".join(f"{axes.x(p['task_s']):.1f},{axes.y(p['efficiency']):.1f}" for p in row["grains"])
        parts.append(f'<polyline {style} points="{places}"/>')
        if row["metg_s"] is not None:
            parts.append(f'<circle cx="{axes.x(row["metg_s"]):.1f}" cy="{axes.y(HALF):.1f}" r="4" fill="{colour}"/>')
        y = TOP + 8 + 20 * number
        parts.append(f'<path {style} d="M{WIDTH - RIGHT + 14} {y}h30"/>')
        label = f"{row['pattern']} {row['scheduler']}"
        parts.append(_text(WIDTH - RIGHT + 50, y + 4, label + _metg(row["metg_s"])))
    return "\n".join([*parts, "</svg>", ""])


def _grid(axes: Axes) -> list[str]:
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    parts = []
    for power in range(axes.low, axes.high + 1):
        x = axes.x(10.0**power)
        parts.append(f'<path stroke="#ccc" d="M{x:.1f} {TOP}V{bottom}"/>')
        parts.append(_text(x, bottom + 18, _time(power), anchor="middle"))
    for share in SHARES:
        y = axes.y(share)
        colour = "#555" if share == HALF else "#ccc"
        parts.append(f'<path stroke="{colour}" d="M{LEFT} {y:.1f}H{right}"/>')
        parts.append(_text(LEFT - 8, y + 4, f"{100 * share:.0f} %", anchor="end"))
    parts.append(_text((LEFT + right) / 2, bottom + 38, "time per task (elapsed x threads / tasks)", anchor="middle"))
    parts.append(
        f'<g transform="rotate(-90)">{_text(-(TOP + bottom) / 2, 18, "efficiency, share of peak", anchor="middle")}</g>'
    )
    return parts


def _time(power: int) -> str:
    unit = min(0, power // 3 * 3)
    return f"{10 ** (power - unit)} {({0: 's', -3: 'ms', -6: 'us', -9: 'ns'}).get(unit, f'e{unit} s')}"


def _metg(metg_s: float | None) -> str:
    return "" if metg_s is None else f"  {metg_s * 1e6:.3g} us"


def _text(x: float, y: float, words: str, anchor: str = "start", size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(words)}</text>'
