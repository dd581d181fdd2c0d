"""Required parts of a result: the blocks that analyses read, with bounds that keep figures finite.

A trainer may add fields to any part; they are stored unchanged.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from gpt2core.spec.goals import METRICS
from gpt2core.spec.phases import PHASES
from gpt2core.spec.result import SCHEMA, SKETCH_SIZE

LARGEST, SMALLEST = 1e100, 1e-60  # except 0: products and ratios of a few such numbers stay finite
Number = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
Seconds = Annotated[float, Field(ge=0, le=1e9)]
StepSeconds = Annotated[float, Field(ge=1e-9, le=1e9)]
Rate = Annotated[float, Field(ge=0, le=LARGEST)]
Count = Annotated[int, Field(ge=0, le=(1 << 63) - 1)]
MOST_PARTS = 50  # of the node's time
Interval = Annotated[list[StepSeconds], Field(min_length=2, max_length=2)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Phase = Literal[PHASES]  # type: ignore[valid-type]


class Block(BaseModel):
    """Base of a result's parts: values must have their JSON types."""

    model_config = ConfigDict(strict=True, frozen=True)


class ResultOp(Block):
    """One op over the timed steps."""

    op: Name
    phase: Phase
    calls: Count
    time_s: Seconds
    flop: Count
    bytes: Count
    blas: Annotated[str, Field(max_length=200)] | None = Field(
        None, description="library of its matrix product, with the columns of a piece if there are several"
    )


class ResultThread(Block):
    """One thread of the team. Results of some runtimes do not split its time."""

    useful_s: Seconds
    barrier_s: Seconds | None = 0.0
    starvation_s: Seconds | None = 0.0
    idle_s: Seconds = 0.0


class ResultCounters(Block):
    """Hardware counters of each thread; null where unavailable."""

    threads: list[dict[str, Number | None]] | None = None


class ForeignLoad(Block):
    """CPU time that other processes used on the run's cores."""

    cores: list[Count]
    foreign_s: Seconds


class ResultValidity(Block):
    """Validity evidence of the samples."""

    foreign: ForeignLoad | None = None


class NodePeak(Block):
    """Measured peaks of the node for one number of threads."""

    gflop_per_s: Rate | None = None
    bf16_gflop_per_s: Rate | None = None
    registers_gflop_per_s: Rate | None = None
    bf16_registers_gflop_per_s: Rate | None = None
    triad_gb_per_s: Rate | None = None


class NodePeaks(Block):
    """Measured peaks of the node, by number of threads."""

    threads: dict[Annotated[str, Field(pattern="^[1-9][0-9]{0,5}$")], NodePeak | None] | None = None


class ResultEnvironment(Block):
    """The machine and its software."""

    node: str | None = None
    cores: list[Count] | None = None
    peaks: NodePeaks | None = None


class ResultCheckpoint(Block):
    """The file of the initial weights."""

    format: Name | None = None
    dtype: Name | None = None


class ResultCanary(Block):
    """Fixed work that was timed beside the steps; times with the same hash are comparable."""

    sha256: Name | None = None
    times_s: list[StepSeconds] = Field(default_factory=list)


class ResultEnergy(Block):
    """Joules of the timed steps, of whole packages and of their memory; null where unavailable."""

    package_j: Annotated[float, Field(ge=0, le=LARGEST)] | None = None
    memory_j: Annotated[float, Field(ge=0, le=LARGEST)] | None = None


class ResultLatency(Block):
    """Quantiles of the time of a timed step, in mode infer. An interval is null if there are too few steps for it."""

    steps: Count
    p50_s: StepSeconds
    p90_s: StepSeconds
    p99_s: StepSeconds
    max_s: StepSeconds
    p50_ci95_s: Interval | None = None
    p90_ci95_s: Interval | None = None
    p99_ci95_s: Interval | None = None
    steps_needed: dict[str, Count] | None = None


class ResultGoal(Block):
    """The goal `stop_at`: steps and seconds, warm-up included, and joules until it was reached."""

    metric: Annotated[Literal[METRICS], Field(description="of each step")]  # type: ignore[valid-type]
    value: Number = Field(description="the most for a loss, the least for an accuracy")
    reached: bool = Field(description="whether a step reached it; otherwise the rest is null")
    steps: Annotated[int, Field(ge=1, le=(1 << 63) - 1)] | None = Field(description="up to the first that reached it")
    time_s: Seconds | None = Field(description="of these steps")
    energy_j: Annotated[float, Field(ge=0, le=LARGEST)] | None = Field(
        None, description="of packages and memory during these steps"
    )
    energy_missing: str | None = Field(None, description="why energy_j is null")


class ResultEvaluation(Block):
    """Loss and accuracy of all images of a split after some steps."""

    step: Annotated[int, Field(ge=1, le=(1 << 63) - 1)]
    loss: Number
    accuracy: float = Field(ge=0, le=1, description="share of the images whose class has the largest logit")


class ResultExchange(Block):
    """One kind of exchange between a rank and the others, over the timed steps."""

    exchange: Name = Field(description="loss, gradients, weights, norm, or with parallel tensor or hybrid an op")
    calls_s: Seconds = Field(description="in calls of the MPI library, summed over threads")
    in_flight_s: Seconds = Field(description="while any was between its start and its completion")
    exposed_s: Seconds = Field(description="mean over the threads: waiting for it with no other task ready")
    bytes_sent: Count = Field(description="sizes of the messages to other ranks")
    bytes_received: Count = Field(description="sizes of the messages from other ranks")


class ResultRank(Block):
    """One rank's exchanges with the others. The lists are of each step, of all kinds together."""

    rank: Count = Field(description="its number, from 0 on")
    exchanges: list[ResultExchange] = Field(description="of each kind, over the timed steps")
    calls_s: list[Seconds] = Field(description="in calls of the MPI library, of each step")
    in_flight_s: list[Seconds] = Field(description="while any exchange was in flight, of each step")
    exposed_s: list[Seconds] = Field(description="waiting with no other task ready, of each step")
    useful_s: list[Seconds] = Field([], description="of each of its threads, in tasks over the timed steps")
    latency_s: Seconds | None = Field(
        None, description="of a message of one byte between it and rank 0, before the steps; null: rank 0, or unknown"
    )
    bytes_per_s: Annotated[float, Field(ge=SMALLEST, le=LARGEST)] | None = Field(
        None, description="of a message of 1 MiB between it and rank 0, bytes a second; null: rank 0, or unknown"
    )


class ResultSummary(Block):
    """Figures that the trainer derived from the timed steps."""

    median_step_s: StepSeconds | None = None
    ci95_step_s: Interval | None = Field(None, description="nonparametric; null below 6 steps")
    timed_steps: Count | None = None
    flagged_steps: Count | None = None
    samples_per_s: Rate | None = Field(None, description="training samples per second")
    tokens_per_s: Rate | None = None
    gflop_per_s: Rate | None = None
    final_loss: Number | None = Field(None, description="null without losses")
    weights_gb_per_s: Rate | None = Field(None, description="bytes of the weights that a token reads / median step")
    triad_gb_per_s: Rate | None = Field(None, description="of the node with as many threads; null if not measured")
    triad_missing: str | None = Field(None, description="why the triad is not known; null where it is")
    phase_median_s: dict[Phase, Seconds] | None = Field(None, description="median of each phase, seconds")


class TrainResult(Block):
    """A TrainResult (gpt2core/spec/result.py). Its config must equal the run's."""

    schema_: Literal[SCHEMA] = Field(alias="schema")  # type: ignore[valid-type]
    config: dict[str, Any]
    environment: ResultEnvironment
    losses: list[Number] = Field(description="of each step; empty if its phases have no loss")
    accuracy: list[Number] = Field(
        [], description="of each step, top 1; empty unless the network has classes or answers"
    )
    evaluations: list[ResultEvaluation] = Field([], description="after every `evaluate_every` steps")
    step_s: list[StepSeconds] = Field(min_length=1)
    phase_s: dict[Phase, list[Seconds]]
    phase_busy_s: dict[Phase, list[Seconds]]
    ops: list[ResultOp] = Field(min_length=1)
    threads: list[ResultThread] = Field(min_length=1)
    memory_bytes: dict[str, Count]
    weights_sha256: Name | None = Field(None, description="of the final weights; null in mode infer")
    outputs_sha256: Name | None = Field(None, description="of the last step's logits, in mode infer")
    outputs_sketch: list[Number] | None = Field(None, min_length=SKETCH_SIZE, max_length=SKETCH_SIZE)
    latency: ResultLatency | None = None
    tokens: list[Count] | None = Field(None, description="that were generated; null without `generate`")
    time_to_first_token_s: StepSeconds | None = Field(
        None, description="of the step that reads the prompt, which `step_s` lacks; null without `generate`"
    )
    communication: list[ResultRank] = Field([], description="of each rank; empty for one")
    graph: dict[str, Rate | None] | None = None
    validity: ResultValidity | None = None
    flagged: list[list[str]] | None = None
    counters: ResultCounters | None = None
    resident_bytes: dict[str, Count] | None = None
    warnings: list[str] | None = None
    gradient_norms: list[Number] | None = None
    canary: ResultCanary | None = None
    checkpoint: ResultCheckpoint | None = None
    compiled: Count | None = None
    node_time: Annotated[dict[Name, Seconds], Field(max_length=MOST_PARTS)] | None = None
    energy: ResultEnergy | None = None
    goal: ResultGoal | None = Field(None, description="with `stop_at`: what the way to the goal took")
    summary: ResultSummary | None = Field(None, description="figures that the trainer derived from the timed steps")
