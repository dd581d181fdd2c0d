"""Runs a launcher, and asks it to end as soon as this process or its starter has ended.

    python -m gpt2core.process.guard COMMAND ARGUMENT...

The launchers need it that close the lifeline, and those whose ranks outlive a launcher that is killed, such as srun's.
So the launcher has a session of its own, which SIGKILL to this process's group does not reach. A second process watches
both. Standard output closes when both have ended.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from types import FrameType

from gpt2core.process.launch import LIFELINE

GRACE_S = 2.0  # for a launcher to end its ranks and remove its files


def main() -> int:
    """Run the launcher and return its exit code. SIGTERM and SIGINT are passed on to it."""
    lifeline = os.environ.pop(LIFELINE, None)
    alive, held = os.pipe()  # closes when this process ends
    started: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, _: FrameType | None) -> None:
        for launcher in started:
            launcher.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, pass_on)
    with subprocess.Popen(sys.argv[1:], start_new_session=True) as launcher:
        started.append(launcher)
        launched = os.pidfd_open(launcher.pid)
        if os.fork() == 0:
            try:
                os.setsid()
                os.close(held)
                started.clear()  # the other process passes signals on
                _end_after([alive, *([] if lifeline is None else [int(lifeline)])], launched, launcher.pid)
            finally:
                os._exit(0)
        code = launcher.wait()
    return code if code >= 0 else 128 - code


def _end_after(owners: list[int], launched: int, pid: int) -> None:
    """End the launcher, process `pid`, once one of the owners' pipes closes, unless it ends itself."""
    select.select([*owners, launched], [], [])
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(launched, signal.SIGTERM)
        if not select.select([launched], [], [], GRACE_S)[0]:
            os.killpg(pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
