"""Measurement of unknown peaks before the first claim, so that results contain them."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

from gpt2core.node import load, peaks
from gpt2core.process.child import Child, Exited, Told, Waiting
from gpt2core.process.temporary import TemporaryFolder
from gpt2core.spec.settings import make_cache_folder
from taskloom.worker import orphan
from taskloom.worker.agent import Agent, DrainAsked
from taskloom.worker.report import Report
from taskloom.worker.settings import Settings
from taskloom.worker.standby import Command


def measure_once(
    settings: Settings, agent: Agent, inbox: SimpleQueue[Any], report: Report, command: Command = peaks.command
) -> None:
    """Measure the peaks of the worker's cores, unless they are known, `--peaks never` is given, or other processes keep
    the node busy.

    If the measurement fails, the worker executes runs nevertheless; their results contain null peaks.
    """
    if settings.peaks == "never" or peaks.read(settings.cores) is not None:
        return
    with _alone():
        if peaks.read(settings.cores) is not None:  # another worker of this node has measured them
            return
        busy = load.Others().busy_cores()
        if busy > load.MOST_BUSY_CORES and settings.peaks != "forced":
            text = (
                f"peaks not measured: other processes keep {busy:.1f} cores busy; measure them later with "
                "`taskloom doctor --peaks`"
            )
            report.say("peaks-skipped", text, busy_cores=busy)
            return
        report.say("peaks", "measuring the node's peaks once, before the first claim; `--peaks never` skips this")
        try:
            code = _run(settings, agent, inbox, report, command)
        except OSError as error:
            report.say("peaks-failed", f"peaks not measured: {error}")
            return
        if code == 0:
            report.say("peaks-measured", "peaks measured and stored")
        else:
            report.say("peaks-failed", f"peaks not measured: the measurement ended with exit status {code}")


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Hold a lock that one worker of the node can hold at a time."""
    with (make_cache_folder() / "peaks.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run(settings: Settings, agent: Agent, inbox: SimpleQueue[Any], report: Report, command: Command) -> int:
    """Run the measurement and return its exit status. A worker that drains kills it."""
    with TemporaryFolder() as folder:
        child = Child(Waiting(command(folder / "peaks.json"), settings.cores), {}, inbox)
        orphan.remember(settings.spool, child.pid)
        if agent.draining:
            child.kill()
        try:
            while True:
                match inbox.get():
                    case DrainAsked():
                        agent.drain()
                        child.kill()
                    case Told(event) if event["event"] == "peak":
                        text = f"measuring peaks, {event['done'] + 1} of {event['total']}: threads = {event['threads']}"
                        report.say("peak", text, threads=event["threads"])
                    case Exited(code):
                        return code
        finally:
            orphan.forget(settings.spool)
