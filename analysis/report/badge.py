"""A badge: a label and a message as a small SVG, for a README or a page of builds."""

from __future__ import annotations

from html import escape

from taskloom.analysis.report.ci import printable
from taskloom.analysis.report.tokens import COLOURS

TONES = {"faster": "good", "same": "good", "slower": "warn", "refused": "bad"}  # others are calm
LETTER_PX = 6.6  # of the font; textLength makes it so with any font
PAD_PX = 6
HEIGHT_PX = 20


def message(verdict: str, ratio: float | None) -> str:
    """The words of a verdict, with the ratio of times if it says which side is faster."""
    return f"{verdict} {ratio:.3f}" if ratio is not None and verdict in ("faster", "slower") else verdict


def badge(label: str, message: str, verdict: str = "") -> str:
    """An SVG image. The colour is that of the verdict; the message has its word."""
    label = printable(label)
    parts, left = [], 0.0
    for text, colour in ((label, COLOURS["calm"][0]), (message, COLOURS[TONES.get(verdict, "calm")][0])):
        inner = len(text) * LETTER_PX
        width = inner + 2 * PAD_PX
        parts.append(
            f'<rect x="{left:.1f}" width="{width:.1f}" height="{HEIGHT_PX}" fill="{colour}"/>'
            f'<text x="{left + PAD_PX:.1f}" y="14" textLength="{inner:.1f}">{escape(text)}</text>'
        )
        left += width
    said = escape(f"{label}: {message}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left:.1f}" height="{HEIGHT_PX}" role="img" '
        f'aria-label="{said}"><title>{said}</title>'
        f'<g fill="#fff" font-family="DejaVu Sans,Verdana,sans-serif" font-size="11">{"".join(parts)}</g></svg>'
    )
