"""The answer of a comparison."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from taskloom.analysis.estimators import Test
from taskloom.analysis.meaning import says
from taskloom.analysis.reasons import Reason, Verdict
from taskloom.analysis.statistics import Interval


@dataclass(frozen=True)
class Side:
    """One side of a comparison: its runs, the settings they share that vary in their experiment, their step time."""

    runs: list[int] = field(metadata=says("the same as run_ids; elsewhere `runs` is a number"))
    variant: dict[str, Any]
    step_s: Interval
    run_ids: list[int] = field(metadata=says("the runs of this side"))


@dataclass(frozen=True)
class InstructionsRatio:
    """The second metric of a comparison, from the processor's counters."""

    ratio: float | None = field(metadata=says("instructions of a step of A / of B; null: unknown"))
    ratio_low: float | None = field(
        default=None,
        metadata=says("exact 95 % interval; null: too few values, or dependent ones"),
    )
    ratio_high: float | None = None
    n: int = field(default=0, metadata=says("number of values behind the ratio"))
    reason: str = field(default="", metadata=says("why there is no ratio, or no interval of dependent values"))


@dataclass(frozen=True)
class Membership:
    """The family of a comparison of two variants of one experiment, which decides its verdict."""

    experiment_id: int
    comparisons: int = field(metadata=says("comparisons in the family"))
    pooled: int = field(metadata=says("ratios over several places in the family"))
    p_adjusted: float | None = field(
        metadata=says("adjusted for the family; null: too few values to decide one of it"),
    )
    alone: Verdict = field(metadata=says("verdict by the comparison's own p-value, as if it were the only one"))
    primary: bool = field(metadata=says("whether it is the experiment's question, which is judged alone"))
    sentence: str = field(default="", metadata=says("with which statements it was judged; empty: with none"))


@dataclass(frozen=True)
class Comparison:
    """Comparison of B with A: verdict, ratio and evidence. A refused comparison has no ratio."""

    a: Side
    b: Side
    verdict: Verdict = field(
        metadata=says("verdict on B relative to A; refused: losses disagree or the sides are not comparable"),
    )
    ratio: float | None = field(
        metadata=says("step time of A / step time of B (Hodges-Lehmann on logarithms): above 1, B is faster"),
    )
    ratio_low: float | None = field(
        metadata=says(
            "95 % interval; null: too few values. Exact for independent pairs or processes of one occasion; over two "
            "to five "
            "occasions Welch's, which assumes normal means; a confidence sequence if `sequential`. It does not hold "
            "where "
            "`diagnosis` finds dependent values"
        ),
    )
    ratio_high: float | None
    paired: bool
    p_value: float | None = field(metadata=says("two-sided, exact with ties, of `test`"))
    superiority: float | None = field(
        metadata=says(
            "effect size, estimated: probability that a process of B is faster than one of A; 0.5 is no difference"
        ),
    )
    noise_floor: float = field(
        metadata=says("declared beforehand, relative: smaller differences are ignored; the margin of equivalence"),
    )
    differs: list[str] = field(metadata=says("differences other than the compared settings"))
    marks: list[str] = field(metadata=says("runs with flagged steps or foreign load"))
    reason: str = field(metadata=says("the reason of the verdict with all figures"))
    ratio_middle: float | None = field(default=None, metadata=says("median of the pairs' ratios, or ratio of medians"))
    n: int = field(default=0, metadata=says("number of `unit`s behind the ratio; of two samples the smaller"))
    unit: str = field(default="", metadata=says("pairs, processes or occasions"))
    test: Test = "signed-rank"
    scope: str = field(default="", metadata=says("population of the ratio, if it comes from several occasions"))
    e_value: float | None = field(
        default=None,
        metadata=says(
            "evidence of the pairs' signs against equality, valid at any look: it reaches 20 for 1 in 20 equal pairs "
            "of "
            "variants at most, if the order within blocks is random"
        ),
    )
    sequential: bool = field(
        default=False,
        metadata=says("signs decide: with `stop`, if cancelled, until all runs have ended"),
    )
    diagnosis: list[str] = field(default_factory=list, metadata=says("findings against independent values"))
    instructions: InstructionsRatio | None = field(
        default=None,
        metadata=says("ratio of instructions; null if refused"),
    )
    brief: list[str] = field(default_factory=list, metadata=says("`marks` in one line; empty if there are none"))
    family: Membership | None = field(
        default=None,
        metadata=says("if both sides are variants of one experiment: its family, by which `verdict` is judged"),
    )
    disturbed_runs: int = field(default=0, metadata=says("runs of both sides with flagged steps or foreign load"))
    why: Reason = field(default_factory=lambda: Reason("wide"), metadata=says("the reason of the verdict as data"))
    sentence: str = field(default="", metadata=says("the verdict in words"))
