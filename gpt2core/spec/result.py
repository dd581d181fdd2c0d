"""Result of a run: immutable, versioned, raw. Aggregates are derived on reading (see `summary`)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpt2core.spec.phases import by_phase

SCHEMA = "taskloom.result/2"
SKETCH_SIZE = 64  # numbers in the sketch of the outputs of inference
MOSTLY_USEFUL = 0.95  # minimum useful share of the threads' time at which counters describe the work
EXCHANGE_TIMES = ("calls_s", "in_flight_s", "exposed_s")  # of a rank
EXCHANGE_SIZES = ("bytes_sent", "bytes_received")
LINK = ("latency_s", "bytes_per_s")  # between a rank and rank 0
# Parts of the time that a run takes of its node, in their order. A worker adds the first two: delivering the result
# before this one, and waiting for a claim.
NODE_TIME = (
    "delivering", "claiming", "starting", "planning", "compiling", "preparing", "warmup", "timed", "finishing",
)  # fmt: skip


@dataclass(frozen=True)
class Sample:
    """One timed step. Times in seconds, from monotonic nanoseconds."""

    step: int
    warmup: bool
    loss: float | None
    step_s: float
    phase_s: Mapping[str, float]


@dataclass(frozen=True)
class OpStat:
    """One op over the timed (not warm-up) steps: tiles run, their summed time, and the work the formulae count.

    `blas`: the library of its matrix product, with the columns of a piece if there are several; "" without a product.
    """

    op: str
    phase: str
    calls: int
    time_s: float
    flop: int
    bytes: int
    blas: str = ""


@dataclass(frozen=True)
class ThreadStat:
    """One thread of the team over the timed steps: where it ran and what it did with the time.

    Useful, scheduling, waiting and idle time add up to the timed steps' time; waiting = barrier + starvation. Under
    omp-task only thread 0 has scheduling time, for creating tasks. For the others it is null: no runtime distinguishes
    looking for a task from having none, so both count as starvation.
    """

    thread: int
    core: int
    observed_cores: tuple[int, ...]  # the affinity mask read back inside the thread
    useful_s: float  # in tasks
    phase_useful_s: Mapping[str, float]
    scheduling_s: float | None  # the remainder: creating, finding, releasing and recording tasks
    waiting_s: float
    barrier_s: float  # waiting for the other threads
    starvation_s: float  # no task was ready, or the op had too few tiles
    idle_s: float  # no part in the work: its loop had not begun, or op_threads excluded it
    calls: int


@dataclass(frozen=True)
class ExchangeStat:
    """One kind of exchange between a rank and the others, over the timed steps."""

    exchange: str  # loss, gradients, norm, weights
    calls_s: float  # in calls of the MPI library, summed over threads
    in_flight_s: float  # while any was between its start and its completion
    exposed_s: float  # mean over the threads: waiting for it with no other task ready
    bytes_sent: int
    bytes_received: int


@dataclass(frozen=True)
class RankStat:
    """One rank's exchanges with the others. The lists are of each step, of all kinds together."""

    rank: int
    exchanges: Sequence[ExchangeStat]
    calls_s: Sequence[float]
    in_flight_s: Sequence[float]  # while any exchange was, whatever its kind
    exposed_s: Sequence[float]
    useful_s: Sequence[float] = ()  # of each of its threads over the timed steps, in tasks
    latency_s: float | None = None  # of a message of one byte between it and rank 0; None: of rank 0
    bytes_per_s: float | None = None  # of a message of 1 MiB


@dataclass(frozen=True)
class TrainResult:
    """Measurements of one process. `to_dict` is the result file and the JSON of `taskloom train --json`."""

    config: Mapping[str, Any]
    environment: Mapping[str, Any]
    losses: Sequence[float]
    step_s: Sequence[float]
    phase_s: Mapping[str, Sequence[float]]
    phase_busy_s: Mapping[str, Sequence[float]]
    ops: Sequence[OpStat]
    threads: Sequence[ThreadStat]
    memory_bytes: Mapping[str, int]
    weights_sha256: str | None  # None: mode infer
    graph: Mapping[str, float]
    validity: Mapping[str, Any] = field(default_factory=dict)
    flagged: Sequence[Sequence[str]] = ()  # for each step the reasons why it is flagged
    counters: Mapping[str, Any] = field(default_factory=dict)
    resident_bytes: Mapping[str, int] = field(default_factory=dict)  # what peak_rss consists of
    warnings: Sequence[str] = ()
    schema: str = SCHEMA
    summary: Mapping[str, Any] = field(default_factory=dict)
    gradient_norms: Sequence[float] = ()  # of each step, before clipping; empty without grad_clip
    accuracy: Sequence[float] = ()  # of each step's batches before the update, top 1; empty without classes
    evaluations: Sequence[Mapping[str, Any]] = ()  # step (1-based), loss, accuracy of each; empty without
    canary: Mapping[str, Any] = field(default_factory=dict)  # fixed work timed beside the steps (run/canary.py)
    checkpoint: Mapping[str, Any] = field(default_factory=dict)  # format and dtype of the initial weights' file
    compiled: int | None = None  # functions that this process compiled, for which it loaded the compiler; None: unknown
    node_time: Mapping[str, float] = field(default_factory=dict)  # seconds of each of NODE_TIME: `timed_s` ...
    energy: Mapping[str, Any] = field(default_factory=dict)  # joules of the timed steps (measure/energy.py)
    goal: Mapping[str, Any] | None = None  # steps, seconds and joules until `stop_at` was reached; None: no goal
    outputs_sha256: str | None = None  # of the last step's logits, in mode infer (run/outputs.py)
    outputs_sketch: Sequence[float] | None = None  # of the same
    latency: Mapping[str, Any] | None = None  # of the timed steps, in mode infer (spec/latency.py)
    tokens: Sequence[int] | None = None  # that were generated; None: none
    time_to_first_token_s: float | None = None  # of the step that reads the prompt, which step_s lacks
    communication: Sequence[RankStat] = ()  # of each rank; empty for one

    def samples(self) -> list[Sample]:
        warmup = int(self.config["warmup"])
        losses: Sequence[float | None] = self.losses or [None] * len(self.step_s)
        return [
            Sample(i, i < warmup, loss, step_s, {phase: times[i] for phase, times in by_phase(self.phase_s).items()})
            for i, (loss, step_s) in enumerate(zip(losses, self.step_s, strict=True))
        ]

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def tokens_per_step(config: Mapping[str, Any]) -> int:
    """Tokens of a step, from a result's config, which may be older than grad_accum."""
    return int(config.get("grad_accum", 1)) * int(config["batch"]) * int(config["seq"])


def instructions_per_step(result: Mapping[str, Any]) -> tuple[float | None, str]:
    """Instructions of a timed step over all threads, from a result as JSON; or None and the reason: they were not
    counted, or the threads waited too much."""
    counters, config = result.get("counters") or {}, result["config"]
    counted = [thread.get("instructions") for thread in counters.get("threads") or []]
    if not counted or not all(counted):
        why = (counters.get("unavailable") or {}).get("instructions")
        return None, why or "instructions were not counted"
    timed_s = result["step_s"][config["warmup"] :]
    busy_s = math.fsum(math.fsum(times[config["warmup"] :]) for times in result["phase_busy_s"].values())
    if busy_s < MOSTLY_USEFUL * int(config["threads"]) * math.fsum(timed_s):
        share = f"{1 - MOSTLY_USEFUL:.0%}"
        return None, f"threads waited for more than {share} of the time, and waiting executes instructions too"
    return math.fsum(counted) / len(timed_s), ""


def useful_s(result: Mapping[str, Any]) -> list[float] | None:
    """Seconds in tasks of each thread of all ranks over the timed steps, from a result as JSON; None: it lacks one."""
    ranks = [rank.get("useful_s") for rank in result.get("communication") or []]
    ranks = ranks or [[thread.get("useful_s") for thread in result.get("threads") or []]]
    times = [s for each in ranks for s in each or [None]]
    return None if None in times else times


def communication_per_step(result: Mapping[str, Any]) -> list[dict[str, float]]:
    """What the exchanges of each rank took in the mean of a timed step, of all kinds together, from a result as JSON:
    seconds and bytes; and its LINK, if that was measured. Empty for one rank."""
    ranks = result.get("communication") or []
    steps = len(result["step_s"]) - int(result["config"]["warmup"]) if ranks else 0
    return [
        {
            **{name: math.fsum(rank[name][-steps:]) / steps for name in EXCHANGE_TIMES},
            **{name: sum(each[name] for each in rank["exchanges"]) / steps for name in EXCHANGE_SIZES},
            **{name: rank[name] for name in LINK if rank.get(name)},
        }
        for rank in ranks
        if steps > 0
    ]


def energy_j(result: Mapping[str, Any]) -> tuple[float | None, str]:
    """Joules of the timed steps, of the packages and of their memory where it is measured, from a result as JSON; or
    None and the reason."""
    found = result.get("energy") or {}
    if found.get("package_j") is None:
        return None, (found.get("unavailable") or {}).get("package_j") or "energy was not measured"
    return float(found["package_j"]) + float(found.get("memory_j") or 0.0), ""


def energy_per_step_j(result: Mapping[str, Any]) -> tuple[float | None, str]:
    """Joules of a timed step, as `energy_j`; or None and the reason."""
    used_j, why = energy_j(result)
    timed = len(result["step_s"]) - int(result["config"]["warmup"])
    return None if used_j is None else used_j / timed, why


def median(values: Sequence[float]) -> float:
    """The middle of the sorted values, or the mean of the two middles. Raises ValueError for no values."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values")
    mid = len(ordered) // 2
    return ordered[mid] if len(ordered) % 2 else (ordered[mid - 1] + ordered[mid]) / 2


def phase_medians_s(result: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Medians of each phase over the timed steps of a result as JSON: its span, the time of its tasks on all threads
    (busy), and busy divided by the threads (share). Phases without a timed step are left out."""
    warmup, threads = result["config"]["warmup"], int(result["config"]["threads"])
    span_s, busy_s = (
        {phase: steps[warmup:] for phase, steps in result[name].items()} for name in ("phase_s", "phase_busy_s")
    )
    share_s = {phase: [s / threads for s in steps] for phase, steps in busy_s.items()}
    kinds = {"span": span_s, "busy": busy_s, "share": share_s}
    return {kind: {phase: median(s) for phase, s in by_phase.items() if s} for kind, by_phase in kinds.items()}


def median_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float] | None:
    """The nonparametric (order statistics, binomial) interval of the median, or None if too few values for it.

    Source: Hoefler & Belli 2015, section 4.2.2 (after Le Boudec). At least 6 values are needed for 95 %.
    """
    ordered, n = sorted(values), len(values)

    def share(k: int) -> float:
        """Probability that k of n values are below the median."""
        return math.exp(math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) - n * math.log(2))

    covered = share(n // 2) * (1 + n % 2)
    for low in range((n - 2) // 2, -1, -1):
        if covered >= confidence:
            return ordered[low], ordered[n - 1 - low]
        covered += 2 * share(low)
    return None
