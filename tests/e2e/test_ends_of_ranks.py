"""Ranks that start wrongly, are killed or stopped: errors in a sentence, and no orphan."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from gpt2core.process import launch
from gpt2core.process.ranks import launcher
from tests.support.patience import until
from tests.support.ranked import COMPILES_S, HYBRID, KILLED, OPEN_MPI, RANK, SMALL, TENSOR, WITHIN_S

pytestmark = pytest.mark.timeout(COMPILES_S + 100)


def test_a_trainer_that_is_no_rank_refuses(tmp_path):
    done = subprocess.run(
        launch.command(tmp_path / "result.json"), input=json.dumps(dataclasses.replace(SMALL, ranks=2).to_dict()),
        capture_output=True, text=True, check=False, timeout=120, env=launch.environment(),
    )  # fmt: skip
    event = launch.parse_event(done.stdout.splitlines()[-1])
    assert event
    assert (event["field"], event["accepted"]) == ("ranks", "the number of ranks that were started (1)")


def test_processes_that_mpi_does_not_connect_are_refused(tmp_path):
    alone = launch.command(tmp_path / "result.json")
    done = subprocess.run(
        [*alone, "--ranks", "2"], input=json.dumps(dataclasses.replace(SMALL, ranks=2).to_dict()), capture_output=True,
        text=True, check=False, timeout=120, env=launch.environment(),
    )  # fmt: skip
    event = launch.parse_event(done.stdout.splitlines()[-1])
    assert event
    assert event["detail"].startswith("the launcher started 2 processes, but MPI connects 1: ")


STARTER = """
import sys
from pathlib import Path
from queue import SimpleQueue

from gpt2core.process import launch
from gpt2core.process.child import Child, Exited, Reported, Waiting

inbox = SimpleQueue()
child = Child(Waiting(launch.command(Path(sys.argv[1]), ranks=2)), eval(sys.argv[2]), inbox)
while not isinstance(message := inbox.get(), Exited):
    if isinstance(message, Reported):
        print("reported", message.event["event"], flush=True)
    else:
        print("printed", message.text, flush=True)
print("exited", message.code, flush=True)
"""
LONG = {
    each.parallel: dataclasses.replace(each, ranks=2, steps=100_000, lr=0.0, scheduler="task")
    for each in (SMALL, TENSOR, HYBRID)
}


def test_a_library_that_cannot_be_loaded_is_named_in_a_sentence(tmp_path):
    done = subprocess.run(
        [*launch.command(tmp_path / "result.json"), "--ranks", "2"], stdin=subprocess.DEVNULL, capture_output=True,
        text=True, check=False, timeout=120, env=launch.environment() | {"MPI4PY_LIBMPI": "/no/such.so"},
    )  # fmt: skip
    event = launch.parse_event(done.stdout.splitlines()[-1])
    assert event
    assert event["detail"].startswith("mpi4py cannot load an MPI library: ")
    assert "Traceback" not in done.stderr


UNCONNECTED = """
import os
import sys
import time

from gpt2core import __main__ as program
from gpt2core.process import trainer
from gpt2core.ranks import world

program.START_S = 5.0
if "1" in map(os.environ.get, {ranks}):
    world._connect = lambda: time.sleep(1000)
sys.argv[1:] = ["--ranks", "2"]
trainer.leave(program.main())
"""


def test_a_rank_that_does_not_connect_leaves_no_other_waiting():
    done = subprocess.run(
        [*launcher(2), sys.executable, "-c", UNCONNECTED.format(ranks=RANK)], input="{}", capture_output=True,
        text=True, check=False, timeout=WITHIN_S, env=launch.environment(),
    )  # fmt: skip
    events = [event for line in done.stdout.splitlines() if (event := launch.parse_event(line))]
    late = "the 2 ranks did not connect within 5 s: one failed, or cannot be reached"
    assert {event["detail"] for event in events} == {late}
    assert done.returncode


@pytest.fixture(params=["data", *(pytest.param(each, marks=pytest.mark.slow) for each in ("tensor", "hybrid"))])
def started(tmp_path, request):
    """A process that started two ranks, which have ended a step, and the processes below it. Its parameter is what the
    ranks divide."""
    command = [sys.executable, "-c", STARTER, str(tmp_path / "result.json"), str(LONG[request.param].to_dict())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stdout is not None
        lines = list(iter(process.stdout.readline, "reported step\n"))
        below = psutil.Process(process.pid).children(recursive=True)
        assert len(ranks_of(below)) == 2, lines
        yield process, below
        process.kill()
        for each in below:
            if each.is_running():
                each.kill()


# The guard kills ranks, whatever they divide.
kills_all = pytest.mark.parametrize("started", ["data"], indirect=True)


def ranks_of(below: list[psutil.Process]) -> list[psutil.Process]:
    return [each for each in below if each.cmdline()[1:4] == ["-P", "-m", "gpt2core"]]


@pytest.mark.parametrize("number", [0, 1])
def test_a_killed_rank_ends_the_run_with_its_output(started, number):
    process, below = started
    maps = Path(f"/proc/{ranks_of(below)[number].pid}/maps").read_text()
    shared = [line for line in maps.splitlines() if "/dev/shm/mpich_" in line]
    assert shared or OPEN_MPI
    assert all(line.endswith(" (deleted)") for line in shared), "a killed rank would leave its shared memory"
    ranks_of(below)[number].kill()
    assert not psutil.wait_procs(below, timeout=WITHIN_S)[1]
    lines = process.communicate(timeout=WITHIN_S)[0].splitlines()
    assert lines[-1].startswith("exited ")
    assert lines[-1] != "exited 0"
    printed = [line for line in lines if line.startswith("printed ")]
    # Another rank may notice it before the launcher does.
    assert any(KILLED in line or "Fatal error in internal_" in line for line in printed), lines


@kills_all
@pytest.mark.parametrize("who", ["starter", "mpiexec", *([] if OPEN_MPI else ["hydra_pmi_proxy"])])
def test_no_rank_outlives_the_starter_or_the_launcher(started, who):
    process, below = started
    named = {Path(each.cmdline()[0]).name: each for each in below}
    name = "prterun" if OPEN_MPI and who == "mpiexec" else who  # what it becomes
    (process if who == "starter" else named[name]).kill()
    assert not psutil.wait_procs(below, timeout=WITHIN_S)[1]


@pytest.mark.parametrize("paused", [False, True])
def test_a_stop_of_rank_0_stops_all_after_the_same_step(started, paused):
    """Also after the other one was suspended for a while."""
    process, below = started
    first, second = in_order(below)
    if paused:
        suspend(second)
        second.resume()
    first.send_signal(signal.SIGTERM)
    lines = process.communicate(timeout=WITHIN_S)[0].splitlines()
    assert [line for line in lines if not line.startswith("printed ")][-2:] == ["reported error", "exited 130"]
    assert not psutil.wait_procs(below, timeout=WITHIN_S)[1]


@pytest.fixture
def stalls_soon(monkeypatch):
    monkeypatch.setenv("TASKLOOM_STALL_S", "5")


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1])
def test_a_suspended_rank_ends_the_run_as_stalled(stalls_soon, started, number):  # noqa: ARG001
    process, below = started
    suspend(in_order(below)[number])
    lines = process.communicate(timeout=WITHIN_S)[0].splitlines()
    assert "reported error" in lines
    assert lines[-1] != "exited 0"
    assert not psutil.wait_procs(below, timeout=WITHIN_S)[1]


@kills_all
def test_no_rank_outlives_a_suspended_launcher_whose_starter_is_killed(started):
    """The launcher itself ends when it goes on."""
    process, below = started
    ranks, name = ranks_of(below), "prterun" if OPEN_MPI else "mpiexec"
    suspended = next(each for each in below if Path(each.cmdline()[0]).name == name)
    suspend(suspended)
    process.kill()
    assert not psutil.wait_procs(ranks, timeout=WITHIN_S)[1]
    if suspended.is_running():
        suspended.resume()
    assert not psutil.wait_procs(below, timeout=WITHIN_S)[1]


def in_order(below: list[psutil.Process]) -> list[psutil.Process]:
    """Rank 0 and rank 1."""
    return sorted(ranks_of(below), key=lambda each: "1" in map(each.environ().get, RANK))


def suspend(process: psutil.Process) -> None:
    process.suspend()
    until(lambda: process.status() == psutil.STATUS_STOPPED, "the process is suspended")
