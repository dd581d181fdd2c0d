"""OpenMP runtimes: why they are refused, and how runs under them are stopped, watched and measured."""

from __future__ import annotations

import ctypes
import dataclasses
import math
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpt2core.node import openmp
from gpt2core.run import train
from gpt2core.schedulers.openmp import runtime
from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import Cancelled, ConfigError, CoreError, Stalled
from gpt2core.spec.fields import SYNCS
from gpt2core.spec.models import model_from
from gpt2core.spec.result import ThreadStat
from tests.support.apart import Apart, processes
from tests.support.present import present

HERE = list(openmp.find())
CORES = sorted(os.sched_getaffinity(0))[:2]
SMALL = TrainConfig(model=model_from("tiny"), batch=2, seq=16, steps=6, warmup=2, token_slice=8, data="synthetic",
                    threads=len(CORES), scheduler="omp-task")  # fmt: skip
VARIANTS = [("omp-for", "step"), *(("omp-task", sync) for sync in SYNCS)]

# libiomp5 comes with MKL's wheel, the others from Debian. CI installs all three, and fails if a test is skipped.
pytestmark = pytest.mark.skipif(not HERE, reason="no OpenMP runtime on this node")
each_runtime = pytest.mark.parametrize(
    "name", [*HERE[:1], *(pytest.param(name, marks=pytest.mark.slow) for name in HERE[1:])]
)


@pytest.fixture(scope="module")
def apart() -> Iterator[Apart]:
    with processes() as call:
        yield call


def failure(config: TrainConfig, emit: Any = lambda _: None, stop: Any = None) -> tuple[type, str]:
    """The error with which a run ends."""
    try:
        train.train(config, emit, stop)
    except CoreError as error:
        return type(error), str(error)
    raise AssertionError("the run succeeded")


def refusals(library: str, wanted: str) -> tuple[list[str], list[str]]:
    """The error of a run with a runtime beside another loaded one, and the names of the run's events."""
    ctypes.CDLL(library)
    events: list[str] = []
    kind, why = failure(dataclasses.replace(SMALL, runtime=wanted), lambda event: events.append(event["event"]))
    return [kind.__name__, why], events


@pytest.mark.skipif(len(HERE) < 2, reason="one runtime only on this node")
def test_no_second_runtime_is_loaded_into_a_process(apart: Apart) -> None:
    first, second = (str(openmp.choose(name).path) for name in HERE[:2])
    (kind, why), events = apart("second", refusals, second, first)
    assert kind == "MachineError"
    assert second in why
    assert "two OpenMP runtimes" in why
    assert events == []  # before anything is compiled or allocated


def twice(name: str) -> str:
    runtime.load(name, CORES)
    assert runtime.load("auto", CORES).file.name == name
    try:
        runtime.load(name, [*CORES, CORES[0]])
    except CoreError as error:
        return str(error)
    return ""


@each_runtime
def test_a_runtime_serves_one_team(name: str, apart: Apart) -> None:
    assert f"{name} binds its threads to the cores {CORES} in this process" in apart((name, "one team"), twice, name)


def test_a_runtime_that_is_not_here_or_not_usable_is_refused_before_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "there is no such file" in failure(dataclasses.replace(SMALL, runtime=str(tmp_path / "libomp.so")))[1]
    old = tmp_path / "libgomp.so.1"
    content = openmp.choose(HERE[0]).path.read_bytes()
    old.write_bytes(content.replace(b"\0GOMP_taskwait_depend\0", b"\0GOMP_taskwait_depens\0"))
    assert "has no GOMP_taskwait_depend" in failure(dataclasses.replace(SMALL, runtime=str(old)))[1]
    monkeypatch.setattr(openmp, "FILES", {**openmp.FILES, "libiomp5": ("libiomp-none.so",)})
    kind, why = failure(dataclasses.replace(SMALL, runtime="libiomp5"))
    assert kind.__name__ == "MachineError"
    assert "this node does not have it" in why
    monkeypatch.setattr(openmp, "_folders", lambda: [tmp_path])
    assert "has no GOMP_taskwait_depend" in failure(dataclasses.replace(SMALL, runtime="libgomp"))[1]
    assert "it has none" in failure(dataclasses.replace(SMALL, runtime="auto"))[1]


@pytest.mark.parametrize("wanted", ["openmp", "", None, 3, "/lib\0"])
def test_a_runtime_is_a_known_name_or_a_path(wanted: object) -> None:
    with pytest.raises(ConfigError, match="runtime"):
        TrainConfig(runtime=wanted)  # type: ignore[arg-type]


def bits(config: TrainConfig) -> tuple[list[float], str]:
    result = train.train(config)
    return list(result.losses), present(result.weights_sha256)


@each_runtime
def test_threads_of_ops_by_pattern_change_no_bit(name: str, apart: Apart) -> None:
    config = dataclasses.replace(SMALL, batch_slice=1, fusion="rows")
    patterns = dataclasses.replace(config, scheduler="omp-for", runtime=name, op_threads={"qkv[1]": 1, "l*": 1})
    assert apart(name, bits, patterns) == bits(dataclasses.replace(config, scheduler="serial", threads=1))


def stopped(config: TrainConfig) -> tuple[type, str]:
    """The error of a long run that is stopped after its first timed step."""
    stop = threading.Event()

    def emit(event: dict[str, Any]) -> None:
        if event["event"] == "step" and event["step"] > 2:
            stop.set()

    return failure(dataclasses.replace(config, steps=100_000), emit, stop)


@each_runtime
@pytest.mark.parametrize(("scheduler", "sync"), VARIANTS)
def test_a_run_can_be_cancelled(name: str, scheduler: str, sync: str, apart: Apart) -> None:
    config = dataclasses.replace(SMALL, runtime=name, scheduler=scheduler, sync=sync)
    kind, _ = apart(name, stopped, config)
    assert kind is Cancelled


def stalled(config: TrainConfig) -> tuple[type, str]:
    """The error of a run whose threads never return from a barrier: it is replaced by pause(2)."""
    os.environ["TASKLOOM_STALL_S"] = "0.5"
    address = runtime.load(config.runtime, CORES).address
    pause = present(ctypes.cast(ctypes.CDLL(None).pause, ctypes.c_void_p).value)
    address[openmp.ENTRY_POINTS.index("GOMP_barrier")] = pause
    return failure(config)


@each_runtime
@pytest.mark.parametrize("scheduler", ["omp-for", "omp-task"])
def test_a_stall_is_named_and_the_process_can_end(name: str, scheduler: str) -> None:
    config = dataclasses.replace(SMALL, runtime=name, scheduler=scheduler)
    with processes() as call:
        kind, why = call("stall", stalled, config)
    assert kind is Stalled
    assert "no task has ended for 0.5 s" in why


def measured(config: TrainConfig) -> tuple[list[ThreadStat], list[float], list[Any], dict[str, Any]]:
    result = train.train(config)
    return list(result.threads), list(result.step_s[2:]), list(result.ops), dict(result.environment["scheduler"])


def measured_with_late_returns(config: TrainConfig) -> list[ThreadStat]:
    """The threads of a run whose creator returns 20 ms late from waiting for dependences."""
    address = runtime.load(config.runtime, CORES).address
    at, kind = openmp.ENTRY_POINTS.index("GOMP_taskwait_depend"), ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    before = int(address[at])
    real = kind(before)

    def late(clause: int) -> None:
        real(clause)
        time.sleep(0.02)

    called = kind(late)
    address[at] = present(ctypes.cast(called, ctypes.c_void_p).value)
    try:
        return measured(config)[0]
    finally:
        address[at] = before  # other tests use this process too


def test_waiting_after_the_last_step_does_not_count(apart: Apart) -> None:
    config = dataclasses.replace(SMALL, runtime="libgomp", scheduler="omp-task", sync="none")
    creator, _ = apart("libgomp", measured_with_late_returns, config)
    assert creator.scheduling_s is not None
    assert creator.scheduling_s >= 0
    assert creator.waiting_s >= 0.02  # in the other steps


@each_runtime
@pytest.mark.parametrize(("scheduler", "sync"), VARIANTS)
def test_threads_ops_and_runtime_are_recorded(name: str, scheduler: str, sync: str, apart: Apart) -> None:
    config = dataclasses.replace(SMALL, runtime=name, scheduler=scheduler, sync=sync)
    threads, step_s, ops, library = apart(name, measured, config)
    elapsed_s = math.fsum(step_s)
    assert [thread.observed_cores for thread in threads] == [(core,) for core in CORES]
    assert sum(op.time_s for op in ops) == pytest.approx(sum(t.useful_s for t in threads), rel=1e-9)
    for thread in threads:
        total_s = thread.useful_s + (thread.scheduling_s or 0.0) + thread.waiting_s + thread.idle_s
        assert total_s == pytest.approx(elapsed_s, rel=1e-12)
        assert thread.waiting_s == thread.barrier_s + thread.starvation_s
        assert min(thread.barrier_s, thread.starvation_s) >= 0
        looks_alone = scheduler == "omp-task" and thread.thread > 0
        assert (thread.scheduling_s is None) == looks_alone
        assert looks_alone or thread.scheduling_s >= 0
    if scheduler == "omp-task":
        creator, *others = threads
        assert (creator.barrier_s > 0) == (sync != "none")  # it waits in taskwait, or at the gate
        assert all(thread.barrier_s == 0 and thread.starvation_s > 0 for thread in others)
    assert library["runtime"] == name
    assert library["path"] == str(openmp.choose(name).path)
    assert library["settings"]["OMP_PLACES"] == ",".join(f"{{{core}}}" for core in CORES)
    assert {"KMP_BLOCKTIME", "GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} <= library["settings"].keys()
