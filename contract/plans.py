"""Plans: what a submission would queue, and what its design can decide."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from taskloom.contract.bodies import Model


class PlannedRun(Model):
    """A run as a submission would queue it."""

    position: int
    block: int
    repetition: int
    variant: dict[str, Any]


class DetectableDifference(Model):
    """Smallest difference that a node can detect, by its latest calibration."""

    node: str
    experiment_id: int = Field(description="the calibration")
    pairs: int = Field(description="number of pairs: the experiment's repetitions; with `stop`, at most so many")
    relative: float | None = Field(
        description="smallest relative difference at one place alone that four of five such experiments detect; null: "
        "too few pairs, or none"
    )


class PlannedFamily(Model):
    """Statements of the planned sweep whose p-values are adjusted together."""

    comparisons: int
    pooled: int = Field(description="ratios over these places only")
    pairs: int = Field(description="number of pairs of each comparison; with `stop`, the maximum; 0: not paired")
    smallest_p: float = Field(
        description="smallest adjusted p-value of a comparison while no other statement is significant; from 0.05 on, "
        "no difference in one comparison alone can be found"
    )
    needed: int = Field(description="fewest pairs that can find a difference in one comparison alone")
    decidable: bool = Field(False, description="whether `pairs` can: they are at least `needed`")


class PlannedQuestion(Model):
    """The question (`primary`) of a planned experiment."""

    a: str
    b: str
    pairs: int = Field(description="number of its pairs; with `stop`, the maximum; 0: not paired")
    smallest_p: float = Field(description="smallest p-value that so many pairs can give")
    needed: int = Field(description="fewest pairs that can find a difference")
    decidable: bool = Field(description="whether `pairs` can: they are at least `needed`")


class PlannedTuning(Model):
    """What a planned tuning runs, and what its answer can say at best."""

    valid: int = Field(description="different valid settings in the space")
    invalid: int = Field(description="combinations that the trainer refuses")
    excluded: int
    equal: int = Field(description="combinations that are equal to another one, since no setting is read that differs")
    combinations: int
    sampler: Literal["tpe", "random", "grid"]
    explore_runs: int = Field(description="of settings")
    blocks: int
    runs: int = Field(description="all runs, with those of the default, at most")
    beats_at_most: float | None = Field(description="the share's lower bound if every draw is slower; null: no draws")
    can_say: list[str]


class DryRun(Model):
    """Plan of a submission."""

    runs: int
    variants: int
    repetitions: int = Field(1, description="of each variant, as requested or by default; with `stop`, the first ones")
    memory_bytes: int = Field(description="arenas of the largest run, on each of its nodes")
    estimated_s: float | None = Field(
        description="estimated duration on one worker, from the delivery of the result before a run to its end; with "
        "`stop`, of the first repetitions"
    )
    estimate_basis: Literal["same-shape", "guess"] = Field(
        "guess",
        description="same-shape: every shape has finished runs, whose times it follows; guess: at least one has not "
        "run, so its time is guessed from runs of other shapes or from constants",
    )
    detectable: list[DetectableDifference] = Field(
        default_factory=list, description="of nodes that were calibrated (`calibrates`)"
    )
    primary: PlannedQuestion | None = Field(None, description="null: no question is declared")
    family: PlannedFamily | None = Field(None, description="null: nothing is compared, besides the question")
    tuning: PlannedTuning | None = Field(None, description="null without `tune`; `order` is then the first block")
    order: list[PlannedRun]
