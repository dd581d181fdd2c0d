"""A launcher that is started through process/guard.py is asked to end, whatever ends the processes above it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from queue import SimpleQueue
from typing import Any

import psutil
import pytest

from gpt2core.process.child import Child, Exited, Printed, Waiting
from gpt2core.process.ranks import GUARD
from tests.support.processes import gone

# A launcher that says its number, its input and which signal ends it.
LAUNCHER = """
import os, signal, sys, time
def end(number, frame):
    print("asked", flush=True)
    if sys.argv[1] == "obeys":
        os._exit(3)
signal.signal(signal.SIGTERM, end)
if sys.argv[1] == "leaves" and not os.fork():  # a rank, which holds standard output
    os.setpgid(0, 0)
    time.sleep(100)
print(os.getpid(), sys.stdin.read(), "TASKLOOM_LIFELINE_FD" in os.environ, flush=True)
if sys.argv[1] == "ends":
    sys.exit(7)
if sys.argv[1] in ("dies", "leaves"):
    os.kill(os.getpid(), signal.SIGKILL)
while True:
    time.sleep(60)
"""


def started(how: str) -> tuple[Child, int, SimpleQueue[Any]]:
    """The guard of a launcher that behaves so, and the launcher's number."""
    inbox: SimpleQueue[Any] = SimpleQueue()
    child = Child(Waiting([*GUARD, sys.executable, "-c", LAUNCHER, how]), {"x": 1}, inbox)
    number, *rest = inbox.get(timeout=60).text.split(maxsplit=1)
    assert rest == ['{"x": 1} False']
    return child, int(number), inbox


KILLED = 128 + signal.SIGKILL


@pytest.mark.parametrize(("how", "code"), [("ends", 7), ("dies", KILLED), ("leaves", KILLED)])
def test_the_launchers_exit_code_is_the_guards(how: str, code: int) -> None:
    _, _, inbox = started(how)
    assert inbox.get(timeout=60) == Exited(code)


def test_a_stop_is_passed_on_once() -> None:
    child, _, inbox = started("obeys")
    child.terminate()
    assert [inbox.get(timeout=60) for _ in range(2)] == [Printed("asked"), Exited(3)]


@pytest.mark.parametrize("how", ["obeys", "refuses"])
def test_a_killed_guard_has_its_launcher_asked_and_then_killed(how: str) -> None:
    child, number, inbox = started(how)
    launcher = psutil.Process(number)
    child.kill()
    # The guard's end is reported after the launcher's.
    assert [inbox.get(timeout=60) for _ in range(2)] == [Printed("asked"), Exited(-signal.SIGKILL)]
    gone(launcher)


STARTER = """
import json, sys
from queue import SimpleQueue

from gpt2core.process.child import Child, Waiting

inbox = SimpleQueue()
child = Child(Waiting(json.loads(sys.argv[1])), {}, inbox)
print(inbox.get().text, flush=True)
inbox.get()
"""


def test_a_launcher_ends_with_the_starter_of_its_guard() -> None:
    command = json.dumps([*GUARD, sys.executable, "-c", LAUNCHER, "obeys"])
    with subprocess.Popen([sys.executable, "-c", STARTER, command], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        launcher = psutil.Process(int(starter.stdout.readline().split()[0]))
        guard = launcher.parent()
        assert guard is not None
        starter.kill()
        gone(launcher)
        gone(guard)


RANK = """
import os, sys, threading
from gpt2core.process import trainer
def refused(pid):
    raise OSError(38, "Function not implemented")
if sys.argv[1] == "an old kernel":
    os.pidfd_open = refused
if sys.argv[1] == "an old Python":
    del os.pidfd_open
os.setpgid(0, 0)
trainer.end_with_launcher()
print(os.getpid(), flush=True)
threading.Event().wait()
"""
RANKS_LAUNCHER = "import subprocess, sys; subprocess.run([sys.executable, '-c', *sys.argv[1:]])"


@pytest.mark.parametrize("where", ["this machine", "an old kernel", "an old Python"])
def test_a_rank_ends_with_its_launcher(where: str) -> None:
    command = [sys.executable, "-c", RANKS_LAUNCHER, RANK, where]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        rank = psutil.Process(int(launcher.stdout.readline()))
        launcher.kill()
        gone(rank)
