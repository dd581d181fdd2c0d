"""The rows of a sweep: comparisons at single places, the question, and ratios over several places."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from taskloom.analysis.compared import InstructionsRatio
from taskloom.analysis.estimators import Unit
from taskloom.analysis.meaning import says
from taskloom.analysis.reasons import Reason, Verdict


@dataclass(frozen=True)
class SweepRow:
    """`b` against `a`, the axis's first value, with everything else as in `at`. verdict: by p_adjusted, which is null
    if there are too few processes for any verdict. primary: the experiment's question, judged alone. why: the reason of
    the verdict; reason: in full, with all figures; sentence: the verdict in words."""

    at: dict[str, Any]
    a: Any
    b: Any
    verdict: Verdict
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    p_value: float | None
    p_adjusted: float | None
    superiority: float | None
    paired: bool
    differs: list[str]
    marks: list[str]
    reason: str
    ratio_middle: float | None
    n: int
    unit: str
    e_value: float | None
    diagnosis: list[str]
    instructions: InstructionsRatio | None = None
    primary: bool = False
    why: Reason = field(default_factory=lambda: Reason("wide"))
    sentence: str = ""


@dataclass(frozen=True)
class PrimaryRow(SweepRow):
    """The experiment's question: `b` against `a` as declared, judged alone. axis: the setting in which they differ, of
    which `a` and `b` are values; null: they differ in several, and `a` and `b` are objects of settings."""

    axis: str | None = None


@dataclass(frozen=True)
class Pooled:
    """`b` against `a` over all places with the same number of threads: each pair of runs of a block counts once.

    scope: the population of ratio and interval: places like these, if they are enough for a sample, or only these, and
    the settings in which they differ. between_places: standard deviation of the places' log ratios beyond what their
    pairs explain. diagnosis: findings within places under which the interval does not hold, so that the verdict is
    undecided. p_adjusted: null if there are too few pairs for any verdict. unit: places if the ratio is about places
    like these, else pairs. why: the reason of the verdict; reason: says how many pairs are missing; null if none are;
    sentence: the verdict in words.
    """

    threads: int
    a: Any
    b: Any
    places: int
    pairs: int
    ratio: float
    ratio_low: float | None
    ratio_high: float | None
    p_adjusted: float | None
    verdict: Verdict
    scope: str
    between_places: float | None
    diagnosis: list[str] = field(default_factory=list)
    reason: str | None = None
    unit: Unit = "pairs"
    why: Reason = field(default_factory=lambda: Reason("wide"))
    sentence: str = ""
    op_order: str | None = field(
        default=None,
        metadata=says("order of the loops at all these places, where the experiment has several; else null"),
    )


@dataclass(frozen=True)
class OfOrder:
    """The comparison with the loops in one order."""

    op_order: str = field(metadata=says("order of the loops"))
    ratio: float
    ratio_low: float | None
    ratio_high: float | None
    p_value: float | None


@dataclass(frozen=True)
class AgainstFaster:
    """Tasks (`b`) against the faster one of the orders of the loops of `a`, over all places with these threads.

    The interval is for the smallest of the true ratios. p_adjusted: among the statements of this kind; null if there
    are too few values for any verdict.
    """

    threads: int
    at: dict[str, Any] = field(metadata=says("the other settings of the only place; of several places, none"))
    a: str
    b: str
    op_order: str | None = field(metadata=says("order of the loops with the smallest ratio; null if refused"))
    orders: list[OfOrder] = field(metadata=says("the comparison with each order, smallest ratio first"))
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    p_value: float | None = field(
        metadata=says(
            "largest of the orders' p-values; with a ratio below 1 the smallest of those below 1, times their number"
        )
    )
    p_adjusted: float | None
    verdict: Verdict
    places: int
    n: int = field(metadata=says("of the comparison with the faster order"))
    unit: Unit
    why: Reason
    sentence: str
