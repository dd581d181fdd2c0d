"""What a report says, as data: the server answers with it, and page, plots and the forms of CI systems are made from it
alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from taskloom.analysis.causes import EfficiencyRow, RooflineRow
from taskloom.analysis.communication import CommunicationRow
from taskloom.analysis.growth import Growth
from taskloom.analysis.meaning import says
from taskloom.analysis.memory import MemoryRow
from taskloom.analysis.outlook import Outlook
from taskloom.analysis.scaling import ScalingRows
from taskloom.analysis.sweep import Sweep
from taskloom.analysis.variants import Variant
from taskloom.analysis.workload import Workload

Holds = Literal["yes", "partly", "no"]
Task = tuple[int, str, str, float, float]  # thread or core, op, phase, begin and end in seconds
Span = tuple[int, str, float, float]  # thread, what it did, begin and end in seconds
Step = tuple[int, float, float]  # its number, begin and end in seconds


@dataclass(frozen=True)
class ReportExperiment:
    """The experiment as it was submitted, and its progress."""

    experiment_id: int
    name: str
    state: str
    runs: int
    by_state: dict[str, int]
    created_at: str
    request: dict[str, Any]
    stopping: dict[str, Any] | None = None
    node_time: dict[str, float] | None = None
    node_time_missing: str | None = None
    extended: int = field(default=0, metadata=says("repetitions of every variant that were added after its end"))


@dataclass(frozen=True, kw_only=True)
class ReportDesign:
    """Design of an experiment: axes, repetitions and order."""

    axes: dict[str, list[Any]]
    zip: list[dict[str, list[Any]]]
    repetitions: int
    extended: int = field(default=0, metadata=says("repetitions of every variant that were added after its end"))
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


@dataclass(frozen=True)
class ReportEnvironment:
    """The machine and its software, and what differs between runs."""

    known: dict[str, Any]
    differs: list[str]
    runtimes: dict[str, list[str]] = field(
        default_factory=dict,
        metadata=says("OpenMP runtimes by name and version, and the schedulers that used each"),
    )


@dataclass(frozen=True)
class ReportCalibration:
    """Calibration of the node."""

    experiment_id: int
    node: str
    processes: int
    detectable: float | None
    false_alarms: int
    comparisons: int


@dataclass(frozen=True)
class ProcessSamples:
    """Every timed step of a process."""

    run_id: int
    step_s: list[float]
    outlier: bool = field(metadata=says("whether the process is an outlier of its variant"))
    outlier_steps: list[int] = field(metadata=says("outliers by their index among its timed steps"))


@dataclass(frozen=True)
class VariantSamples:
    """Every process of a variant."""

    variant: Variant
    processes: list[ProcessSamples]


@dataclass(frozen=True)
class ReplayedRow:
    """One step under a scheduler, replayed."""

    scheduler: str
    spans: list[Task] = field(metadata=says("core, op, phase, begin and end in seconds"))


@dataclass(frozen=True)
class ReplayedStep:
    """One step under both schedulers on a few cores."""

    cores: int
    slices: str
    run_id: int
    rows: list[ReplayedRow]


@dataclass(frozen=True, kw_only=True)
class TracedSteps:
    """Consecutive steps of a traced run, those nearest to its median. Times count from the begin of the first."""

    variant: Variant
    run_id: int
    threads: int
    steps: list[Step] = field(metadata=says("number, begin and end in seconds"))
    flagged: list[list[str]] = field(default_factory=list)
    spans: list[Task] = field(metadata=says("tasks: thread, op, phase, begin and end in seconds"))
    preempted: list[Span] = field(
        default_factory=list,
        metadata=says("time in which a thread did not run: thread, op, begin and end in seconds"),
    )
    waits: list[Span] = field(metadata=says("thread, kind of waiting, begin and end in seconds"))
    busy: list[float] = field(metadata=says("mean number of threads in tasks, over equal parts of the time"))
    traced_step_s: float = field(metadata=says("median of the traced steps, seconds"))
    timed_step_s: float = field(metadata=says("median of the run's timed steps, seconds"))
    complete: bool = field(metadata=says("whether the trace has every task"))


@dataclass(frozen=True)
class CardRule:
    """A rule of measurement, and whether the experiment meets it."""

    number: int
    rule: str
    holds: Holds
    evidence: str


@dataclass(frozen=True)
class ReportCard:
    """How an experiment was measured: the rules of measurement, and the machine with its software."""

    card: list[CardRule]
    environment: ReportEnvironment


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What the report card judges: the parts of a report that need neither profiles nor traces."""

    schema: Literal["taskloom.report/1"]
    experiment: ReportExperiment
    question: str
    design: ReportDesign
    environment: ReportEnvironment
    scaling: ScalingRows
    sweep: Sweep
    efficiency: list[EfficiencyRow]
    roofline: list[RooflineRow]
    marks: list[str]
    disturbed: str | None = field(metadata=says("the marks of runs in one line; null if no run was disturbed"))
    unwatched: list[int] = field(
        default_factory=list,
        metadata=says("runs whose results do not say whether other processes used their cores"),
    )
    left_out: list[int] = field(metadata=says("excluded runs: other processes used their cores"))
    calibration: ReportCalibration | None


@dataclass(frozen=True, kw_only=True)
class Report(Measured):
    """Report of an experiment as one document."""

    communication: list[CommunicationRow] = field(
        default_factory=list, metadata=says("exchanges of each variant with several ranks")
    )
    forecast: Outlook
    memory: list[MemoryRow]
    memory_growth: list[Growth] = field(default_factory=list)
    workload: Workload | None = field(default=None, metadata=says("of an experiment that template workload made"))
    samples: list[VariantSamples]
    timeline: ReplayedStep | None
    traced: list[TracedSteps] = field(metadata=says("consecutive steps of a traced run of each scheduler"))
    card: list[CardRule]
    answer: list[str] = field(metadata=says("the verdict on the axis first, then what disturbed the runs"))
    conclusion: str = field(metadata=says("the answer as one text"))
