"""A pattern as a step program, and its timed runs under a scheduler.

`timesteps` of the pattern are one program, an op each; its replays continue the pattern: timestep 0 reads the last one
of the iteration before. Every run validates: a task whose input does not carry (point, timestep - 1) is a violation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from gpt2core.compile import clock
from gpt2core.compile.line import LINE
from gpt2core.measure.tracing import new_record
from gpt2core.schedulers import dispatch
from gpt2core.schedulers.scheduler import Job, Stage
from gpt2core.schedulers.team import Team
from gpt2core.spec import schedulers
from gpt2core.spec.errors import Violated
from gpt2core.step import graph
from gpt2core.step.builder import Builder
from gpt2core.step.control import CELLS
from gpt2core.step.grid import Grid
from gpt2core.step.memory import Memory
from gpt2core.step.ops import Own, Program, Read, Tensor, Write
from gpt2core.step.tensors import ArenaPlan, TensorSpec, plan_arena
from gpt2core.taskbench import patterns
from gpt2core.taskbench.granularity import Point, stream_bytes
from gpt2core.taskbench.kernels import CHUNK, POINT, TIMESTEP, compute_task, memory_task

LEAST_ITERATIONS, MOST_ITERATIONS = 2, 50_000


class TaskBench:
    """One pattern under one scheduler, ready to be run at any grain."""

    def __init__(
        self,
        pattern: str,
        scheduler: str,
        width: int,
        cores: Sequence[int],
        streams: Streams | None = None,
        runtime: str = schedulers.AUTO,
    ) -> None:
        """Build and prove the graph, allocate, compile. `cores`: one for each thread; with `streams` of the same cores
        the tasks are of the memory kernel, else of the compute kernel. `runtime`: for schedulers that have one.

        Raises MachineError if this node lacks what the scheduler needs.
        """
        self.inputs = patterns.inputs(pattern, width)
        self.timesteps, self.width, self.cores = len(self.inputs), width, tuple(cores)
        self.streams = streams
        plans = plan(self.timesteps, width, len(self.cores))
        self.memory = Memory(plans)
        if streams is not None:
            self.memory.arrays.update(buffer=streams.buffer, streamed=streams.streamed)
        self.program = build(self.inputs, plans, streams is not None)
        who = schedulers.scheduler(scheduler)
        options = {**({"runtime": runtime} if "runtime" in who.options else {}), **who.finest}
        who.load(options, self.cores)
        self.graph = graph.build(self.program, who.finest.get("sync", "step"))
        graph.validate(self.program, self.graph)
        self.bound = dispatch.bind(self.program, self.memory, len(self.cores))
        self.cost_s = [1.0] * len(self.program.tasks)  # equal costs for all
        control = self.memory.arrays["control"].view(np.int64)
        self.prepared = who.prepare(Job(self.program, self.graph, self.bound, control, self.cores, options))

    def run(self, grain: int, iterations: int) -> float:
        """Seconds that `iterations` replays took, from the first begin to the last end. Raises Violated."""
        arrays = self.memory.arrays
        cells = arrays["cells"]
        cells[:] = -2
        cells[-1, :, TIMESTEP], cells[-1, :, POINT] = -1, np.arange(self.width)
        arrays["violations"][:], arrays["control"][:] = 0, 0
        arrays["grain"][0] = grain
        record = new_record(len(self.cores), iterations, 0, len(self.bound.kinds), 0)
        stage = Stage(0, iterations, record, self.cost_s, watch=lambda: None, inside=lambda _: nullcontext())
        first = clock.pair()
        self.prepared.run(stage)
        self.check(iterations)
        if self.streams is not None:
            self.streams.due += iterations * self.timesteps * self.width * grain
        scale = clock.Calibration.between(first, clock.pair()).seconds_per_tick
        return float((record.step_end[-1] - record.begin[0]) * scale)

    def check(self, iterations: int) -> None:
        """Raise Violated unless every task ran after its inputs and wrote its stamp in the last iteration."""
        violations = int(self.memory.arrays["violations"].sum())
        cells = self.memory.arrays["cells"]
        now = (iterations - 1) * self.timesteps + np.arange(self.timesteps)
        missing = int((cells[:, :, TIMESTEP] != now[:, None]).sum())
        if violations or missing:
            raise Violated(violations, missing)

    def time(self, grain: int, point_s: float) -> Point:
        """A run of about point_s at a grain, after shorter ones that warm up and tell how long to run.

        Raises Violated.
        """
        estimate_s = self.run(grain, LEAST_ITERATIONS) / LEAST_ITERATIONS
        if estimate_s * LEAST_ITERATIONS < point_s / 10:  # too short for an estimate
            some = min(MOST_ITERATIONS, max(LEAST_ITERATIONS, int(point_s / 10 / estimate_s)))
            estimate_s = self.run(grain, some) / some
        iterations = min(MOST_ITERATIONS, max(LEAST_ITERATIONS, round(point_s / estimate_s)))
        elapsed_s = self.run(grain, iterations)
        if self.streams is not None:
            self.streams.check()
        return Point(grain, iterations * self.timesteps * self.width, elapsed_s, len(self.cores))


class Streams:
    """Buffers of the memory kernel, one for each thread, as in Task Bench's OpenMP version.

    buffer (P, elements) float64; streamed (P, LINE): iterations that each thread has done; due: their expected sum.
    """

    def __init__(self, cores: Sequence[int], buffer_bytes: int | None = None) -> None:
        """buffer_bytes: size of each thread's buffer; by default more than the caches hold."""
        elements = (buffer_bytes or stream_bytes(cores)) // 8 // CHUNK * CHUNK
        specs = [TensorSpec("buffer", (len(cores), elements), "float64"),
                 TensorSpec("streamed", (len(cores), LINE), "int64")]  # fmt: skip
        self.arrays = Memory({"temporary": plan_arena(specs)}).arrays
        self.buffer, self.streamed = self.arrays["buffer"], self.arrays["streamed"]
        self.due = 0

        def touch(thread: int) -> None:
            """Write to every page, so that it is placed near its thread."""
            self.buffer[thread] = 0.0

        Team(cores).run(touch, ())

    def check(self) -> None:
        """Raise Violated unless each number equals its thread's passes over it, and all iterations were done."""
        wrong = abs(self.due - int(self.streamed[:, 0].sum()))
        for numbers, done in zip(self.buffer, self.streamed[:, 0], strict=True):
            passes, rest = divmod(int(done) * CHUNK, len(numbers))
            wrong += int((numbers[:rest] != passes + 1).sum() + (numbers[rest:] != passes).sum())
        if wrong:
            raise Violated(0, 0, wrong)


def build(inputs: Sequence[Sequence[Sequence[int]]], plans: Mapping[str, ArenaPlan], streams: bool) -> Program:
    """The step program of inputs[timestep][point]: an op for each timestep, a tile for each point."""
    step = Builder(plans)
    kernel = memory_task if streams else compute_task
    own: dict[str, Any] = {"buffer": Own("buffer"), "streamed": Own("streamed")} if streams else {}
    for timestep, points in enumerate(inputs):
        most = max(map(len, points))
        grid = Grid(
            tuple(str(point) for point in range(len(points))),
            {"point": tuple(range(len(points))), "count": tuple(map(len, points)),
             **{f"input{i}": tuple(read[i] if i < len(read) else 0 for read in points) for i in range(most)}},
            {"inputs": tuple([(other, other + 1) for other in read] for read in points)},
        )  # fmt: skip
        step.op(
            "point", "forward", kernel, grid, [(1, 1)] * len(points), timestep,
            cells=Write(Tensor("cells", timestep), "point"),
            inputs=Read(Tensor("cells", (timestep - 1) % len(inputs)), "inputs"), grain=Read(Tensor("grain")),
            violations=Own("violations"), timestep=timestep, timesteps=len(inputs), **own,
        )  # fmt: skip
    return step.build()


def plan(timesteps: int, width: int, threads: int) -> dict[str, ArenaPlan]:
    """Cells, a line each; each thread's count of violations; the grain."""
    shapes = {"cells": (timesteps, width, LINE), "grain": (LINE,), "violations": (threads, LINE), "control": (CELLS,)}
    specs = [TensorSpec(name, shape, "int64", constant=name == "grain") for name, shape in shapes.items()]
    return {"temporary": plan_arena(specs)}
