"""Types of the report, which analysis/report builds, for the OpenAPI document."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from taskloom.analysis.causes import EfficiencyRow, RooflineRow
from taskloom.analysis.communication import CommunicationRow
from taskloom.analysis.growth import Growth
from taskloom.analysis.memory import MemoryRow
from taskloom.analysis.outlook import Outlook
from taskloom.analysis.scaling import ScalingRows
from taskloom.analysis.sweep import Sweep
from taskloom.analysis.variants import Variant
from taskloom.analysis.workload import Workload
from taskloom.contract.bodies import Model

Span = list[int | float | str]


class ReportExperiment(Model):
    """The experiment as it was submitted, and its progress."""

    experiment_id: int
    name: str
    state: str
    runs: int
    by_state: dict[str, int]
    created_at: str
    request: dict[str, Any]
    stopping: dict[str, Any] | None
    node_time: dict[str, float] | None
    node_time_missing: str | None
    extended: int = Field(0, description="repetitions of every variant that were added after its end")


class ReportDesign(Model):
    """Design of an experiment: axes, repetitions and order."""

    axes: dict[str, list[Any]]
    zip: list[dict[str, list[Any]]]
    repetitions: int
    extended: int = Field(0, description="repetitions of every variant that were added after its end")
    order: str
    seed: int
    primary_metric: str
    stop: dict[str, Any] | None
    stopping: dict[str, Any] | None
    noise_floor: float
    variants: int
    processes: int
    timed_steps: int
    warmup_steps: list[int]
    problem: dict[str, Any]


class ReportEnvironment(Model):
    """The machine and its software, and what differs between runs."""

    known: dict[str, Any]
    differs: list[str]
    runtimes: dict[str, list[str]] = Field(
        default_factory=dict, description="OpenMP runtimes by name and version, and the schedulers that used each"
    )


class ProcessSamples(Model):
    """Every timed step of a process."""

    run_id: int
    step_s: list[float]
    outlier: bool = Field(description="whether the process is an outlier of its variant")
    outlier_steps: list[int] = Field(description="outliers by their index among its timed steps")


class VariantSamples(Model):
    """Every process of a variant."""

    variant: Variant
    processes: list[ProcessSamples]


class ReplayedRow(Model):
    """One step under a scheduler, replayed."""

    scheduler: str
    spans: list[Span] = Field(description="core, op, phase, begin and end in seconds")


class ReplayedStep(Model):
    """One step under both schedulers on a few cores."""

    cores: int
    slices: str
    run_id: int
    rows: list[ReplayedRow]


class CardRule(Model):
    """A rule of measurement, and whether the experiment meets it."""

    number: int
    rule: str
    holds: Literal["yes", "partly", "no"]
    evidence: str


class ReportCard(Model):
    """How an experiment was measured: the rules of measurement, and the machine with its software."""

    card: list[CardRule]
    environment: ReportEnvironment


class ReportCalibration(Model):
    """Calibration of the node."""

    experiment_id: int
    node: str
    processes: int
    detectable: float | None
    false_alarms: int
    comparisons: int


class Report(Model):
    """Report of an experiment as one document."""

    schema_: Literal["taskloom.report/1"] = Field(alias="schema")
    experiment: ReportExperiment
    question: str
    design: ReportDesign
    environment: ReportEnvironment
    scaling: ScalingRows
    sweep: Sweep
    efficiency: list[EfficiencyRow]
    roofline: list[RooflineRow]
    communication: list[CommunicationRow] = Field(
        default_factory=list, description="exchanges of each variant with several ranks"
    )
    forecast: Outlook
    memory: list[MemoryRow]
    memory_growth: list[Growth] = Field(default_factory=list)
    workload: Workload | None = Field(None, description="of an experiment that template workload made")
    samples: list[VariantSamples]
    timeline: ReplayedStep | None
    traced: list[dict[str, Any]] = Field(description="consecutive steps of a traced run of each scheduler")
    marks: list[str]
    disturbed: str | None = Field(description="the marks of runs in one line; null if no run was disturbed")
    unwatched: list[int] = Field(
        default_factory=list, description="runs whose results do not say whether other processes used their cores"
    )
    left_out: list[int] = Field(description="excluded runs: other processes used their cores")
    calibration: ReportCalibration | None
    card: list[CardRule]
    answer: list[str] = Field(description="the verdict on the axis first, then what disturbed the runs")
    conclusion: str = Field(description="the answer as one text")
