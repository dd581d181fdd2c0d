"""Measurement of a node's unknown peaks, so that later results contain them. It never runs beside a run of its worker.

`--peaks once` and `forced` measure before the first claim, `idle` as soon as no run has come for IDLE_S; a claimed run
then ends the measurement.
"""

from __future__ import annotations

import contextlib
from enum import StrEnum
from queue import SimpleQueue
from typing import Any

from gpt2core.node import cache, load, peaks
from gpt2core.process.child import Child, Exited, Reported, Waiting
from gpt2core.process.temporary import TemporaryFolder
from gpt2core.spec.locks import Taken
from gpt2core.spec.settings import make_cache_folder
from taskloom.worker import orphan
from taskloom.worker.report import Report
from taskloom.worker.settings import Settings
from taskloom.worker.standby import Command

IDLE_S = 20.0  # without a run, before a worker with --peaks idle measures


class Begun(StrEnum):
    """Outcome of an attempt to begin a measurement."""

    STARTED = "started"
    LOCKED = "locked"  # another worker of this node measures
    NOT_NEEDED = "not needed"
    BUSY = "busy"  # other processes keep the node busy
    FAILED = "failed"


class Measurement:
    """At most one measurement at a time, in a child process whose messages arrive in the worker's inbox.

    If it fails, the worker executes runs nevertheless; their results contain null peaks.
    """

    def __init__(
        self, settings: Settings, inbox: SimpleQueue[Any], report: Report, command: Command = peaks.command
    ) -> None:
        self._settings, self._inbox, self._report, self._command = settings, inbox, report, command
        self._child: Child | None = None
        self._held = contextlib.ExitStack()
        self._busy_reported = self._failed = False

    @property
    def running(self) -> bool:
        return self._child is not None

    def first(self) -> bool:
        """Whether peaks are to be measured before the first claim."""
        return self._settings.peaks in ("once", "forced") and self._unknown()

    def when_idle(self) -> bool:
        """Whether peaks are to be measured while there is no run."""
        return self._settings.peaks == "idle" and not (self.running or self._failed) and self._unknown()

    def begin(self) -> Begun:
        """Start a measurement, unless peaks are known or other processes keep the node busy."""
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(cache.locked(make_cache_folder() / "peaks", wait=False))
            except Taken:
                return Begun.LOCKED
            if not self._unknown():  # another worker of this node has measured them
                return Begun.NOT_NEEDED
            if self._settings.peaks != "forced" and self._is_busy():
                return Begun.BUSY
            self._report.say("peaks", "measuring the node's peaks once; `--peaks never` skips this")
            try:
                folder = held.enter_context(TemporaryFolder())
                waiting = Waiting(self._command(folder / "peaks.json"), self._settings.cores)
            except OSError as error:
                self._fail(str(error))
                return Begun.FAILED
            self._child = Child(waiting, {}, self._inbox)
            orphan.remember(self._settings.spool, self._child.pid)
            held.callback(orphan.forget, self._settings.spool)
            self._held = held.pop_all()
        return Begun.STARTED

    def note(self, message: object) -> bool:
        """Process a message of the measurement; return whether it has ended."""
        match message:
            case Reported(event) if event["event"] == "peak":
                text = f"measuring peaks, {event['done'] + 1} of {event['total']}: threads = {event['threads']}"
                self._report.say("peak", text, threads=event["threads"])
            case Exited(code) if self._child is not None:
                self._child = None
                self._held.close()
                if code == 0:
                    self._report.say("peaks-measured", "peaks measured and stored")
                else:
                    self._fail(f"the measurement ended with exit status {code}")
                return True
        return False

    def interrupt(self) -> None:
        """End the measurement, if one is running, and return once its process is gone. A later one may follow."""
        if self._child is None:
            return
        self._child.kill()
        others = []
        while not isinstance(message := self._inbox.get(), Exited):
            if not isinstance(message, Reported):
                others.append(message)
        self._child = None
        self._held.close()
        for message in others:
            self._inbox.put(message)
        self._report.say("peaks-interrupted", "peaks not measured: the measurement was interrupted")

    def _unknown(self) -> bool:
        return peaks.read(self._settings.cores) is None

    def _is_busy(self) -> bool:
        busy = load.Others().busy_cores()
        if busy <= load.MOST_BUSY_CORES:
            return False
        if not self._busy_reported:
            text = (
                f"peaks not measured: other processes keep {busy:.1f} cores busy; measure them later with "
                "`taskloom doctor --peaks`"
            )
            self._report.say("peaks-skipped", text, busy_cores=busy)
            self._busy_reported = True
        return True

    def _fail(self, reason: str) -> None:
        self._failed = True
        self._report.say("peaks-failed", f"peaks not measured: {reason}")
