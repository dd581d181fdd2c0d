"""Experiments: base settings, axes, repetitions and their order."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    FailFast,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from taskloom.contract.analysis import VerdictReason
from taskloom.contract.bodies import MOST, MOST_ERRORS, MOST_ID, Model, Request
from taskloom.contract.commits import Commits, NamedCommit
from taskloom.contract.labels import MOST_NODES
from taskloom.contract.runs import NodeTime, RunSpec
from taskloom.contract.settings import Place, wrong_types, wrong_values
from taskloom.contract.templates import WorkloadTerms, filled
from taskloom.contract.workers import MOST_LABELS, Short


def _finite(value: Any) -> Any:
    """The value. Raises PydanticCustomError for nan and infinity, which would be null in JSON: the default."""
    if isinstance(value, float) and not math.isfinite(value):
        raise PydanticCustomError("finite_number", "Input should be a finite number")
    return value


# FailFast: a request can have 500,000 errors. All that are answered are found by `_every_error`.
Values = Annotated[list[Annotated[Any, AfterValidator(_finite)]], FailFast()]
FEWEST_CALIBRATING_RUNS = 6  # three pairs
MOST_BUILDS = 8
MOST_SHOWN = 20  # values of an axis in a list of experiments
Build = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Tag = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:/@+-]{1,60}$")]
Tags = Annotated[list[Tag], Field(max_length=20)]
Notes = Annotated[str, Field(max_length=10_000, pattern=r"^[^\x00]*$")]


def _further(given: Mapping[str, Any]) -> Iterator[InitErrorDetails]:
    """Errors beside those that pydantic finds: values of a wrong type, and values of settings that no run accepts."""
    for place, kind, value in wrong_types(given):
        yield InitErrorDetails(type=kind, loc=place, input=value)
    for place, wrong in wrong_values(given):
        yield _detail(place, "setting", wrong.accepted, wrong.value)


def _detail(place: Place, kind: str, message: str, value: Any) -> InitErrorDetails:
    return InitErrorDetails(type=PydanticCustomError(kind, message), loc=place, input=value)


class Requirements(Request):
    """Requirements that a node must meet to execute any run of the experiment."""

    labels: dict[Short, Short] = Field(default_factory=dict, max_length=MOST_LABELS)
    cores: int | None = Field(None, ge=1, le=4096)
    memory_bytes: int | None = Field(None, ge=1, le=MOST)
    nodes: int | None = Field(
        None, ge=1, le=MOST_NODES,
        description="nodes of one worker's job over which the ranks of each run are divided; cores and memory are "
        "those on each; null or 1: all ranks are on the worker's node",
    )  # fmt: skip


class Limits(Request):
    """Limits after which an attempt is stopped."""

    timeout_s: float = Field(
        3600, gt=0, le=30 * 86400, description="an attempt is killed and fails this many seconds after its claim"
    )


class Stop(Request):
    """Repetitions are added, a block at a time, until the answer is known or the budget ends."""

    rel_ci: float = Field(
        gt=0, lt=1, description="target: half the width of the metric's 95 % confidence sequence, relative"
    )
    max_repetitions: int = Field(50, ge=1, le=1000, description="maximum number of repetitions of every variant")
    budget_s: float | None = Field(
        None, gt=0, le=365 * 86400, description="limit of the workers' time of all attempts together, in seconds"
    )
    metric: Literal["ratio", "median_step_s"] | None = Field(
        None,
        description="the primary metric: every ratio along the first axis, or every variant's median step; null: the "
        "ratio if there is an axis",
    )


class Tune(Request):
    """The best setting of `space` is searched, confirmed against the default in new pairs, and compared with settings
    drawn at random after it was chosen."""

    runs: int = Field(
        96, ge=1, le=2000, description="runs of settings in explore; the default runs once more in each block"
    )
    budget_s: float | None = Field(
        None, gt=0, le=365 * 86400,
        description="limit of the workers' time of all attempts together, in seconds; explore is shortened first",
    )  # fmt: skip
    batch: int = Field(6, ge=1, le=100, description="settings in a block of explore, beside the default")
    confirm: int = Field(
        8, ge=0, le=200, description="pairs of the winner and the default; fewer than 6 confirm nothing"
    )
    fresh: int = Field(20, ge=0, le=1000, description="settings drawn at random from the valid space after the choice")
    seed: int = Field(0, ge=0, le=2**63 - 1, description="seed of the search, of the order in blocks and of the draws")
    sampler: Literal["tpe", "random", "grid"] = Field(
        "tpe",
        description="tpe: Optuna's tree-structured Parzen estimator; grid: every setting in turn, also if `runs` "
        "are at least three times the valid settings",
    )


class Primary(Request):
    """The question of an experiment: one comparison, judged alone. The settings of each side name exactly one variant,
    for example {"scheduler": "task", "threads": 2}."""

    a: dict[str, Any] = Field(min_length=1, description="settings of the variant that `b` is compared with")
    b: dict[str, Any] = Field(min_length=1, description="settings of the variant that the verdict is about")


class ExperimentRequest(NamedCommit):
    """An experiment: every combination of the axes' values over the base, each `repetitions` times."""

    name: str = Field("", max_length=200)
    template: Literal["workload"] | None = Field(
        None, description="a named request: it fills name, axes, zip and exclude where they are left out"
    )
    workload: WorkloadTerms | None = Field(None, description="with template workload: its networks and what they run")
    tags: Tags = Field(default_factory=list, description="tags for searching; they can be changed later")
    notes: Notes = Field("", description="free text for people; it can be changed later")
    base: RunSpec = Field(default_factory=RunSpec)
    axes: dict[str, Values] = Field(default_factory=dict, description="setting -> values; all combinations are run")
    zip: Annotated[list[dict[str, Values]], FailFast()] = Field(
        default_factory=list, description="groups of settings whose values vary together, all lists equally long"
    )
    exclude: Annotated[list[dict[str, Any]], FailFast()] = Field(
        default_factory=list, description="combinations to remove: those that match every value of an entry"
    )
    primary: Primary | None = Field(
        None,
        description="the question: one comparison that is judged alone; all others are a family, whose p-values are "
        "adjusted together",
    )
    repetitions: int | None = Field(
        None,
        ge=1,
        le=1000,
        description="runs of each variant, each in a fresh process; null: as many as can decide the question and any "
        "one of the other comparisons; 1 if nothing is compared or with `stop`; 20 with `calibrates`",
    )
    stop: Stop | None = Field(
        None, description="add repetitions after `repetitions` (which always run) until the answer is known"
    )
    space: dict[str, Values] = Field(
        default_factory=dict,
        description="with `tune`: setting -> values; all combinations without `exclude` and those that the trainer "
        "refuses are the space, at most 200,000",
    )
    tune: Tune | None = Field(
        None, description="search the best setting of `space`, instead of axes, repetitions, stop and primary"
    )
    order: Literal["interleaved", "sequential"] = Field(
        "interleaved",
        description="interleaved: each repetition is a block in which every variant runs once, in random order; "
        "every second block has the reverse order of the one before",
    )
    seed: int = Field(0, ge=0, le=2**63 - 1, description="seed of the blocks' order")
    priority: int = Field(0, ge=-100, le=100, description="higher runs first")
    trace: bool | Literal["first"] = Field(
        False,
        description="once a run has succeeded, trace it in another attempt, whose times are not used; first: only "
        "the first repetition of each variant",
    )
    requires: Requirements = Field(default_factory=Requirements)
    limits: Limits = Field(default_factory=Limits)
    calibrates: bool = Field(
        False, description="A/A: all runs are equal and show the smallest difference that the node can detect"
    )
    builds: list[Build] = Field(
        default_factory=list,
        max_length=MOST_BUILDS,
        description="trainer builds that run every variant, by the hash of their sources (`environment.core_hash`); "
        "workers must have stored them. They are interleaved. Empty: each worker's own build",
    )
    confirms: int | None = Field(
        None, ge=1, le=MOST_ID, description="the run after a suspected change that these runs confirm or dismiss"
    )

    @model_validator(mode="wrap")
    @classmethod
    def _every_error(cls, given: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        """Fill in what the template makes. If a field is refused, refuse with it every value of a wrong type, and every
        value of a setting that no run accepts, up to MOST_ERRORS."""
        if isinstance(given, dict):
            with contextlib.suppress(ValidationError):  # the template's settings are refused as a field below
                given = filled(given)
        try:
            return validate(given)
        except ValidationError as error:
            found = [_detail(item["loc"], item["type"], item["msg"], item["input"]) for item in error.errors()]
        known = {item["loc"][:length] for item in found for length in range(len(item["loc"]) + 1)}
        further = _further(given) if isinstance(given, dict) else iter(())
        while len(found) < MOST_ERRORS and (item := next(further, None)) is not None:
            if item["loc"] not in known:
                known.add(item["loc"])
                found.append(item)
        raise ValidationError.from_exception_data(cls.__name__, found[:MOST_ERRORS])

    model_config = Request.model_config | {
        "json_schema_extra": {
            "examples": [
                {
                    "name": "fork-join or tasks?",
                    "base": {"model": "tiny", "batch": 4, "seq": 64, "steps": 20, "data": "stdlib"},
                    "axes": {"scheduler": ["fork-join", "task"], "threads": [1, 2], "batch_slice": [1]},
                    "primary": {
                        "a": {"scheduler": "fork-join", "threads": 2},
                        "b": {"scheduler": "task", "threads": 2},
                    },
                    "repetitions": 7,
                }
            ]
        }
    }


class ExperimentChange(Request):
    """Changes of an experiment; fields that are missing or null stay as they are."""

    name: str | None = Field(None, max_length=200, pattern=r"^[^\x00]*$")
    tags: Tags | None = Field(None, description="the complete list of tags")
    notes: Notes | None = None


class Verdict(Model):
    """Verdict of an experiment, computed when it ended."""

    sentence: str
    verdict: Literal["faster", "slower", "same", "undecided", "refused", "none"] = Field(
        description="verdict on `b` relative to `a`: on the question (`primary`), else on a comparison along the first "
        "axis; none: nothing to compare"
    )
    a: str | None = None
    b: str | None = None
    ratio: float | None = Field(None, description="step time of `a` / step time of `b`: above 1, `b` is faster")
    low: float | None = Field(None, description="95 % interval of the ratio; null: too few pairs")
    high: float | None = None
    primary: bool = Field(False, description="whether it is the verdict on the declared question, judged alone")
    runs: int = Field(0, description="successful runs behind it")
    disturbed_runs: int = Field(0, description="those of `runs` with flagged steps or foreign load")
    why: VerdictReason | None = Field(None, description="the reason of the verdict; null: nothing to compare")
    needed_extended: int | None = Field(
        None,
        description="fewest repetitions that can decide it once extended, as intervals then hold at any time; null: it "
        "is not undecided",
    )


EtaBasis = Literal["finished-runs", "guess"]


class ExperimentSummary(Commits):
    """An experiment in a list."""

    id: int
    name: str
    tags: list[str] = Field(default_factory=list)
    state: Literal["active", "finished", "cancelled"]
    runs: int
    by_state: dict[str, int] = Field(description="number of its runs in each state")
    created_at: datetime
    started_at: datetime | None = Field(None, description="start of its first run")
    finished_at: datetime | None = Field(None, description="end of its last run")
    submitter: str = Field(
        "local",
        description="key:ID, user:NAME (of a trusted proxy), local (a server without keys), alerts or calibrations",
    )
    submitter_name: str | None = Field(None, description="the name of that key")
    group: str | None = Field(None, description="the submitter's group, with which it shares its limits; null: none")
    purpose: Literal["measure", "calibrate", "confirm"] = "measure"
    model: str | None = Field(None, description="name of the model of all its runs; null: an axis varies it")
    axes: dict[str, list[Any]] = Field(
        default_factory=dict,
        description=f"settings that its runs vary, and `build`, each with its first {MOST_SHOWN} values",
    )
    nodes: list[str] = Field(default_factory=list, description="nodes to which its blocks of runs are bound")
    flagged_runs: int = Field(0, description="runs with flagged steps, which other processes disturbed")
    eta_s: float | None = Field(
        None,
        description="estimated seconds until its end, with the present workers; null if ended or unknown, or if no "
        "present worker can execute its next run",
    )
    eta_basis: EtaBasis | None = Field(
        None,
        description="finished-runs: of this experiment or of the same shapes; guess: from runs of other shapes, for "
        "this experiment or one before it",
    )
    verdict: Verdict | None = Field(None, description="null until it has ended and its verdict is computed")


class StoppingState(Model):
    """Progress of an experiment with `stop` after its complete blocks."""

    repetitions: int
    rel_ci: float | None = Field(
        description="half the relative width of the widest interval; null while any has too few blocks"
    )
    spent_s: float = Field(description="workers' time of all attempts so far, in seconds")
    reason: Literal["narrow-enough", "max-repetitions", "budget", "no-results"] | None = Field(
        description="why no block was added; null while it continues"
    )


Phase = Literal["explore", "confirm", "fresh", "ended"]


class TuningState(Model):
    """Progress of an experiment with `tune`; GET /experiments/{id}/tuning has its answer."""

    phase: Phase
    runs: int = Field(description="runs so far; more follow until it has ended")
    spent_s: float = Field(description="workers' time of all attempts so far, in seconds")
    reason: Literal["complete", "budget", "no-results"] | None = Field(
        description="why no block was added; null while it continues"
    )


class ExperimentDetail(NodeTime, ExperimentSummary):
    """An experiment with its request."""

    request: dict[str, Any]
    notes: str = ""
    stopping: StoppingState | None = Field(None, description="null without `stop`")
    tuning: TuningState | None = Field(None, description="null without `tune`")
    extended: int = Field(0, description="repetitions of every variant that were added after its end")


class ExperimentPage(Model):
    """A page of experiments, newest first."""

    items: list[ExperimentSummary]
    next_cursor: str | None = Field(
        description="`cursor` of the next page; null on the last. A page reads 5,000 rows at most"
    )
    total: int | None = Field(None, description="experiments on all pages; null without `total`")
