"""Elements of the report's page: tables, figures, formatted numbers ("-" for none).

Intervals contain no-break spaces, so that a line breaks before an interval but not within it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

SHORT = 20  # rows of a table that is not divided between pages
NO_BREAK = "\u00a0"
AT_95 = f"[95{NO_BREAK}%]"  # in the heading of a column with intervals
BARS = "Bars: the median of each phase over processes. Vertical lines and numbers: the median step."
OVERLAP = (
    " Under task with sync step or none, phases overlap: the time of a phase is then the time of its own tasks divided "
    "by the number of threads, without waiting. Of other variants it is the phase's span, with waiting."
)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """A table whose first columns, `left` of them, are text."""

    def cells(kind: str, values: Sequence[str]) -> str:
        shown = (f"<{kind}{' class=l' if i < left else ''}>{escape(value)}</{kind}>" for i, value in enumerate(values))
        return f"<tr>{''.join(shown)}</tr>"

    body = [cells("td", row) for row in rows]
    return framed(cells("th", columns), body)


def framed(head: str, body: Sequence[str]) -> str:
    """A table of formatted rows. In print, a short table is not divided; long ones repeat their head."""
    kind = ' class="short"' if len(body) <= SHORT else ""
    return f"<figure tabindex=0{kind}><table><thead>{head}</thead><tbody>{''.join(body)}</tbody></table></figure>"


def figure(svg: str, caption: str) -> str:
    """A plot with its caption, which the keyboard can scroll; empty without a plot."""
    return f"<figure tabindex=0>{svg}<figcaption>{escape(caption)}</figcaption></figure>" if svg else ""


def number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def share(value: float | None) -> str:
    """In percent."""
    return "-" if value is None else f"{value:.1%}"


def ms(value_s: float) -> str:
    """Milliseconds, without their unit."""
    return f"{value_s * 1e3:,.4g}" if value_s < 1 else f"{value_s * 1e3:,.0f}"


def ms_interval(low_s: float | None, high_s: float | None) -> str:
    return "" if low_s is None or high_s is None else f" [{ms(low_s)},{NO_BREAK}{ms(high_s)}]"


def mib(size: int | None) -> str:
    return "-" if size is None else f"{size / 2**20:,.1f}"


def interval(low: float | None, high: float | None, digits: int = 3) -> str:
    return "" if low is None or high is None else f" [{low:,.{digits}f},{NO_BREAK}{high:,.{digits}f}]"
