"""The one grammar of durations: a number with s, m, h, d or w, such as 90s, 1.5h or 7d."""

from __future__ import annotations

import re

EXAMPLES = "90s, 30m, 12h, 7d, 2w"
FORM = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)([smhdw])")
UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}


def seconds(text: str) -> float | None:
    """The duration in seconds; None if the text is no duration."""
    found = FORM.fullmatch(text)
    return None if found is None else float(found[1]) * UNITS_S[found[2]]
