"""Runs a launcher, and asks it to end as soon as this process or its starter has ended.

    python -m gpt2core.process.guard COMMAND ARGUMENT...

The launchers need it that close the lifeline, and those whose ranks outlive a launcher that is killed, such as srun's.
So a second process, in a session of its own that SIGKILL to this process's group does not reach, starts the launcher
and watches this process. Standard output closes when both have ended.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType

from gpt2core.process.launch import LIFELINE

EXIT_FAILED = 1
GRACE_S = 2.0  # for a launcher to end its ranks and remove its files


class Passing:
    """Passes SIGTERM and SIGINT on to a process, also those that came before it was known."""

    def __init__(self) -> None:
        self._to: int | None = None
        self._early: list[int] = []
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._pass_on)

    def to(self, pid: int) -> None:
        self._to = pid
        for number in self._early:
            self._pass_on(number, None)

    def _pass_on(self, number: int, _: FrameType | None) -> None:
        if self._to is None:
            self._early.append(number)
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._to, number)


def main() -> int:
    """Run the launcher and return its exit code. SIGTERM and SIGINT are passed on to it."""
    lifeline = os.environ.pop(LIFELINE, None)
    alive, held = os.pipe()  # closes when this process ends
    passing = Passing()
    watcher = os.fork()
    if watcher == 0:
        code = EXIT_FAILED
        try:
            os.setsid()  # before the launcher starts, so that whatever ends this group first, it has a watcher or none
            os.close(held)
            code = _watched(sys.argv[1:], [alive, *([] if lifeline is None else [int(lifeline)])], passing)
        except OSError as error:
            print(error, file=sys.stderr, flush=True)
        finally:
            os._exit(code)
    passing.to(watcher)
    _, status = os.waitpid(watcher, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _watched(command: list[str], owners: list[int], passing: Passing) -> int:
    """Run the launcher and return its exit code. It is asked to end once one of the owners' pipes closes. What it
    leaves in its session is killed: ranks may have groups of their own, and may not yet look after their launcher."""
    ended, end = os.pipe()  # closes when the launcher has ended
    with subprocess.Popen(command, start_new_session=True) as launcher:
        passing.to(launcher.pid)
        threading.Thread(target=_look, args=(launcher.pid, end), daemon=True).start()
        select.select([*owners, ended], [], [])
        if not select.select([ended], [], [], 0)[0]:
            os.kill(launcher.pid, signal.SIGTERM)
            select.select([ended], [], [], GRACE_S)
        _kill_session(launcher.pid)  # a number that nobody else gets before `wait`
        code = launcher.wait()
    return code if code >= 0 else 128 - code


def _look(launcher: int, end: int) -> None:
    """Close `end` once the launcher has ended; `wait` still finds it. (Not by a pidfd: Linux has them since 5.3.)"""
    with contextlib.suppress(ChildProcessError):  # `wait` was earlier
        os.waitid(os.P_PID, launcher, os.WEXITED | os.WNOWAIT)
    os.close(end)


def _kill_session(leader: int) -> None:
    """Kill what is left of a session, by the number of its first process."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            if os.getsid(number := int(process.name)) == leader:
                os.kill(number, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
