"""Task Bench's patterns under the real schedulers: every run validates itself, and the validation can fail."""

from __future__ import annotations

import dataclasses
import os
import threading
from typing import Any

import pytest

from gpt2core.node import host
from gpt2core.schedulers.task import replay
from gpt2core.spec.errors import Cancelled, ConfigError, Violated
from gpt2core.taskbench import patterns
from gpt2core.taskbench.bench import Streams, TaskBench
from gpt2core.taskbench.granularity import COMPARED, KERNELS, MetgConfig, stream_bytes
from gpt2core.taskbench.kernels import TIMESTEP
from gpt2core.taskbench.metg import measure
from tests.support.dependencies import of_program
from tests.support.reachability import reachability

CORES = sorted(os.sched_getaffinity(0))
WIDTH, ITERATIONS = 6, 40
SMALL_CACHE_BYTES = 20 << 20  # streams of gigabytes would prove no more


def cores(threads: int) -> list[int]:
    return [CORES[i % len(CORES)] for i in range(threads)]


@pytest.fixture(autouse=True, scope="module")
def compiled() -> None:
    """Compile what these tests run before one of them makes the other process wait."""
    for scheduler in COMPARED:
        TaskBench("trivial", scheduler, WIDTH, cores(1)).run(1, ITERATIONS)


@pytest.mark.alone
@pytest.mark.parametrize("pattern", patterns.PATTERNS)
@pytest.mark.parametrize("scheduler", COMPARED)
def test_every_pattern_runs_and_validates(pattern: str, scheduler: str) -> None:
    for threads in (1, 2, 3):
        bench = TaskBench(pattern, scheduler, WIDTH, cores(threads))
        for grain in (1, 50):
            assert bench.run(grain, ITERATIONS) > 0


@pytest.mark.alone
@pytest.mark.parametrize("scheduler", COMPARED)
def test_the_memory_kernel_goes_over_each_threads_buffer(scheduler: str) -> None:
    streams = Streams(cores(2), buffer_bytes=100 * 512)
    bench = TaskBench("stencil_1d", scheduler, WIDTH, cores(2), streams)
    for runs in (1, 2, 3):
        bench.run(3, ITERATIONS)
        streams.check()
        iterations = runs * 3 * ITERATIONS * bench.timesteps * WIDTH
        assert streams.streamed[:, 0].sum() == iterations
        assert streams.buffer.sum() == 64 * iterations
    streams.buffer[1, 6399] -= 1
    with pytest.raises(Violated, match="1 numbers in memory"):
        streams.check()
    streams.buffer[1, 6399] += 1
    streams.due += 2
    with pytest.raises(Violated, match="2 numbers in memory"):
        streams.check()


def test_streams_are_larger_than_the_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    used = cores(2)
    assert stream_bytes(used) * 2 >= 8 * host.last_level_cache_bytes(used)
    monkeypatch.setattr(host, "last_level_cache_bytes", lambda _: SMALL_CACHE_BYTES)
    assert stream_bytes(used) * 2 == 8 * SMALL_CACHE_BYTES
    assert Streams(used).buffer.nbytes == 2 * (stream_bytes(used) // 512 * 512)


@pytest.mark.parametrize("pattern", patterns.PATTERNS)
def test_the_graph_orders_a_task_after_what_the_pattern_says(pattern: str) -> None:
    """The graph has a path from every task to all tasks that read its output."""
    bench = TaskBench(pattern, "task", WIDTH, cores(1))
    node = {task: number for number, task in enumerate(bench.graph.task)}
    reach = reachability(len(bench.graph), bench.graph.edges)
    edges = of_program(bench.program)
    for t in range(1, bench.timesteps):
        for point in range(WIDTH):
            for read in patterns.dependencies(pattern, WIDTH, t, point):
                before, after = (t - 1) * WIDTH + read, t * WIDTH + point
                assert (before, after) in edges
                assert reach[node[before]] >> node[after] & 1


def test_one_edge_less_is_caught() -> None:
    """The chain of no_comm without one edge: the task after the missing edge waits for nothing and runs too early."""
    bench = TaskBench("no_comm", "task", 1, cores(1))
    middle = bench.timesteps // 2 + 1
    assert (middle, middle + 1) in bench.graph.edges
    edges = tuple(e for e in bench.graph.edges if e != (middle, middle + 1))
    cut = dataclasses.replace(bench.graph, edges=tuple(sorted([*edges, (bench.graph.begin, middle + 1)])))
    costs = [100.0 if n == middle + 1 else 1.0 for n in range(len(bench.graph))]  # a released task runs first
    bench.prepared.flat, bench.prepared.flat_of = replay.flatten(cut, costs, "critical-path"), (0, bench.cost_s)
    with pytest.raises(Violated):
        bench.run(1, ITERATIONS)


def test_a_task_that_did_not_run_is_caught() -> None:
    bench = TaskBench("trivial", "fork-join", WIDTH, cores(1))
    bench.run(1, ITERATIONS)
    bench.memory.arrays["cells"][0, 5, TIMESTEP] -= 1
    with pytest.raises(Violated, match="1 tasks did not run"):
        bench.check(ITERATIONS)


@pytest.mark.alone
@pytest.mark.parametrize("kernel", [KERNELS[0], *(pytest.param(each, marks=pytest.mark.slow) for each in KERNELS[1:])])
def test_a_sweep_tells_its_points_and_ends_in_a_result(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "last_level_cache_bytes", lambda _: SMALL_CACHE_BYTES)
    config = MetgConfig(pattern=("fft", "tree"), width=4, kernel=kernel, repetitions=2, max_grain=64, point_s=1e-4)
    events: list[dict[str, Any]] = []
    found = measure(config, events.append, threading.Event())
    assert [e["done"] for e in events if e["event"] == "sweep"] == list(range(8))
    assert len(found["sweeps"]) == 8
    assert {(row["pattern"], row["scheduler"]) for row in found["metg"]} == {
        (pattern, scheduler) for pattern in config.pattern for scheduler in config.scheduler
    }
    for sweep in found["sweeps"]:
        assert [p["grain"] for p in sweep["points"]] == config.grains()[: len(sweep["points"])]
        assert all(p["tasks"] % (4 * patterns.timesteps(sweep["pattern"], 4)) == 0 for p in sweep["points"])


def test_a_sweep_can_be_stopped() -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(Cancelled):
        measure(MetgConfig(width=2, max_grain=4, point_s=1e-4), lambda _: None, stop)


def test_more_threads_than_cores_have_to_be_asked_for() -> None:
    with pytest.raises(ConfigError, match="threads"):
        measure(MetgConfig(threads=len(CORES) + 1), lambda _: None, threading.Event())
