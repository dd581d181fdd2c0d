"""Results of analyses in answers."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field, computed_field

from taskloom.contract.bodies import Model

AlertState = Literal["suspected", "confirming", "confirmed", "dismissed"]


class Interval(Model):
    """A median with its nonparametric 95 % interval. Null bounds: too few values, or neighbouring values resemble each
    other or drift, so that no interval would cover. Under a stopping rule it is a confidence sequence."""

    median: float
    low: float | None
    high: float | None
    n: int = Field(description="number of values")
    processes: int = Field(description="number of fresh processes, the unit of analysis")
    over: Literal["processes", "steps"] | None = Field(
        None, description="kind of the values: medians of processes, or the steps of the only process"
    )
    q1: float | None = Field(None, description="first quartile of the values")
    q3: float | None = Field(None, description="third quartile")
    cv: float | None = Field(None, description="standard deviation / mean; null for one value")


class Selection(Model):
    """One side of a comparison."""

    runs: list[int] = Field(description="the same as run_ids; elsewhere `runs` is a number")
    variant: dict[str, Any]
    step_s: Interval

    @computed_field  # type: ignore[prop-decorator]
    @property
    def run_ids(self) -> list[int]:
        """The runs of this side."""
        return self.runs


class Instructions(Model):
    """The second metric of a comparison, from the processor's counters."""

    ratio: float | None = Field(description="instructions of a step of A / of B; null: unknown")
    ratio_low: float | None = Field(None, description="exact 95 % interval; null: too few values, or dependent ones")
    ratio_high: float | None = None
    n: int = Field(0, description="number of values behind the ratio")
    reason: str = Field("", description="why there is no ratio, or no interval of dependent values")


class ComparedFamily(Model):
    """The family of a comparison of two variants of one experiment, which decides its verdict."""

    experiment_id: int
    comparisons: int = Field(description="comparisons in the family")
    pooled: int = Field(description="ratios over several places in the family")
    p_adjusted: float | None = Field(description="adjusted for the family; null: too few values to decide one of it")
    alone: Literal["faster", "slower", "same", "undecided", "refused"] = Field(
        description="verdict by the comparison's own p-value, as if it were the only one"
    )
    primary: bool = Field(description="whether it is the experiment's question, which is judged alone")
    sentence: str = Field("", description="with which statements it was judged; empty: with none")


class VerdictReason(Model):
    """Why a comparison has its verdict, as data."""

    kind: Literal[
        "significant",
        "equivalent",
        "wide",
        "dependent",
        "adjusted",
        "too-few",
        "too-few-in-family",
        "too-few-on-an-occasion",
        "too-few-at-a-place",
        "one-process",
        "not-interleaved",
        "not-planned",
        "refused",
    ] = Field(
        description="significant and equivalent decide; wide: the interval allows several verdicts; dependent: the "
        "interval does not hold, because of `findings`; adjusted: significant alone, but not among `of` statements; "
        "too-few: less than `needed`; one-process, not-interleaved, not-planned: neither interval nor test; refused: "
        "`findings` say why"
    )
    needed: int | None = Field(None, description="fewest `unit`s that can decide; null: more of them decide nothing")
    of: int | None = Field(None, description="number of statements that are decided together; null: one alone")
    unit: Literal["pairs", "processes", "occasions", "places"] | None = Field(
        None, description="what `needed` counts; of processes and occasions on each side"
    )
    findings: list[str] = Field(
        default_factory=list, description="findings under which the interval does not hold; if refused, why"
    )
    sentence: str = Field("", description="the reason in words")


class Comparison(Model):
    """Comparison of B with A: verdict, ratio and evidence."""

    a: Selection
    b: Selection
    verdict: Literal["faster", "slower", "same", "undecided", "refused"] = Field(
        description="verdict on B relative to A; refused: losses disagree or the sides are not comparable"
    )
    ratio: float | None = Field(
        description="step time of A / step time of B (Hodges-Lehmann on logarithms): above 1, B is faster"
    )
    ratio_low: float | None = Field(
        description="95 % interval; null: too few values. Exact for independent pairs or processes of one occasion; "
        "over two to five occasions Welch's, which assumes normal means; a confidence sequence if `sequential`. It "
        "does not hold where `diagnosis` finds dependent values"
    )
    ratio_high: float | None
    paired: bool
    p_value: float | None = Field(None, description="two-sided, exact with ties, of `test`")
    superiority: float | None = Field(
        None,
        description="effect size, estimated: probability that a process of B is faster than one of A; 0.5 is no "
        "difference",
    )
    noise_floor: float | None = Field(
        None, description="declared beforehand, relative: smaller differences are ignored; the margin of equivalence"
    )
    differs: list[str] = Field(description="differences other than the compared settings")
    marks: list[str] = Field(default_factory=list, description="runs with flagged steps or foreign load")
    reason: str = Field(description="the reason of the verdict with all figures")
    ratio_middle: float | None = Field(None, description="median of the pairs' ratios, or ratio of medians")
    n: int = Field(0, description="number of `unit`s behind the ratio; of two samples the smaller")
    unit: str = Field("", description="pairs, processes or occasions")
    test: Literal["signed-rank", "mann-whitney", "signs"] = "signed-rank"
    scope: str = Field("", description="population of the ratio, if it comes from several occasions")
    e_value: float | None = Field(
        None,
        description="evidence of the pairs' signs against equality, valid at any look: it reaches 20 for 1 in 20 equal "
        "pairs of variants at most, if the order within blocks is random",
    )
    sequential: bool = Field(False, description="signs decide: with `stop`, if cancelled, until all runs have ended")
    diagnosis: list[str] = Field(default_factory=list, description="findings against independent values")
    instructions: Instructions | None = Field(None, description="ratio of instructions; null if refused")
    brief: list[str] = Field(default_factory=list, description="`marks` in one line; empty if there are none")
    family: ComparedFamily | None = Field(
        None, description="if both sides are variants of one experiment: its family, by which `verdict` is judged"
    )
    disturbed_runs: int = Field(0, description="runs of both sides with flagged steps or foreign load")
    why: VerdictReason | None = Field(None, description="the reason of the verdict as data")
    sentence: str = Field("", description="the verdict in words")


class Levels(Model):
    """Relative standard deviations of step times by level; null for a level with only one member."""

    step: float | None = Field(description="between the steps of a process")
    process: float | None = Field(description="between the processes of an occasion, beyond that of their steps")
    occasion: float | None = Field(description="between occasions, beyond that of their processes")
    steps_advised: int | None = Field(
        description="number of timed steps per process that narrows the interval most for the time spent"
    )


class ScalingRow(Model):
    """One variant of an experiment, over all its finished runs."""

    variant: dict[str, Any]
    scheduler: str
    threads: int
    batch_slice: int
    token_slice: int
    runs: int
    step_s: Interval
    tokens_per_s: float
    phase_s: dict[str, float] = Field(
        description="median of each phase; if phases overlap, its tasks' time divided by the threads"
    )
    speedup: float | None = Field(description="T(1) of the same scheduler and slices / T(P), Hodges-Lehmann")
    speedup_low: float | None = Field(
        None,
        description="95 % interval, as in a comparison of both variants; null for fewer than six pairs, and if they "
        "are not independent",
    )
    speedup_high: float | None = None
    speedup_best_serial: float | None = Field(
        description="T(1) of the variant with the best one-thread median / T(P), Hodges-Lehmann. That variant was "
        "chosen by the same times, which the interval ignores"
    )
    speedup_best_serial_low: float | None = None
    speedup_best_serial_high: float | None = None
    efficiency: float | None = Field(description="speedup / P")
    speedup_forward: float | None = Field(None, description="speedup of the forward phase alone, over the same base")
    speedup_forward_low: float | None = None
    speedup_forward_high: float | None = None
    efficiency_forward: float | None
    speedup_backward: float | None = None
    speedup_backward_low: float | None = None
    speedup_backward_high: float | None = None
    efficiency_backward: float | None
    phases_overlap: bool = Field(
        False, description="phases are the time of their own tasks divided by the threads, without waiting"
    )
    outliers: list[int] = Field(
        default_factory=list,
        description="runs whose median is over 1.5 interquartile ranges beyond its variant's quartiles; they count",
    )
    final_loss: float | None = Field(description="null without losses")
    agrees: bool = Field(description="losses, and weights or outputs, bit-identical to the rows of the same slices")
    diagnosis: list[str] = Field(default_factory=list, description="findings against independent runs")
    levels: Levels | None = Field(None, description="variance components of step times")


class ScalingRows(Model):
    """Every variant, with speedups against named bases."""

    base: str = Field(description="bases of the speedups, with their absolute times")
    rows: list[ScalingRow]
    warnings: list[str]
    brief: list[str] = Field(default_factory=list, description="`warnings` with all disturbed runs in one")


class ScalingTable(ScalingRows):
    """Every variant of an experiment, with speedups against named bases."""

    experiment_id: int | None


class AlertSummary(Model):
    """A change to slower steps, and the result of fresh runs."""

    id: int
    run_id: int = Field(description="the first slower run")
    state: AlertState
    ratio: float = Field(
        description="median after / before: above 1, slower; of step times, or of step time over canary where the "
        "series has canaries"
    )
    reason: str
    confirming_experiment_id: int | None
    raised_at: datetime
    changed_at: datetime = Field(description="when it entered this state")


class AlertPage(Model):
    """A page of alerts, newest first."""

    items: list[AlertSummary]
    next_cursor: str | None
