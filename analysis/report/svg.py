"""Axes and marks as SVG text, without scripts, fonts or external resources; colours are those of tokens.py."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape

INK, SOFT, GRID, PAPER = "var(--ink)", "var(--soft)", "var(--line)", "var(--paper)"
Point = tuple[float, float]
WIDTH_OF_LETTER = 0.6  # of its size; a wide font's
ROW = 24  # height of a figure's row
LONG = 64  # letters of a row's name in one line
POINTED = 0.5  # width from which a mark can be pointed at


class Scale:
    """Scale from values to positions, linear or logarithmic, with ticks at round values."""

    def __init__(self, low: float, high: float, start: float, end: float, base: float | None = None) -> None:
        self.base, self.start, self.end = base, start, end
        if base is not None:
            low = base ** math.floor(math.log(low, base) + 1e-9)
            high = base ** math.ceil(math.log(high, base) - 1e-9)
            high = max(high, low * base)
        elif high <= low:
            high = low + 1
        self.low, self.high = low, high

    def __call__(self, value: float) -> float:
        if self.base is None:
            share = (value - self.low) / (self.high - self.low)
        else:
            share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        return self.start + min(max(share, -0.02), 1.02) * (self.end - self.start)

    def ticks(self, about: int = 6) -> list[float]:
        if self.base is not None:
            first, last = round(math.log(self.low, self.base)), round(math.log(self.high, self.base))
            stride = max(1, -(-(last - first) // about)) if self.base != 2 else 1
            return [self.base**power for power in range(first, last + 1, stride)]
        raw = (self.high - self.low) / about
        unit = 10 ** math.floor(math.log10(raw))
        stride_s = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= raw * 0.999)
        first = math.ceil(self.low / stride_s - 1e-9)
        last = math.floor(self.high / stride_s + 1e-9)
        return [i * stride_s for i in range(first, last + 1)]


class Text(str):
    """A part of an image that is text, with its left and right end. Within another element it is only a string."""

    ends: Point


def text(
    x: float, y: float, words: str, anchor: str = "start", size: int = 12, colour: str = INK, bold: bool = False
) -> str:
    weight = ' font-weight="600"' if bold else ""
    part = Text(
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}"{weight}>'
        f"{escape(words)}</text>"
    )
    length = WIDTH_OF_LETTER * size * len(words)
    left = x - {"start": 0.0, "middle": length / 2, "end": length}[anchor]
    part.ends = left, left + length
    return part


def row_name(x: float, y: float, words: str) -> list[str]:
    """The name of a row that ends at x, around y; a long one in two lines."""
    if len(words) <= LONG:
        return [text(x, y + 4, words, "end", 12)]
    middle = len(words) / 2
    cut = min((at for at, each in enumerate(words) if each == " "), key=lambda at: abs(at - middle))
    return [text(x, y - 1, words[:cut], "end", 11), text(x, y + 11, words[cut + 1 :], "end", 11)]


def line(points: Sequence[Point], colour: str, width: float = 2, dash: str = "") -> str:
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="{width}"{dashes}/>'


def rect(x: float, y: float, width: float, height: float, colour: str, title: str = "") -> str:
    label = f"<title>{escape(title)}</title>" if title else ""
    size = f'width="{max(width, 0.1):.2f}" height="{height:.1f}"'
    return f'<rect x="{x:.2f}" y="{y:.1f}" {size} fill="{colour}">{label}</rect>'


def spans(marks: Iterable[tuple[float, float, float, str, str]], height: float) -> list[str]:
    """Rectangles (top, left, right, colour, title). Those too narrow to point at have no title, and those of one colour
    are one path: a timeline has thousands."""
    parts, narrow = [], dict[str, list[str]]()
    for top, left, right, colour, title in marks:
        width = max(right - left, 0.1)
        if width < POINTED:
            narrow.setdefault(colour, []).append(f"M{left:.2f} {top + height / 2:g}h{width:.2f}")
        else:
            parts.append(rect(left, top, width, height, colour, title))
    paths = (f'<path d="{"".join(of)}" stroke="{colour}" stroke-width="{height:g}"/>' for colour, of in narrow.items())
    return [*parts, *paths]


def dot(x: float, y: float, colour: str, radius: float = 4, title: str = "", hollow: bool = False) -> str:
    label = f"<title>{escape(title)}</title>" if title else ""
    fill = f'fill="{PAPER}" stroke="{colour}" stroke-width="1.8"' if hollow else f'fill="{colour}"'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" {fill}>{label}</circle>'


def bar(x: float, y0: float, y1: float, colour: str) -> str:
    """An upright interval with feet."""
    path = f"M{x:.1f} {y0:.1f}V{y1:.1f}M{x - 4:.1f} {y0:.1f}h8M{x - 4:.1f} {y1:.1f}h8"
    return f'<path d="{path}" stroke="{colour}" fill="none"/>'


def figure(width: float, height: float, parts: Sequence[str], title: str) -> str:
    """The parts as an image, which is as much wider as its texts need."""
    ends = [part.ends for part in parts if isinstance(part, Text)]
    left, right = min([0.0, *(start for start, _ in ends)]), max([width, *(end for _, end in ends)])
    size = f'width="{right - left:.0f}" height="{height:.0f}"'
    return (
        f'<svg viewBox="{left:.0f} 0 {right - left:.0f} {height:.0f}" {size} role="img" '
        f'aria-label="{escape(title)}" font-family="system-ui, sans-serif" xmlns="http://www.w3.org/2000/svg">'
        f'<rect x="{left:.0f}" {size} fill="{PAPER}"/>{"".join(parts)}</svg>'
    )


def x_axis(
    scale: Scale, top: float, bottom: float, label: str, show: Callable[[float], str], about: int = 6
) -> list[str]:
    """Grid lines at about this number of ticks, with labels; the axis's name is below."""
    parts = []
    for tick in scale.ticks(about):
        x = scale(tick)
        parts.append(f'<path d="M{x:.1f} {top:.1f}V{bottom:.1f}" stroke="{GRID}"/>')
        parts.append(text(x, bottom + 17, show(tick), "middle", 11, SOFT))
    parts.append(text((scale.start + scale.end) / 2, bottom + 36, label, "middle"))
    return parts


def y_axis(scale: Scale, left: float, right: float, label: str, show: Callable[[float], str]) -> list[str]:
    parts = []
    for tick in scale.ticks():
        y = scale(tick)
        parts.append(f'<path d="M{left:.1f} {y:.1f}H{right:.1f}" stroke="{GRID}"/>')
        parts.append(text(left - 7, y + 4, show(tick), "end", 11, SOFT))
    middle = (scale.start + scale.end) / 2
    parts.append(f'<g transform="rotate(-90)">{text(-middle, 14, label, "middle")}</g>')
    return parts


def legend(entries: Sequence[tuple[str, str, str]], x: float, y: float) -> list[str]:
    """(name, colour, dash) one below the other; a dash of "box" is a filled area."""
    parts = []
    for i, (name, colour, dash) in enumerate(entries):
        at = y + 19 * i
        if dash == "box":
            parts.append(rect(x, at - 9, 22, 11, colour))
        else:
            parts.append(line([(x, at - 4), (x + 22, at - 4)], colour, 2.2, dash))
        parts.append(text(x + 29, at, name, size=12))
    return parts


def plain(value: float) -> str:
    """A tick's value, short."""
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
