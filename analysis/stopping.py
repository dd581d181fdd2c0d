"""Stop when the answer is known: whether another block of repetitions is worth its time.

Sequential stopping on the width of an interval, not on a p-value: looking again and again at a p-value would find a
difference in the end whether there is one or not. Source: Hoefler & Belli 2015, rule 6 and section 4.2.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gpt2core.spec.result import median, median_interval

Reason = Literal["narrow-enough", "max-repetitions", "budget", "no-results"]


@dataclass(frozen=True)
class Stopping:
    """Where an experiment with `stop` stands. rel_ci: half the width of the widest variant's 95 % interval of its
    median step over that median; null while a variant has too few processes for one. reason: null while it goes on."""

    repetitions: int
    rel_ci: float | None
    spent_s: float
    reason: Reason | None


def half_width(values: Sequence[float]) -> float | None:
    """Half the width of the median's nonparametric 95 % interval over the median; None for fewer than 6 values."""
    bounds = median_interval(values)
    return None if bounds is None else (bounds[1] - bounds[0]) / (2 * median(values))


def judge(
    variants: Sequence[Sequence[float]],
    repetitions: int,
    spent_s: float,
    rel_ci: float,
    max_repetitions: int,
    budget_s: float | None,
) -> Stopping:
    """After a complete block: go on, or why not. variants: each one's values of the primary metric, a process each.

    The budget ends when another block, as long as the mean of those so far, would exceed it.
    """
    widths = [half_width(values) for values in variants]
    known = [width for width in widths if width is not None]
    widest = max(known) if known and len(known) == len(widths) else None
    reason: Reason | None = None
    if not all(variants):
        reason = "no-results"
    elif widest is not None and widest <= rel_ci:
        reason = "narrow-enough"
    elif repetitions >= max_repetitions:
        reason = "max-repetitions"
    elif budget_s is not None and spent_s * (repetitions + 1) / repetitions > budget_s:
        reason = "budget"
    return Stopping(repetitions, widest, spent_s, reason)
