"""Forecast of a step on more cores: the graph is replayed with measured task times, under either scheduler.

An event simulation. A core runs one task at a time, in its measured time. Tasks below the ridge share the bandwidth of
all cores: if the running tasks need more than that, they slow down in proportion. Not modelled: larger caches of more
cores, falling clocks, and the cost of a barrier beyond waiting.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from gpt2core.spec.schedulers import facts
from taskloom.analysis.profile import WAIT, Profile
from taskloom.analysis.roofline import Peaks

Beyond = Literal["grows", "held"]
REPLAYED = ("fork-join", "task")  # op after op, and as the graph allows
LARGE_ERROR = 0.1  # against a measured step; with a larger error nothing else is forecast
ITERATIONS = 3  # replayed; the first fills the pipeline where steps overlap


@dataclass(frozen=True)
class Ceiling:
    """Measured peaks by number of threads, interpolated linearly. Beyond the largest number, bandwidth grows with the
    cores or stays constant; the peak of computation always grows."""

    measured: tuple[Peaks, ...]
    beyond: Beyond = "grows"

    def at(self, cores: int) -> Peaks:
        known = sorted(self.measured, key=lambda peaks: peaks.threads)
        last = known[-1]
        if cores >= last.threads:
            factor = cores / last.threads
            bandwidth = last.triad_gb_per_s * (factor if self.beyond == "grows" else 1.0)
            return Peaks(cores, last.gflop_per_s * factor, bandwidth)
        low = Peaks(0, 0.0, 0.0)
        for high in known:
            if cores <= high.threads:
                part = (cores - low.threads) / (high.threads - low.threads)
                return Peaks(
                    cores,
                    low.gflop_per_s + part * (high.gflop_per_s - low.gflop_per_s),
                    low.triad_gb_per_s + part * (high.triad_gb_per_s - low.triad_gb_per_s),
                )
            low = high
        raise AssertionError("at least one measured number of threads is not below cores")


@dataclass(frozen=True)
class Span:
    """A task on a core; kind: its op's number in the profile."""

    core: int
    kind: int
    begin_s: float
    end_s: float


class Cores:
    """Tasks that run now, and the next of them to end. Tasks below the ridge have their own clock, which slows down
    while the running tasks need more bandwidth than there is. So an event costs a heap operation for any number of
    cores. A subclass may have tasks that hold no core (`apart`), each in a place of its own below 0."""

    def __init__(self, profile: Profile, cores: int, ceiling: Ceiling | None, overhead_s: float = 0.0) -> None:
        self.now_s = 0.0
        self._memory_s = 0.0  # the clock of tasks below the ridge
        self._wanted = 0.0  # bytes a second
        self._compute: list[tuple[float, int, int]] = []
        self._memory: list[tuple[float, int, int]] = []
        self._seconds = [s + overhead_s for s in profile.seconds]
        self._demand = [0.0] * len(self._seconds)
        self._below = [False] * len(self._seconds)
        self._limit = float("inf")
        self._kind = profile.kind
        self._begun: dict[int, float] = {}
        self.spans: list[Span] = []
        if ceiling is not None:
            peaks, alone = ceiling.at(cores), ceiling.at(1).triad_gb_per_s * 1e9
            self._limit = peaks.triad_gb_per_s * 1e9
            for task, (size, flop, s) in enumerate(zip(profile.bytes, profile.flop, profile.seconds, strict=True)):
                # Bandwidth above triad's comes from a cache.
                self._demand[task] = min(size / s, alone) if s > 0 else 0.0
                self._below[task] = size > 0 and flop / size < peaks.ridge

    def apart(self, task: int) -> bool:  # noqa: ARG002
        """Whether a task holds no core under a scheduler that follows the graph."""
        return False

    def begin(self, task: int, core: int) -> None:
        self._begun[core] = self.now_s
        if self._below[task]:
            heapq.heappush(self._memory, (self._memory_s + self._seconds[task], task, core))
        else:
            heapq.heappush(self._compute, (self.now_s + self._seconds[task], task, core))
        self._wanted += self._demand[task]

    def end(self) -> tuple[int, int]:
        """Advance to the next end of a task; return the task and its core. Raises IndexError if none runs."""
        rate = min(1.0, self._limit / self._wanted) if self._wanted > 0 else 1.0
        memory_end_s = self.now_s + (self._memory[0][0] - self._memory_s) / rate if self._memory else float("inf")
        if self._memory and (not self._compute or memory_end_s <= self._compute[0][0]):
            self._memory_s, task, core = heapq.heappop(self._memory)
            self.now_s = memory_end_s
        else:
            end_s, task, core = heapq.heappop(self._compute)
            self._memory_s += (end_s - self.now_s) * rate
            self.now_s = end_s
        self._wanted = max(0.0, self._wanted - self._demand[task])
        self.spans.append(Span(core, self._kind[task], self._begun[core], self.now_s))
        return task, core


def task_step_s(
    profile: Profile, cores: int, ceiling: Ceiling | None = None, overhead_s: float = 0.0, iterations: int = ITERATIONS
) -> float:
    """A step under `task` with the breadth-first policy: the oldest ready task first, fillers if no other task is
    ready.

    The mean of the iterations after the first. Raises ValueError if the graph never completes.
    """
    return task_step_on(Cores(profile, cores, ceiling, overhead_s), profile, cores, iterations)


def task_step_on(machine: Cores, profile: Profile, cores: int, iterations: int = ITERATIONS) -> float:
    """As `task_step_s`, on a machine of so many cores that has not yet begun."""
    done_s = _replay(profile, machine, cores, iterations)
    return done_s[0] if iterations == 1 else (done_s[-1] - done_s[0]) / (iterations - 1)


def _replay(profile: Profile, machine: Cores, cores: int, iterations: int) -> list[float]:
    """Completion time of each iteration."""
    nodes, count = profile.nodes, len(profile.nodes)
    within, crossing = [0] * count, [0] * count
    for successors in profile.successors:
        for node, crosses in successors:
            (crossing if crosses else within)[node] += 1
    both = [a + b for a, b in zip(within, crossing, strict=True)]
    pending = [within, *(both.copy() for _ in range(iterations - 1))]
    left = [count] * iterations
    done_s: list[float] = []
    ready: deque[tuple[int, int]] = deque()
    spare: deque[tuple[int, int]] = deque()
    running: dict[int, tuple[int, int]] = {}
    idle = list(range(cores))

    def release(first: tuple[int, int]) -> None:
        """Complete a node: its successors may become ready, and a ready wait completes at once."""
        stack = [first]
        while stack:
            node, step = stack.pop()
            left[step] -= 1
            if not left[step]:
                done_s.append(machine.now_s)
            for after, crosses in profile.successors[node]:
                at = step + crosses
                if at == iterations:
                    continue
                pending[at][after] -= 1
                if not pending[at][after]:
                    make_ready(after, at, stack)

    def make_ready(node: int, step: int, stack: list[tuple[int, int]]) -> None:
        if nodes[node] == WAIT:
            stack.append((node, step))
        elif machine.apart(nodes[node]):
            place = -1 - node - step * count
            running[place] = (node, step)
            machine.begin(nodes[node], place)
        else:
            (spare if profile.filler[nodes[node]] else ready).append((node, step))

    waits: list[tuple[int, int]] = []
    for step, counts in enumerate(pending):
        for node in range(count):
            if not counts[node]:
                make_ready(node, step, waits)
    for wait in waits:
        release(wait)
    while ready or spare or running:
        while idle and (ready or spare):
            node, step = (ready or spare).popleft()
            core = idle.pop()
            running[core] = (node, step)
            machine.begin(nodes[node], core)
        _, core = machine.end()
        if core >= 0:
            idle.append(core)
        release(running.pop(core))
    if any(left):
        raise ValueError("the graph never completes: it has a cycle")
    return done_s


def fork_join_step_s(
    profile: Profile, cores: int, ceiling: Ceiling | None = None, overhead_s: float = 0.0, dynamic: bool = False
) -> float:
    """A step under `fork-join`: op after op, each with all cores. Static: equal contiguous shares of an op's tiles;
    dynamic: a free core takes the next."""
    return fork_join_step_on(Cores(profile, cores, ceiling, overhead_s), profile, cores, dynamic)


def fork_join_step_on(machine: Cores, profile: Profile, cores: int, dynamic: bool = False) -> float:
    """As `fork_join_step_s`, on a machine of so many cores that has not yet begun."""
    _fork_join(profile, machine, cores, dynamic)
    return machine.now_s


def _fork_join(profile: Profile, machine: Cores, cores: int, dynamic: bool) -> None:
    for first, end in pairwise(profile.op_first):
        count = end - first
        if dynamic:
            common = deque(range(first, end))
            queues = [common] * cores
        else:
            queues = [deque(range(first + count * c // cores, first + count * (c + 1) // cores)) for c in range(cores)]
        running = 0
        for core in range(cores):
            if queues[core]:
                machine.begin(queues[core].popleft(), core)
                running += 1
        while running:
            _, core = machine.end()
            running -= 1
            if queues[core]:
                machine.begin(queues[core].popleft(), core)
                running += 1


def task_spans(profile: Profile, cores: int) -> list[Span]:
    """Schedule of one step under `task`, without a bandwidth ceiling."""
    machine = Cores(profile, cores, None)
    _replay(profile, machine, cores, iterations=1)
    return machine.spans


def fork_join_spans(profile: Profile, cores: int, dynamic: bool = False) -> list[Span]:
    """Schedule of one step under `fork-join`, without a bandwidth ceiling."""
    machine = Cores(profile, cores, None)
    _fork_join(profile, machine, cores, dynamic)
    return machine.spans


@dataclass(frozen=True)
class CurvePoint:
    """A forecast step on `cores` cores. error: forecast / measured - 1, if it was measured."""

    cores: int
    step_s: float
    speedup: float
    measured_s: float | None
    error: float | None


@dataclass(frozen=True)
class Curve:
    """Forecasts for one scheduler; speedups are against its forecast on one core."""

    scheduler: str
    bandwidth: Beyond
    points: list[CurvePoint]


def waits_for_ops(scheduler: str) -> bool:
    """Whether a scheduler runs op after op, each on all cores, instead of following the graph."""
    known = facts(scheduler)
    return known is not None and known.order == "ops"


def curves(
    profile: Profile,
    cores: Sequence[int],
    ceiling: Ceiling | None,
    overhead_s: float = 0.0,
    measured_s: Mapping[tuple[str, int], float] | None = None,
    dynamic: bool = False,
    schedulers: Sequence[str] = REPLAYED,
) -> list[Curve]:
    """Forecasts of schedulers on each number of cores, replayed in their order; measured_s by (scheduler, threads).
    overhead_s: added to each task."""
    found = []
    for scheduler in schedulers:
        forecast_s = {
            count: fork_join_step_s(profile, count, ceiling, overhead_s, dynamic)
            if waits_for_ops(scheduler)
            else task_step_s(profile, count, ceiling, overhead_s)
            for count in sorted({1, *cores})
        }
        points = []
        for count in sorted(set(cores)):
            known_s = (measured_s or {}).get((scheduler, count))
            error = None if known_s is None else forecast_s[count] / known_s - 1
            points.append(CurvePoint(count, forecast_s[count], forecast_s[1] / forecast_s[count], known_s, error))
        found.append(Curve(scheduler, "held" if ceiling is not None and ceiling.beyond == "held" else "grows", points))
    return found
