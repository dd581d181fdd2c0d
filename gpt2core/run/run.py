"""The timed part of a run: the scheduler's loop on the team, watched from outside, and what is read out of it."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpt2core.compile import clock
from gpt2core.measure import counters, evidence, profile, tracing
from gpt2core.node import pages
from gpt2core.schedulers import dispatch, forkjoin, replay
from gpt2core.schedulers.deque import new_deques
from gpt2core.schedulers.serial import serial_loop
from gpt2core.schedulers.task import IDLE_CELLS, task_loop
from gpt2core.schedulers.team import Team
from gpt2core.schedulers.waiting import BARRIER_CELLS, spin_ticks
from gpt2core.spec import settings
from gpt2core.spec.config import PHASES, TrainConfig
from gpt2core.spec.errors import Cancelled, NotFinite, Stalled
from gpt2core.spec.result import OpStat, ThreadStat, TrainResult, median, median_interval
from gpt2core.step import graph
from gpt2core.step.control import FINISHED, FIRST, LAST, STEPS_DONE, STOP
from gpt2core.step.memory import Memory
from gpt2core.step.ops import Program

Emit = Callable[[dict[str, Any]], None]
MAX_EVENTS = 4_000_000  # traced calls and waits of all threads: 128 MB of buffers
MAX_TOLD = 8  # waiting tasks that a stall's report names


@dataclass
class Plan:
    """What is known of a run before anything is allocated."""

    config: TrainConfig
    cores: tuple[int, ...]
    program: Program
    graph: graph.Graph
    memory_bytes: dict[str, int]

    def event(self) -> dict[str, Any]:
        return {
            "event": "planned",
            "memory_bytes": self.memory_bytes,
            "tasks": len(self.program.tasks),
            "edges": len(self.graph.edges),
            "batch_slice": self.config.batch_slice,
            "token_slice": self.config.token_slice,
            "cores": list(self.cores),
        }


def silent(_: dict[str, Any]) -> None:
    """An Emit that drops events."""


class Run:
    """The timed part of a run and what is read out of it."""

    def __init__(self, planned: Plan, arenas: Memory, bound: dispatch.Dispatch, team: Team) -> None:
        self.planned, self.arenas, self.bound, self.team = planned, arenas, bound, team
        self.config = planned.config
        tasks = len(planned.program.tasks)
        timed = self.config.steps - self.config.warmup_steps
        spans = 2 * len(planned.program.calls) * timed  # there are fewer waits than tasks
        events = min(spans, MAX_EVENTS // self.config.threads) if self.config.trace else 0
        self.record = tracing.new_record(
            self.config.threads, self.config.steps, self.config.warmup_steps, len(bound.kinds), events, tasks, True,
            self.config.grad_accum,
        )  # fmt: skip
        self.watcher = evidence.Watcher(tuple(sorted(set(planned.cores))))
        self.counters = [counters.Counters() for _ in planned.cores]
        self.counted: list[dict[str, int | None]] = [{} for _ in planned.cores]
        self.begins: dict[int, int] = {}  # ticks at which the stage that starts with this step began
        self.cost_s = [graph.cost_s(tile) for _, tile in planned.program.tasks]
        self.calibration = clock.Calibration(0.0)

    @property
    def losses(self) -> NDArray[np.float64]:
        return self.arenas.arrays["losses"].view(np.float64)

    @property
    def gradient_norms(self) -> NDArray[np.float64]:
        """Of each step; empty if they are not limited."""
        return self.arenas.arrays["gradient_norms"].view(np.float64) if self.config.grad_clip else np.zeros(0)

    def arguments(self, first: int, end: int) -> tuple[Callable[..., None], list[Any]]:
        """The scheduler's compiled loop for the steps [first, end), and what it takes."""
        config, control, limit = self.config, self.arenas.arrays["control"], spin_ticks(self.planned.cores)
        common = [self.bound.tasks, self.bound.context, self.record, control, end]
        if config.scheduler == "serial":
            return serial_loop, common
        if config.scheduler == "fork-join":
            team = [(config.op_threads or {}).get(op.name, config.threads) for op in self.planned.program.ops]
            split = forkjoin.shares(self.bound.op_first, np.array(team, np.int64), config.assignment == "dynamic")
            return forkjoin.forkjoin_loop, [*common, split, np.zeros(BARRIER_CELLS, np.int64), config.threads, limit]
        cost = [0.0 if number == graph.WAIT else self.cost_s[number] for number in self.planned.graph.task]
        deques, mask = new_deques(config.threads, len(cost))
        flat = replay.record(self.planned.graph, cost, config.policy, first)
        return task_loop, [*common, flat, deques, mask, np.zeros(IDLE_CELLS, np.int64), limit]

    def execute(self, emit: Emit, stop: threading.Event | None) -> None:
        """Run the warm-up, measure what each task costs, and run the timed steps.

        Raises NotFinite or Cancelled if the steps did not all happen, Stalled if no task ends any more.
        """
        warmup, steps = self.config.warmup_steps, self.config.steps
        self.start = clock.pair()
        self.said = 0
        for first, end in ((0, warmup), (warmup, steps)):
            if end > first:
                self.stage(first, end, emit, stop)
            if first == 0 and warmup:
                self.cost_s = self.mean_task_s(warmup)
                self.record.task_time[:] = 0
                self.record.waited[:] = 0
                self.record.event_count[:] = 0

    def stage(self, first: int, end: int, emit: Emit, stop: threading.Event | None) -> None:
        """Run the steps [first, end) on the team."""
        control = self.arenas.arrays["control"]
        control[FINISHED], control[LAST], control[FIRST] = 0, 0, first
        loop, arguments = self.arguments(first, end)
        limit_s = settings.stall_s()
        ended, since_s = -1, time.monotonic()

        timed = first == self.config.warmup_steps

        def watch() -> None:
            nonlocal ended, since_s
            now = int(self.record.task_time.sum())
            if now != ended:
                ended, since_s = now, time.monotonic()
            elif time.monotonic() - since_s > limit_s:
                control[FINISHED] = 1  # idle threads of a task run may leave
                raise Stalled(self.stall_report(arguments, limit_s))
            if stop is not None and stop.is_set():
                control[STOP] = 1
            try:
                if timed:
                    self.watcher.read_if_due()
                self.say(emit, int(control[STEPS_DONE]))
            except BaseException:  # a run that nobody can watch ends with its step
                control[STOP] = 1
                raise

        if timed:
            self.watcher.read()
            self.team.run(loop, arguments, watch, inside=self.observed)
            self.watcher.read()
        else:
            self.team.run(loop, arguments, watch)
        self.begins[first] = int(self.record.begin[0])
        done = int(control[STEPS_DONE])
        for name, values in (("loss", self.losses[:done]), ("gradient_norm", self.gradient_norms[:done])):
            if not np.all(np.isfinite(values)):
                step = int(np.argmin(np.isfinite(values)))
                raise NotFinite(step + 1, float(values[step]), name)
        self.say(emit, done)
        if done < end:
            raise Cancelled(done)

    @contextlib.contextmanager
    def observed(self, thread: int) -> Iterator[None]:
        """Let a thread of the team count, and read its own usage."""
        descriptor = evidence.open_schedstat(self.record.desk[thread])
        self.counters[thread].start()
        try:
            yield
        finally:
            self.counted[thread] = self.counters[thread].stop()
            if descriptor >= 0:
                os.close(descriptor)

    def say(self, emit: Emit, done: int) -> None:
        """Tell of the last step if it is a new one."""
        if done > self.said and math.isfinite(self.losses[done - 1]):
            self.said = done
            self.calibration = clock.Calibration.between(self.start, clock.pair())
            emit(self.step_event(done))

    def stall_report(self, arguments: list[Any], limit_s: float) -> str:
        """Which tasks wait on what."""
        told = f"no task has ended for {limit_s:g} s"
        flat = next((a for a in arguments if isinstance(a, replay.Replay)), None)
        if flat is None:
            return told
        label = self.planned.graph.label
        waiting = replay.waiting(flat, self.planned.graph)
        lines = [f"'{label[n]}' waits on " + ", ".join(f"'{label[p]}'" for p in on) for n, on in waiting[:MAX_TOLD]]
        return "; ".join([told, *lines, *([f"and {len(waiting) - MAX_TOLD} more"] if len(waiting) > MAX_TOLD else [])])

    def mean_task_s(self, steps: int) -> list[float]:
        """Mean seconds of each task over some steps that have just run and were told of."""
        scale = self.calibration.seconds_per_tick / steps
        return [float(t) for t in self.record.task_time * scale]

    def step_event(self, done: int) -> dict[str, Any]:
        step_s = float(self.step_times(done)[-1])
        return {
            "event": "step",
            "step": done,
            "steps": self.config.steps,
            "loss": float(self.losses[done - 1]),
            "step_s": step_s,
            "tokens_per_s": self.config.tokens_per_step / step_s,
        }

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

    def graph_stats(self) -> dict[str, float]:
        """The graph's size and, from measured task times, its work and its critical path, under tasks and fork-join."""
        nodes, edges = self.planned.graph, self.planned.graph.edges
        cost = self.mean_task_s(self.config.steps - self.config.warmup_steps)
        weight = [0.0 if number == graph.WAIT else cost[number] for number in nodes.task]
        ones = [float(number != graph.WAIT) for number in nodes.task]
        first = self.bound.op_first
        return {
            "tasks": len(cost),
            "edges": len(edges),
            "crossing_edges": len(nodes.crossing),
            "critical_path_tasks": int(max(graph.bottom_levels(len(nodes), edges, ones))),
            "t1_s": math.fsum(cost),
            "tinf_s": max(graph.bottom_levels(len(nodes), edges, weight)),
            "fork_join_tinf_s": math.fsum(max(cost[a:b]) for a, b in itertools.pairwise(first)),
        }

    def cells(self) -> NDArray[np.int64]:
        """(P, S, A, phases, 3) of A micro-batches: first begin, last end and busy time, in ticks."""
        shape = (self.config.threads, self.config.steps, self.config.grad_accum, tracing.PHASE_COUNT, 3)
        return self.record.phases[:, :, : math.prod(shape[2:])].reshape(shape)

    def phase_times(self) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
        """(span, busy) of every phase in every step, in seconds; of micro-batches the sum.

        Where phases follow each other (serial, fork-join, sync = phase) a phase's span goes from the end of the one
        before it to its own end, so that spans add up to the step; else from its first task's begin to its last's end.
        """
        cells, scale = self.cells(), self.calibration.seconds_per_tick
        first, ran = cells[..., tracing.FIRST], cells[..., tracing.LAST].any(axis=0)
        begin = np.where(first == 0, np.iinfo(np.int64).max, first).min(axis=0)
        end = cells[..., tracing.LAST].max(axis=0)
        busy = cells[..., tracing.BUSY].sum(axis=(0, 2))
        if self.config.scheduler != "task" or self.config.sync == "phase":
            # In their order; what did not run, the update of all micro-batches but the last, ends as it begins.
            ends = np.maximum.accumulate(end.reshape(self.config.steps, -1), axis=1)
            ends[:, -1] = self.record.step_end
            begins = np.concatenate([self.starts()[:, None], ends[:, :-1]], axis=1)
            begin, end = begins.reshape(begin.shape), ends.reshape(end.shape)
        spans = np.where(ran, end - begin, 0).sum(axis=1)

        def by_phase(ticks: NDArray[np.int64]) -> dict[str, list[float]]:
            return {name: [float(v) for v in ticks[:, i] * scale] for i, name in enumerate(PHASES)}

        return by_phase(spans), by_phase(busy)

    def op_stats(self) -> list[OpStat]:
        """Each op over the timed steps."""
        timed = self.config.steps - self.config.warmup_steps
        scale = self.calibration.seconds_per_tick
        work: dict[tuple[str, str], list[int]] = {kind: [0, 0] for kind in self.bound.kinds}
        for _, _, call, (_, flop, size) in self.planned.program.calls:
            work[call.name, call.phase][0] += flop * timed
            work[call.name, call.phase][1] += size * timed
        return [
            OpStat(
                name,
                phase,
                int(self.record.op_calls[:, i].sum()),
                float(self.record.op_time[:, i].sum() * scale),
                work[name, phase][0],
                work[name, phase][1],
                self.bound.blas.get((name, phase), ""),
            )
            for i, (name, phase) in enumerate(self.bound.kinds)
        ]

    def thread_stats(self, elapsed_s: float) -> list[ThreadStat]:
        """What each thread did with the timed steps' time. Scheduling is what nothing else accounts for."""
        scale, warmup = self.calibration.seconds_per_tick, self.config.warmup_steps
        late = np.maximum(self.record.waited[:, tracing.ENTERED] - self.begins[warmup], 0)
        busy = self.cells()[:, warmup:, ..., tracing.BUSY].sum(axis=(1, 2)) * scale
        out = []
        for i, core in enumerate(self.planned.cores):
            waited = self.record.waited[i] * scale
            barrier_s, starvation_s = float(waited[tracing.BARRIER]), float(waited[tracing.STARVATION])
            idle_s = float(waited[tracing.APART] + late[i] * scale)
            useful_s = float(self.record.op_time[i].sum() * scale)
            out.append(ThreadStat(
                thread=i,
                core=core,
                observed_cores=self.team.observed[i],
                useful_s=useful_s,
                phase_useful_s={name: float(busy[i, at]) for at, name in enumerate(PHASES)},
                scheduling_s=elapsed_s - useful_s - barrier_s - starvation_s - idle_s,
                waiting_s=barrier_s + starvation_s,
                barrier_s=barrier_s,
                starvation_s=starvation_s,
                idle_s=idle_s,
                calls=int(self.record.op_calls[i].sum()),
            ))  # fmt: skip
        return out

    def profile(self, environment: dict[str, Any]) -> dict[str, Any]:
        """What the tasks cost, as the mean over the timed steps, and how they depend on each other."""
        mean_s = self.mean_task_s(self.config.steps - self.config.warmup_steps)
        return profile.profile(self.config.to_dict(), environment, self.planned.program, self.planned.graph, mean_s)

    def trace(self, environment: dict[str, Any]) -> dict[str, Any]:
        """The profile, and who ran or waited when in the timed steps."""
        warmup = self.config.warmup_steps
        bounds = np.concatenate([[self.begins[warmup]], self.record.step_end[warmup:]])
        rows = [self.record.events[i, : self.record.event_count[i, 0]] for i in range(self.config.threads)]
        spans = profile.timeline(rows, bounds, warmup, self.calibration.seconds_per_tick * 1e9, self.trace_complete())
        calls = profile.calls(self.planned.program)
        return {
            **self.profile(environment), "schema": profile.TRACE_SCHEMA, **calls, "cores": self.planned.cores, **spans
        }  # fmt: skip

    def trace_complete(self) -> bool:
        """Whether no thread's buffer was full."""
        return bool((self.record.event_count[:, 0] < self.record.events.shape[1]).all())

    def evidence(self, step_s: list[float]) -> tuple[dict[str, Any], list[list[str]], list[str]]:
        """(validity, flagged, warnings) of the timed steps."""
        warmup = self.config.warmup_steps
        bounds = np.concatenate([[self.begins[warmup]], self.record.step_end[warmup:]])
        validity = evidence.collect(self.watcher, self.record.usage, bounds, warmup)
        flagged = evidence.flags(validity, step_s, len(self.watcher.cores))
        return validity, flagged, evidence.warnings(validity, flagged, math.fsum(step_s[warmup:]))

    def result(self, machine: dict[str, Any], sha256: str, resident_bytes: dict[str, int]) -> TrainResult:
        """Everything measured, and the summary derived from it."""
        config = self.config
        step_s = [float(v) for v in self.step_times(config.steps)]
        timed = step_s[config.warmup_steps :]
        spans, busy = self.phase_times()
        ops = self.op_stats()
        interval = median_interval(timed)
        total_s = math.fsum(timed)
        warnings = []
        if interval is None:
            warnings.append(f"{len(timed)} timed steps are too few for a 95 % interval of the median; it takes 6")
        if config.trace and not self.trace_complete():
            warnings.append(f"the trace is cut off: its buffers hold {self.record.events.shape[1]} spans a thread")
        if settings.stress() is not None:
            warnings.append("TASKLOOM_STRESS delays tasks at random: times mean nothing")
        if len(set(self.planned.cores)) < config.threads:
            warnings.append("more threads than cores: times say nothing about either scheduler")
        if machine["load_average"][0] > len(machine["cores_allowed"]) + 1:
            warnings.append(f"the machine was busy: load average {machine['load_average'][0]:.1f}")
        validity, flagged, doubts = self.evidence(step_s)
        return TrainResult(
            config=config.to_dict(),
            environment=machine,
            losses=[float(v) for v in self.losses],
            gradient_norms=[float(v) for v in self.gradient_norms],
            step_s=step_s,
            phase_s=spans,
            phase_busy_s=busy,
            ops=ops,
            threads=self.thread_stats(total_s),
            memory_bytes={**self.planned.memory_bytes, "peak_rss": pages.peak_rss_bytes()},
            resident_bytes=resident_bytes,
            weights_sha256=sha256,
            graph=self.graph_stats(),
            validity=validity,
            flagged=flagged,
            counters={
                "threads": self.counted,
                "unavailable": {name: why for each in self.counters for name, why in each.unavailable.items()},
            },
            warnings=warnings + doubts,
            summary={
                "median_step_s": median(timed),
                "ci95_step_s": None if interval is None else list(interval),
                "timed_steps": len(timed),
                "flagged_steps": sum(bool(reasons) for reasons in flagged),
                "tokens_per_s": config.tokens_per_step * len(timed) / total_s,
                "gflop_per_s": sum(op.flop for op in ops) / total_s / 1e9,
                "final_loss": float(self.losses[-1]),
                "phase_median_s": {name: median(spans[name][config.warmup_steps :]) for name in PHASES},
            },
        )
