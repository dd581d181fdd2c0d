"""One run: plan, check, allocate, compile, train on a pinned team, and report what was measured."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpt2core import checkpoint, data, graph, program, slicing, tensors, tracing
from gpt2core.arena import Memory, check_fits
from gpt2core.config import PHASES, TrainConfig
from gpt2core.errors import Cancelled, MachineError, NotFinite
from gpt2core.machine import clock, environment, gemm, memory, pinning
from gpt2core.ops import Program
from gpt2core.result import OpStat, ThreadStat, TrainResult, median, median_interval
from gpt2core.schedulers import dispatch, replay
from gpt2core.schedulers.deque import new_deques
from gpt2core.schedulers.forkjoin import forkjoin_loop
from gpt2core.schedulers.serial import STEPS_DONE, STOP, serial_loop
from gpt2core.schedulers.task import task_loop
from gpt2core.schedulers.team import Team, spins

Emit = Callable[[dict[str, Any]], None]
MAX_EVENTS = 4_000_000  # traced tasks of all threads: 128 MB of buffers


def silent(_: dict[str, Any]) -> None:
    """An Emit that drops events."""


@dataclasses.dataclass
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


def plan(config: TrainConfig) -> Plan:
    """Resolve slices and cores, build the step program and its graph, and prove the graph race-free.

    Raises ConfigError for cores that are not there, GraphError if the program is wrong.
    """
    config = slicing.resolve(config)
    if config.save is not None:
        checkpoint.check_suffix(config.save)
    cores = pinning.choose_cores(config.cores, config.threads, config.allow_oversubscription)
    config = dataclasses.replace(config, cores=tuple(sorted(set(cores))), warmup=config.warmup_steps)
    step = program.build(config)
    tasks = graph.build(step, config.sync)
    graph.validate(step, tasks)
    return Plan(config, cores, step, tasks, tensors.memory_bytes(config))


def train(config: TrainConfig, emit: Emit = silent, stop: threading.Event | None = None) -> TrainResult:
    """Run a configuration in this process and return what was measured.

    emit gets the events of gpt2core.launch. Setting `stop` ends the run at a step's end.
    Raises the InputErrors of configuration, files and memory, NotFinite with the step, Cancelled.
    """
    check_fits(slicing.resolve(config))  # first: it is quick, and the plan of a huge run is not
    planned = plan(config)
    config = planned.config
    stream = data.open_tokens(config)
    emit(planned.event())
    blas = gemm.load(config.blas)
    team = Team(planned.cores)
    arenas = Memory(tensors.plan(config))
    compile_entries(planned.program, emit)
    first_touch(team, arenas)
    fill(arenas, config, stream)
    run = Run(planned, arenas, dispatch.bind(planned.program, arenas, config.threads, blas.sgemm), team)
    run.execute(emit, stop)
    weights = arenas.weights(config)
    if config.save is not None:
        checkpoint.write_checkpoint(config.save, config.model, weights)
    if config.trace is not None:
        run.write_trace(config.trace)
    return run.result(environment.describe(blas, planned.cores), weights_sha256(weights))


def compile_entries(step: Program, emit: Emit) -> None:
    """Compile or load every kernel; says so once one is not in the cache."""
    entries = list(dict.fromkeys(op.entry for op in step.ops))
    cold = False
    for number, entry in enumerate(entries):
        if cold:
            emit({"event": "compiling", "done": number, "total": len(entries) + 1, "kernel": entry.name})
        _ = entry.address
        cold = cold or not entry.was_cached
    if cold:
        emit({"event": "compiling", "done": len(entries), "total": len(entries) + 1, "kernel": "scheduler"})


def first_touch(team: Team, arenas: Memory) -> None:
    """Let each thread of the team touch its share of every arena first, so that it comes to lie near its core."""
    threads = len(team.cores)
    pieces = [(int(block.ctypes.data), block.size) for block in arenas.arenas.values()]

    def touch(thread: int) -> None:
        for address, size in pieces:
            memory.touch(address, size * thread // threads, size * (thread + 1) // threads)

    team.run(touch, ())


def fill(arenas: Memory, config: TrainConfig, stream: NDArray[np.uint16]) -> None:
    """Weights from the checkpoint or the seed, the row tables, the optimizer's settings, the token stream."""
    weights = arenas.weights(config)
    if config.checkpoint is None:
        checkpoint.initial_weights(config.model, config.seed, weights)
    else:
        checkpoint.read_checkpoint(config.checkpoint, config.model, weights)
    arenas.arrays["row_batch"][:], arenas.arrays["row_time"][:] = slicing.row_tables(config)
    arenas.arrays["settings"][:] = (config.lr, config.beta1, config.beta2, config.eps, config.weight_decay)
    arenas.arrays["stream"] = stream


def weights_sha256(weights: dict[str, NDArray[np.float32]]) -> str:
    """SHA-256 over every weight's bytes, in the table's order: equal only if training gave the same bits."""
    digest = hashlib.sha256()
    for array in weights.values():
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


class Run:
    """The timed part of a run and what is read out of it."""

    def __init__(self, planned: Plan, arenas: Memory, bound: dispatch.Dispatch, team: Team) -> None:
        self.planned, self.arenas, self.bound, self.team = planned, arenas, bound, team
        self.config = planned.config
        tasks = len(planned.program.tasks)
        events = min(tasks * self.config.steps, MAX_EVENTS // self.config.threads) if self.config.trace else 0
        self.record = tracing.new_record(
            self.config.threads, self.config.steps, self.config.warmup_steps, len(bound.kinds), events
        )
        self.steps_done = 0
        self.calibration = clock.Calibration(0.0)

    @property
    def losses(self) -> NDArray[np.float64]:
        return self.arenas.arrays["losses"].view(np.float64)

    def arguments(self) -> tuple[Callable[..., None], list[Any]]:
        """The scheduler's compiled loop and what it takes."""
        config, control = self.config, self.arenas.arrays["control"]
        common = [self.bound.tasks, self.bound.context, self.record, control, config.steps]
        limit = spins(self.planned.cores)
        if config.scheduler == "serial":
            return serial_loop, common
        if config.scheduler == "fork-join":
            cells = np.zeros(32, np.int64)
            return forkjoin_loop, [*common, self.bound.op_first, cells, config.threads, limit]
        tasks = self.planned.program.tasks
        cost = [0.0 if number == graph.WAIT else graph.cost_s(tasks[number][1]) for number in self.planned.graph.task]
        deques, mask = new_deques(config.threads, len(cost))
        return task_loop, [*common, replay.record(self.planned.graph, cost), deques, mask, limit]

    def execute(self, emit: Emit, stop: threading.Event | None) -> None:
        """Run the steps. Raises NotFinite or Cancelled if they did not all happen."""
        config, control = self.config, self.arenas.arrays["control"]
        loop, arguments = self.arguments()
        first = clock.pair()
        said = 0

        def watch() -> None:
            nonlocal said
            if stop is not None and stop.is_set():
                control[STOP] = 1
            done = int(control[STEPS_DONE])
            if done > said and math.isfinite(self.losses[done - 1]):
                said = done
                self.calibration = clock.Calibration.between(first, clock.pair())
                emit(self.step_event(done))

        self.team.run(loop, arguments, watch)
        self.calibration = clock.Calibration.between(first, clock.pair())
        self.steps_done = done = int(control[STEPS_DONE])
        if not np.all(np.isfinite(self.losses[:done])):
            step = int(np.argmin(np.isfinite(self.losses[:done])))
            raise NotFinite(step + 1, float(self.losses[step]))
        if done > said:
            emit(self.step_event(done))
        if done < config.steps:
            raise Cancelled(done)

    def step_event(self, done: int) -> dict[str, Any]:
        step_s = float(self.step_times(done)[-1])
        tokens = self.config.batch * self.config.seq
        return {
            "event": "step",
            "step": done,
            "steps": self.config.steps,
            "loss": float(self.losses[done - 1]),
            "step_s": step_s,
            "tokens_per_s": tokens / step_s,
        }

    def step_times(self, done: int) -> NDArray[np.float64]:
        """Seconds of each of the first `done` steps: from the end of the one before to its own end."""
        ends = np.concatenate([self.record.begin, self.record.step_end[:done]])
        return np.diff(ends) * self.calibration.seconds_per_tick

    def phase_times(self) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
        """(span, busy) of every phase in every step, in seconds.

        Where phases follow each other (serial, fork-join, sync = phase) a phase's span goes from the end of the one
        before it to its own end, so that spans add up to the step; else from its first task's begin to its last's end.
        """
        cells = self.record.phases[:, :, : 3 * tracing.PHASE_COUNT].reshape(
            self.config.threads, self.config.steps, tracing.PHASE_COUNT, 3
        )
        begin = np.where(cells[..., tracing.FIRST] == 0, np.iinfo(np.int64).max, cells[..., tracing.FIRST]).min(axis=0)
        end = cells[..., tracing.LAST].max(axis=0)
        busy = cells[..., tracing.BUSY].sum(axis=0)
        if self.config.scheduler != "task" or self.config.sync == "phase":
            before = np.concatenate([self.record.begin, self.record.step_end[:-1]])
            begin = np.concatenate([before[:, None], end[:, :-1]], axis=1)
            end = np.concatenate([end[:, :-1], self.record.step_end[:, None]], axis=1)
        scale = self.calibration.seconds_per_tick
        spans = {name: [float(v) for v in (end - begin)[:, i] * scale] for i, name in enumerate(PHASES)}
        return spans, {name: [float(v) for v in busy[:, i] * scale] for i, name in enumerate(PHASES)}

    def op_stats(self) -> list[OpStat]:
        """Each op over the timed steps."""
        timed = self.config.steps - self.config.warmup_steps
        scale = self.calibration.seconds_per_tick
        work: dict[tuple[str, str], list[int]] = {kind: [0, 0] for kind in self.bound.kinds}
        for op, tile in self.planned.program.tasks:
            work[op.name, op.phase][0] += tile.flop * timed
            work[op.name, op.phase][1] += tile.bytes * timed
        return [
            OpStat(
                name,
                phase,
                int(self.record.op_calls[:, i].sum()),
                float(self.record.op_time[:, i].sum() * scale),
                *work[name, phase],
            )
            for i, (name, phase) in enumerate(self.bound.kinds)
        ]

    def thread_stats(self, elapsed_s: float) -> list[ThreadStat]:
        """What each thread did with the timed steps' time."""
        useful = self.record.op_time.sum(axis=1) * self.calibration.seconds_per_tick
        return [
            ThreadStat(i, core, self.team.observed[i], float(useful[i]), max(0.0, elapsed_s - float(useful[i])),
                       int(self.record.op_calls[i].sum()))
            for i, core in enumerate(self.planned.cores)
        ]  # fmt: skip

    def write_trace(self, path: str) -> None:
        """Write the timed steps as Chrome/Perfetto JSON."""
        labels = [" ".join(p for p in (op.label, tile.label) if p) for op, tile in self.planned.program.tasks]
        names = [(label, op.name, op.phase) for label, (op, _) in zip(labels, self.planned.program.tasks, strict=True)]
        tracing.write_chrome(Path(path), self.record, names, self.calibration.seconds_per_tick, self.planned.cores)

    def result(self, machine: dict[str, Any], sha256: str) -> TrainResult:
        """Everything measured, and the summary derived from it."""
        config = self.config
        step_s = [float(v) for v in self.step_times(config.steps)]
        timed = step_s[config.warmup_steps :]
        spans, busy = self.phase_times()
        ops = self.op_stats()
        interval = median_interval(timed)
        tokens = config.batch * config.seq
        total_s = math.fsum(timed)
        warnings = []
        if interval is None:
            warnings.append(f"{len(timed)} timed steps are too few for a 95 % interval of the median; it takes 6")
        if len(set(self.planned.cores)) < config.threads:
            warnings.append("more threads than cores: times say nothing about either scheduler")
        if machine["load_average"][0] > len(machine["cores_allowed"]) + 1:
            warnings.append(f"the machine was busy: load average {machine['load_average'][0]:.1f}")
        return TrainResult(
            config=config.to_dict(),
            environment=machine,
            losses=[float(v) for v in self.losses],
            step_s=step_s,
            phase_s=spans,
            phase_busy_s=busy,
            ops=ops,
            threads=self.thread_stats(total_s),
            memory_bytes={**self.planned.memory_bytes, "peak_rss": memory.peak_rss_bytes()},
            weights_sha256=sha256,
            graph={"tasks": len(self.planned.program.tasks), "edges": len(self.planned.graph.edges)},
            warnings=warnings,
            summary={
                "median_step_s": median(timed),
                "ci95_step_s": None if interval is None else list(interval),
                "timed_steps": len(timed),
                "tokens_per_s": tokens * len(timed) / total_s,
                "gflop_per_s": sum(op.flop for op in ops) / total_s / 1e9,
                "final_loss": float(self.losses[-1]),
                "phase_median_s": {name: median(spans[name][config.warmup_steps :]) for name in PHASES},
            },
        )


def plan_event(config: TrainConfig) -> dict[str, Any]:
    """The sizes of a run without running it."""
    return plan(config).event()


def graph_dot(config: TrainConfig) -> str:
    """The run's task graph in Graphviz's language. Raises MachineError if it is too large to be drawn."""
    planned = plan(config)
    if len(planned.graph) > 20_000:
        raise MachineError(f"a graph of {len(planned.graph)} nodes cannot be drawn; take a smaller model")
    return graph.dot(planned.graph)


def summary_line(result: TrainResult) -> Sequence[str]:
    """Two lines for people."""
    s, c = result.summary, result.config
    return (
        f"{c['model']['name']} {c['scheduler']} threads {c['threads']}: median step {s['median_step_s'] * 1e3:.3f} ms, "
        f"{s['tokens_per_s']:.0f} tokens/s, {s['gflop_per_s']:.1f} GFLOP/s, loss {s['final_loss']:.6f}",
    )
