"""Assembles a run's result from its records: times, waits, evidence, profile, trace."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpt2core.compile import clock
from gpt2core.measure import evidence, profile, tracing, usage
from gpt2core.networks import program
from gpt2core.node import pages
from gpt2core.run.execute import Measured
from gpt2core.spec import generation, schedulers, settings
from gpt2core.spec.goals import NOT_REACHED
from gpt2core.spec.latency import latency
from gpt2core.spec.phases import MODES
from gpt2core.spec.result import OpStat, ThreadStat, TrainResult, energy_j, median, median_interval
from gpt2core.step import graph


class Report:
    """Contents of a run's result, profile and trace."""

    def __init__(self, measured: Measured) -> None:
        self.measured, self.config = measured, measured.config
        self.done = measured.done
        self.timed = self.done - self.config.warmup_steps
        self.phases = measured.planned.program.phases
        self.step_s: list[float] = measured.step_times(self.done).tolist()
        self.task_s = measured.mean_task_s(self.timed)

    def graph_stats(self) -> dict[str, float]:
        """The graph's size and, from measured task times, its work and its critical path, under tasks and fork-join."""
        nodes, edges = self.measured.planned.graph, self.measured.planned.graph.edges
        cost = list(self.task_s)
        for number in self.measured.bound.later:  # messages are no work
            cost[number] = 0.0
        weight = [0.0 if number == graph.WAIT else cost[number] for number in nodes.task]
        ones = [float(number != graph.WAIT) for number in nodes.task]
        first = self.measured.bound.op_first
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
        """(P, S, A, phases, 3) of A micro-batches and the S steps that ran: first begin, last end and busy time, in
        ticks."""
        shape = (self.config.threads, self.config.steps, self.config.grad_accum, len(self.phases), 3)
        return self.measured.record.phases[:, :, : math.prod(shape[2:])].reshape(shape)[:, : self.done]

    def phase_times(self) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
        """(span, busy) of every phase in every step, in seconds; of micro-batches the sum.

        If phases follow each other (serial, fork-join, sync = phase), a phase's span goes from the end of the previous
        phase to its own end, so that spans add up to the step. Otherwise it goes from the begin of its first task to
        the end of its last.
        """
        cells, scale = self.cells(), self.measured.calibration.seconds_per_tick
        first, ran = cells[..., tracing.FIRST], cells[..., tracing.LAST].any(axis=0)
        begin = np.where(first == 0, np.iinfo(np.int64).max, first).min(axis=0)
        end = cells[..., tracing.LAST].max(axis=0)
        busy = cells[..., tracing.BUSY].sum(axis=(0, 2))
        if not schedulers.scheduler(self.config.scheduler).overlaps(self.config.sync):
            # In their order. A phase that did not run (the update of all micro-batches but the last) ends as it begins.
            # One thread records a step's end, when the others may already run the next step's first tasks.
            starts = self.measured.starts()[: self.done, None]
            step_ends = self.measured.record.step_end[: self.done, None]
            ends = np.clip(np.maximum.accumulate(end.reshape(self.done, -1), axis=1), starts, step_ends)
            ends[:, -1:] = step_ends
            begins = np.concatenate([starts, ends[:, :-1]], axis=1)
            begin, end = begins.reshape(begin.shape), ends.reshape(end.shape)
        spans = np.where(ran, end - begin, 0).sum(axis=1)

        def by_phase(ticks: NDArray[np.int64]) -> dict[str, list[float]]:
            return {name: [float(v) for v in ticks[:, i] * scale] for i, name in enumerate(self.phases)}

        return by_phase(spans), by_phase(busy)

    def held(self) -> NDArray[np.int64]:
        """(P, phases) ticks of the timed steps for which tasks that wait for messages held each thread."""
        bound, found = self.measured.bound, np.zeros((self.config.threads, len(self.phases)), np.int64)
        if not schedulers.scheduler(self.config.scheduler).second_moment:
            for number, (name, phase) in enumerate(bound.kinds):
                if name in bound.waits:
                    found[:, self.phases.index(phase)] += self.measured.record.op_time[:, number]
        return found

    def op_stats(self) -> list[OpStat]:
        """Each op over the timed steps."""
        scale = self.measured.calibration.seconds_per_tick
        work: dict[tuple[str, str], list[int]] = {kind: [0, 0] for kind in self.measured.bound.kinds}
        for _, _, call, (_, flop, size) in self.measured.planned.program.calls:
            work[call.name, call.phase][0] += flop * self.timed
            work[call.name, call.phase][1] += size * self.timed
        return [
            OpStat(
                name,
                phase,
                int(self.measured.record.op_calls[:, i].sum()),
                float(self.measured.record.op_time[:, i].sum() * scale),
                work[name, phase][0],
                work[name, phase][1],
                self.measured.bound.blas.get((name, phase), ""),
            )
            for i, (name, phase) in enumerate(self.measured.bound.kinds)
        ]

    def thread_stats(self, elapsed_s: float) -> list[ThreadStat]:
        """Each thread's use of the timed steps. Scheduling is the remainder; it counts as starvation where a scheduler
        does not distinguish the two. A thread that a task holds until messages arrive starves."""
        scale, warmup = self.measured.calibration.seconds_per_tick, self.config.warmup_steps
        late_s = np.minimum(self.measured.late * scale, elapsed_s)
        held_s = self.held() * scale
        busy = self.cells()[:, warmup:, ..., tracing.BUSY].sum(axis=(1, 2)) * scale - held_s
        distinguished = schedulers.scheduler(self.config.scheduler).tells_scheduling
        out = []
        for i, core in enumerate(self.measured.planned.cores):
            waited = self.measured.record.waited[i] * scale
            barrier_s, starvation_s = float(waited[tracing.BARRIER]), float(waited[tracing.STARVATION])
            starvation_s += float(held_s[i].sum())
            idle_s = float(waited[tracing.APART] + late_s[i])
            useful_s = float(self.measured.record.op_time[i].sum() * scale - held_s[i].sum())
            rest_s = elapsed_s - useful_s - barrier_s - starvation_s - idle_s
            known = distinguished or i == 0
            starvation_s += 0.0 if known else rest_s
            out.append(ThreadStat(
                thread=i,
                core=core,
                observed_cores=self.measured.observed[i],
                useful_s=useful_s,
                phase_useful_s={name: float(busy[i, at]) for at, name in enumerate(self.phases)},
                scheduling_s=rest_s if known else None,
                waiting_s=barrier_s + starvation_s,
                barrier_s=barrier_s,
                starvation_s=starvation_s,
                idle_s=idle_s,
                calls=int(self.measured.record.op_calls[i].sum()),
            ))  # fmt: skip
        return out

    def profile(self, environment: dict[str, Any]) -> dict[str, Any]:
        """Profile: mean cost of each task over the timed steps, and the dependencies."""
        planned, config, whole = self.measured.planned, self.config, None
        if config.matrix_ranks > 1:
            alone = program.build(dataclasses.replace(config, ranks=1, cores=None))
            whole = profile.undivided(planned.program, alone, config.ranks)
        return profile.profile(config.to_dict(), environment, planned.program, planned.graph, self.task_s, whole)

    def trace(self, environment: dict[str, Any]) -> dict[str, Any]:
        """The profile, and when each thread ran or waited in the timed steps."""
        warmup, bounds, record = self.config.warmup_steps, self.timed_bounds(), self.measured.record
        rows = [record.events[i, : record.event_count[i, 0]].copy() for i in range(self.config.threads)]
        for row in rows:
            row[:, 2:4] = self.without_gaps(row[:, 2:4])
        spans = profile.timeline(
            rows, bounds, warmup, self.measured.calibration.seconds_per_tick * 1e9, self.trace_complete()
        )
        _, flagged, _ = self.evidence()
        for thread, columns in enumerate(spans["threads"]):
            if self.measured.record.desk[thread, usage.SCHEDSTAT_FD] < 0:
                del columns["run_delay"]  # unknown
        calls = profile.calls(self.measured.planned.program)
        about = {"schema": profile.TRACE_SCHEMA, **calls, "cores": self.measured.planned.cores}
        if schedulers.scheduler(self.config.scheduler).second_moment and self.measured.bound.later:
            about["completed"] = {"task": self.measured.bound.later, "at_ns": self.completed_ns()}
        return {**self.profile(environment), **about, **spans, "flagged": flagged[warmup:]}

    def completed_ns(self) -> list[list[int]]:
        """When each task with a second moment was complete in each timed step, nanoseconds since the first began."""
        at = self.without_gaps(self.measured.record.completed[:, self.config.warmup_steps : self.done])
        scale = self.measured.calibration.seconds_per_tick * 1e9
        since: list[list[int]] = np.rint((at - self.timed_bounds()[0]) * scale).astype(np.int64).tolist()
        return since

    def began_ns(self) -> int:
        """When the first timed step began, by this machine's CLOCK_MONOTONIC."""
        ticks, now_ns = clock.pair()
        return now_ns - round((ticks - int(self.timed_bounds()[0])) * self.measured.calibration.seconds_per_tick * 1e9)

    def gaps(self) -> NDArray[np.int64]:
        """Ticks of the evaluations before each uninterrupted part of the timed steps."""
        parts = [each.bounds for each in self.measured.timed]
        return np.cumsum([0, *(int(after[0] - before[-1]) for before, after in itertools.pairwise(parts))])

    def timed_bounds(self) -> NDArray[np.int64]:
        """(timed steps + 1,) ticks without gaps: when the first timed step began, and when each ended."""
        first, *others = (each.bounds - gap for each, gap in zip(self.measured.timed, self.gaps(), strict=True))
        return np.concatenate([first, *(each[1:] for each in others)])

    def without_gaps(self, ticks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Ticks of timed steps, as if evaluations between them took no time."""
        begins = [each.bounds[0] for each in self.measured.timed]
        return ticks - self.gaps()[np.maximum(np.searchsorted(begins, ticks, "right") - 1, 0)]

    def trace_complete(self) -> bool:
        """Whether no thread's buffer was full."""
        return bool((self.measured.record.event_count[:, 0] < self.measured.record.events.shape[1]).all())

    def evidence(self) -> tuple[dict[str, Any], list[list[str]], list[str]]:
        """(validity, flagged, warnings) of the timed steps."""
        warmup = self.config.warmup_steps
        stages = [(each.usage, each.bounds) for each in self.measured.timed]
        scale = self.measured.calibration.seconds_per_tick
        validity = evidence.collect(self.measured.watcher, stages, warmup, scale)
        flagged = evidence.flags(validity, self.step_s, len(self.measured.watcher.cores))
        return validity, flagged, evidence.warnings(validity, flagged[warmup:], math.fsum(self.step_s[warmup:]))

    def goal(self) -> dict[str, Any] | None:
        """Steps, seconds and joules until the run's goal was reached, warm-up included; None: it has no goal."""
        goal, steps = self.measured.goal, self.measured.reached()
        if goal is None:
            return None
        begins = sorted(self.measured.begins)
        ends = [min(end, steps or 0) for end in (*begins[1:], self.done)]
        stages = [
            np.array([self.measured.begins[first], self.measured.record.step_end[end - 1]])
            for first, end in zip(begins, ends, strict=True)
            if first < end
        ]
        used_j, why = None, NOT_REACHED
        if steps is not None:
            used_j, why = energy_j({"energy": evidence.energy_used(self.measured.watcher, stages)})
        return {
            "metric": goal.metric, "value": goal.value, "reached": steps is not None, "steps": steps,
            "time_s": None if steps is None else math.fsum(self.step_s[:steps]),
            "energy_j": used_j, "energy_missing": why or None,
        }  # fmt: skip

    def result(self, machine: dict[str, Any], sha256: str | None, resident_bytes: dict[str, int]) -> TrainResult:
        """The complete result with its summary."""
        config = self.config
        timed = self.step_s[config.warmup_steps :]
        spans, busy = self.phase_times()
        ops = self.op_stats()
        interval = median_interval(timed)
        total_s = math.fsum(timed)
        warnings = []
        if interval is None:
            warnings.append(f"{len(timed)} timed steps are too few: a 95 % interval of the median needs 6")
        if config.trace and not self.trace_complete():
            warnings.append(
                f"the trace is cut off: its buffers hold {self.measured.record.events.shape[1]} spans a thread"
            )
        if settings.stress() is not None:
            warnings.append("TASKLOOM_STRESS delays tasks at random: times are meaningless")
        if len(set(self.measured.planned.cores)) < config.threads:
            warnings.append("more threads than cores: the times do not describe the scheduler")
        average = (machine["load_average"] or [0.0])[0]
        if average > len(machine["cores_allowed"]) + 1:
            warnings.append(f"the machine was busy: load average {average:.1f}")
        validity, flagged, doubts = self.evidence()
        return TrainResult(
            config=config.to_dict(),
            environment=machine,
            losses=[float(v) for v in self.measured.losses[: self.done]],
            accuracy=[float(v) for v in self.measured.accuracies[: self.done]],
            gradient_norms=[float(v) for v in self.measured.gradient_norms[: self.done]],
            step_s=self.step_s,
            phase_s=spans,
            phase_busy_s=busy,
            ops=ops,
            threads=self.thread_stats(total_s),
            memory_bytes={**self.measured.planned.memory_bytes, "peak_rss": pages.peak_rss_bytes()},
            resident_bytes=resident_bytes,
            weights_sha256=sha256,
            graph=self.graph_stats(),
            validity=validity,
            flagged=flagged,
            counters={
                "threads": self.measured.counted,
                "unavailable": self.measured.not_counted,
            },
            evaluations=self.measured.evaluations,
            energy=evidence.energy_used(self.measured.watcher, [each.bounds for each in self.measured.timed]),
            goal=self.goal(),
            latency=latency(timed) if "latency" in MODES[config.mode].evidence else None,
            warnings=warnings + doubts,
            summary={
                "median_step_s": median(timed),
                "ci95_step_s": None if interval is None else list(interval),
                "timed_steps": len(timed),
                "flagged_steps": sum(bool(reasons) for reasons in flagged),
                "samples_per_s": config.samples_per_step * len(timed) / total_s,
                "tokens_per_s": config.tokens_per_step * len(timed) / total_s,
                "gflop_per_s": sum(op.flop for op in ops) / total_s / 1e9,
                "final_loss": float(self.measured.losses[self.done - 1]) if self.measured.losses.size else None,
                **(generation.rates(config, machine, median(timed)) if config.generate else {}),
                "phase_median_s": {name: median(spans[name][config.warmup_steps :]) for name in self.phases},
            },
        )
