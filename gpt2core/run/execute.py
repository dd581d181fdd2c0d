"""Executes the steps of a run: the scheduler runs them, stage after stage, while the calling thread watches."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gpt2core.compile import clock
from gpt2core.measure import counters, evidence, tracing, usage
from gpt2core.process.node_time import NodeTime
from gpt2core.run.prepare import Emit, RunPlan
from gpt2core.schedulers import dispatch
from gpt2core.schedulers.scheduler import Job, Prepared, Stage
from gpt2core.schedulers.waiting import ticks_per_s
from gpt2core.spec import schedulers, settings
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import Cancelled, NotFinite, Stalled
from gpt2core.spec.goals import Goal, steps_run
from gpt2core.step import graph
from gpt2core.step.control import ASKED, FINISHED, STEPS_DONE, STOP
from gpt2core.step.memory import Memory

if TYPE_CHECKING:
    from gpt2core.run.evaluation import Evaluations

MAX_EVENTS = 4_000_000  # traced calls and waits of all threads: 160 MB of buffers
MOST_EARLIER = 100  # steps in an event beside its own: those of 50 ms, if they take half a millisecond
MAX_NAMED = 8  # waiting tasks that a stall's report names


@dataclass(frozen=True)
class Timed:
    """Timed steps [first, end) that ran without interruption, and the threads' usage at their bounds."""

    first: int
    end: int
    usage: NDArray[np.int64]  # (P, end - first + 1, LINE)
    bounds: NDArray[np.int64]  # (end - first + 1,) ticks: when the first step began, and when each ended


@dataclass
class Measured:
    """Records of the executed steps, in ticks; complete once `execute` has returned."""

    planned: RunPlan
    bound: dispatch.Dispatch
    record: tracing.Record
    watcher: evidence.Watcher
    losses: NDArray[np.float64]  # of each step; empty if its phases have none
    accuracies: NDArray[np.float64]  # of each step; empty if the network has no classes
    gradient_norms: NDArray[np.float64]  # of each step; empty if they are not limited
    begins: dict[int, int] = field(default_factory=dict)  # when the stage that starts with this step began
    calibration: clock.Calibration = field(default_factory=lambda: clock.Calibration(0.0))
    counted: list[dict[str, int | None]] = field(default_factory=list)  # hardware counters of each thread
    not_counted: dict[str, str] = field(default_factory=dict)  # why a counter has no value
    observed: list[tuple[int, ...]] = field(default_factory=list)  # affinity of each thread
    scheduler: Mapping[str, Any] = field(default_factory=dict)  # the scheduler's entries for the environment
    timed: list[Timed] = field(default_factory=list)
    late: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))  # (P,) begins of the threads' loops
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    done: int = 0  # steps that ran: fewer than the configuration's if they reached its goal

    @property
    def config(self) -> TrainConfig:
        return self.planned.config

    @property
    def goal(self) -> Goal | None:
        return Goal.of({"stop_at": self.config.stop_at})

    def reached(self) -> int | None:
        """Number of steps after which the goal was reached; None: it was not, or there is none."""
        values = self.losses if self.goal is None or self.goal.metric == "loss" else self.accuracies
        return None if self.goal is None else self.goal.steps(values[: self.done].tolist())

    def starts(self) -> NDArray[np.int64]:
        """Ticks at which each step began: the end of the one before, or the begin of its stage."""
        starts = np.concatenate([self.record.begin, self.record.step_end[:-1]])
        for step, begin in self.begins.items():
            starts[step] = begin
        return starts

    def step_times(self, done: int) -> NDArray[np.float64]:
        """Seconds of each of the first `done` steps: from the end of the one before to its own end."""
        elapsed = (self.record.step_end - self.starts())[:done]
        return elapsed.astype(np.float64) * self.calibration.seconds_per_tick

    def mean_task_s(self, steps: int) -> list[float]:
        """Mean seconds of each task over steps that have just run."""
        scale = self.calibration.seconds_per_tick / steps
        return [float(t) for t in self.record.task_time * scale]


def execute(
    planned: RunPlan, arenas: Memory, bound: dispatch.Dispatch, emit: Emit, stop: threading.Event | None,
    spent: NodeTime, evaluations: Evaluations | None = None,
) -> Measured:
    """Run the warm-up, measure what each task costs, and run the timed steps, with evaluations between them.

    A goal that is reached ends the run, at the earliest after one timed step. Raises NotFinite or Cancelled if not all
    steps up to there ran, Stalled if no task ends any more.
    """
    run = Stages(planned, arenas, bound, emit, stop)
    warmup, steps, measured = planned.config.warmup_steps, planned.config.steps, run.measured
    for part, first, end in (("warmup", 0, warmup), ("timed", warmup, steps)):
        for begin, until in pieces(first, end, planned.config.evaluate_every):
            most = steps_run(measured.reached(), warmup, until)
            if begin >= most:
                break
            run.stage(begin, most)
            if evaluations is not None and measured.done % planned.config.evaluate_every == 0:
                measured.evaluations.append(evaluations.evaluate(measured.done))
        spent.went_to(part)
        if part == "warmup" and warmup:
            run.cost_s = measured.mean_task_s(warmup)
            measured.record.task_time[:] = 0
            measured.record.waited[:] = 0
            measured.record.event_count[:] = 0
    measured.not_counted = {name: why for each in run.counters for name, why in each.unavailable.items()}
    return measured


def pieces(first: int, end: int, every: int) -> Iterator[tuple[int, int]]:
    """The steps [first, end), cut after each multiple of `every`, if there is one."""
    cuts = range(first // every * every + every, end, every) if every else ()
    return itertools.pairwise([first, *cuts, end] if end > first else [])


class Stages:
    """The stages of one run, warm-up and timed steps, and the periodic work while they run. timed: whether steps after
    the warm-up are watched."""

    def __init__(
        self, planned: RunPlan, arenas: Memory, bound: dispatch.Dispatch, emit: Emit, stop: threading.Event | None,
        timed: bool = True,
    ) -> None:  # fmt: skip
        config, program = planned.config, planned.program
        self.config, self.emit, self.stop, self.timed, self.rank = config, emit, stop, timed, planned.rank
        self.control = arenas.arrays["control"].view(np.int64)
        spans = 2 * len(program.calls) * (config.steps - config.warmup_steps)  # there are fewer waits than tasks
        events = min(spans, MAX_EVENTS // config.threads) if config.trace else 0
        record = tracing.new_record(
            config.threads, config.steps, config.warmup_steps, len(bound.kinds), events, len(program.tasks), True,
            config.grad_accum, len(program.phases), len(bound.waits), len(bound.later),
        )  # fmt: skip
        record.desk[:, usage.LONG_TICKS] = round(tracing.LONG_S * ticks_per_s())
        losses = arenas.arrays["losses"].view(np.float64) if "loss" in config.phases else np.zeros(0)
        found = arenas.arrays.get("accuracies")
        accuracies = np.zeros(0) if found is None else found.view(np.float64)
        norms = arenas.arrays["gradient_norms"].view(np.float64) if config.grad_clip else np.zeros(0)
        self.measured = Measured(
            planned, bound, record, evidence.Watcher(tuple(sorted(set(planned.cores)))),
            losses, accuracies, norms, counted=[{} for _ in planned.cores], late=np.zeros(config.threads, np.int64),
        )  # fmt: skip
        self.counters = [counters.Counters() for _ in planned.cores]
        self.cost_s = [graph.cost_s(tile) for _, tile in program.tasks]
        self.start, self.reported = clock.pair(), 0
        who = schedulers.scheduler(config.scheduler)
        options = who.chosen(config)
        self.measured.scheduler = who.environment(options)
        self.prepared: Prepared = who.prepare(Job(program, planned.graph, bound, self.control, planned.cores, options))

    def stage(self, first: int, end: int) -> None:
        """Run the steps [first, end)."""
        measured, timed = self.measured, self.timed and first >= self.config.warmup_steps
        watched = timed or self.config.stop_at is not None  # the way to a goal begins with the warm-up
        inside = self.counting if timed else lambda _: contextlib.nullcontext()
        stage = Stage(first, end, measured.record, self.cost_s, self.watch(watched), inside)
        if watched:
            measured.watcher.read()
        self.prepared.run(stage)
        if watched:
            measured.watcher.read()
        measured.observed = self.prepared.observed
        measured.begins[first] = int(measured.record.begin[0])
        done = measured.done = int(self.control[STEPS_DONE])
        if timed:
            self.keep(first, done)
        wrong: list[tuple[int, float, str]] = []
        for name, values in (("loss", measured.losses[:done]), ("gradient_norm", measured.gradient_norms[:done])):
            if not np.all(np.isfinite(values)):
                step = int(np.argmin(np.isfinite(values)))
                wrong.append((step + 1, float(values[step]), name))
        if wrong:  # of one step the loss comes first
            raise NotFinite(*min(wrong, key=lambda found: found[0]))
        self.report(done)
        if done < end and done != steps_run(measured.reached(), self.config.warmup_steps, end):
            raise Cancelled(done)

    def keep(self, first: int, end: int) -> None:
        """Keep what the next stage overwrites of the records of timed steps that have just run."""
        measured, record, warmup = self.measured, self.measured.record, self.config.warmup_steps
        bounds = np.concatenate([[measured.begins[first]], record.step_end[first:end]])
        rows = record.usage[:, first - warmup : end - warmup + 1].copy()
        measured.timed.append(Timed(first, end, rows, bounds))
        # Others may run all steps before a thread enters.
        measured.late += np.clip(record.waited[:, tracing.ENTERED] - bounds[0], 0, bounds[-1] - bounds[0])

    def watch(self, watched: bool) -> Callable[[], None]:
        """Periodic work while a stage runs: detect stalls, forward a stop, report steps."""
        limit_s = settings.stall_s() * (2 if self.rank else 1)  # all ranks stall together, and rank 0 reports it
        ended, since_s = -1, time.monotonic()

        def watch() -> None:
            nonlocal ended, since_s
            now = int(self.measured.record.task_time.sum())
            if now != ended:
                ended, since_s = now, time.monotonic()
            elif time.monotonic() - since_s > limit_s:
                self.control[FINISHED] = 1  # idle threads of a task run may leave
                raise Stalled(self.stall_report(limit_s))
            if self.stop is not None and self.stop.is_set():
                self.control[ASKED if self.config.ranks > 1 else STOP] = 1
            try:
                if watched:
                    self.measured.watcher.read_if_due()
                self.report(int(self.control[STEPS_DONE]))
            except BaseException:  # a run that cannot be watched ends after its step
                self.control[STOP] = 1
                raise

        return watch

    @contextlib.contextmanager
    def counting(self, thread: int) -> Iterator[None]:
        """Let a thread use its counters and read its own usage."""
        descriptor = evidence.open_schedstat(self.measured.record.desk[thread])
        self.counters[thread].start()
        try:
            yield
        finally:
            self.measured.counted[thread] = counters.added(self.measured.counted[thread], self.counters[thread].stop())
            if descriptor >= 0:
                os.close(descriptor)

    def report(self, done: int) -> None:
        """Emit the last complete step if it is new, with the newest ones since the last event."""
        measured = self.measured
        loss = float(measured.losses[done - 1]) if done and measured.losses.size else None
        if done > self.reported and (loss is None or math.isfinite(loss)):
            first, self.reported = max(self.reported, done - 1 - MOST_EARLIER), done
            measured.calibration = clock.Calibration.between(self.start, clock.pair())
            known = {"loss": measured.losses, "accuracy": measured.accuracies, "step_s": measured.step_times(done)}
            each = {name: values[first:done].tolist() for name, values in known.items() if values.size}
            last = {name: values.pop() for name, values in each.items()}
            self.emit({
                "event": "step", "step": done, "steps": self.config.steps, "loss": None, **last,
                "tokens_per_s": self.config.tokens_per_step / last["step_s"],
                **({"earlier": each} if each["step_s"] else {}),
            })  # fmt: skip

    def stall_report(self, limit_s: float) -> str:
        """Describe which tasks wait on what."""
        stuck = self.prepared.stuck()
        more = [f"and {len(stuck) - MAX_NAMED} more"] if len(stuck) > MAX_NAMED else []
        return "; ".join([f"no task has ended for {limit_s:g} s", *stuck[:MAX_NAMED], *more])
