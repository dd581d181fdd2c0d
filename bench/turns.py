"""Processes that take turns on the same cores: while one runs, the other is stopped.

The host's speed and load change within seconds, so processes that run after each other have different conditions. Turns
of tenths of a second have the same. A stopped process uses no core, whatever its threads were waiting for. A turn ends
with a report (an event that the process writes), so nothing is measured from outside: the process's own record shows
which steps ran in which turn.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpt2core.process import launch

Event = dict[str, Any]


@dataclass(frozen=True)
class Turn:
    """The time from one report of a process to a later one. pause_s: how long it was stopped at the beginning."""

    since: Event
    until: Event
    pause_s: float

    def whole(self, step_s: Sequence[float]) -> list[float]:
        """Steps of a trainer that ran in this turn, in seconds, without the one that was stopped."""
        mine = step_s[self.since["step"] : self.until["step"]]
        return [each for each in mine if not self.pause_s or each < self.pause_s]


class Runner:
    """A process that runs in turns and writes one JSON event a line. Use it in a with statement, which ends it."""

    def __init__(self, command: Sequence[str], settings: Mapping[str, Any], tree: Path, report: str) -> None:
        """Start the process on a tree's modules. report: the event that ends a turn.

        Its bytecode is kept: without it a start takes a third longer, and only one of two trees may have it.
        """
        self.begun_s, self.report, self.stopped_s = time.monotonic(), report, 0.0
        self.command, self.error = command, "without an error event"
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**launch.environment(), "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": ""},
        )  # fmt: skip
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(settings))
        self.process.stdin.close()

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdout is not None
        self.process.kill()  # also ends a stopped process
        self.process.wait()
        self.process.stdout.close()

    def next_report(self) -> Event | None:
        """Wait for the next report. None: the process has ended."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event = launch.parse_event(line)
            if event is not None and event["event"] == self.report:
                return event
            if event is not None and event["event"] == "error":
                self.error = event["detail"]
        return None

    def turn(self, since: Event, least_s: float) -> Turn | None:
        """Run until the first report after least_s. None: the process ended before."""
        pause_s, begun_s = self.resume(), time.monotonic()
        while (event := self.next_report()) is not None:
            if time.monotonic() - begun_s >= least_s:
                return Turn(since, event, pause_s)
        return None

    def stop(self) -> None:
        """Return once all threads of the process are stopped."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self.stopped_s = time.monotonic()

    def resume(self) -> float:
        """Let the process run; return for how long it was stopped, 0 if it was not."""
        if not self.stopped_s:
            return 0.0
        pause_s, self.stopped_s = time.monotonic() - self.stopped_s, 0.0
        self.process.send_signal(signal.SIGCONT)
        return pause_s

    def finish(self) -> None:
        """Let the process run to its end. Raises SystemExit if it fails."""
        self.resume()
        while self.next_report() is not None:
            pass
        if self.process.wait():
            raise SystemExit(f"{' '.join(self.command)} ended with {self.process.returncode}: {self.error}")


def alternate(
    runners: Mapping[str, Runner], last: Mapping[str, Event], least_s: float, order: random.Random
) -> list[dict[str, Turn]]:
    """Return pairs of turns, each in random order, until a process ends. Then the others run to their ends.

    runners: stopped at the reports `last`.
    """
    found: list[dict[str, Turn]] = []
    last, running = dict(last), ""
    while True:
        pair: dict[str, Turn] = {}
        for name in order.sample(list(runners), len(runners)):
            if running not in ("", name):
                runners[running].stop()
            running, turn = name, runners[name].turn(last[name], least_s)
            if turn is None:
                for runner in runners.values():
                    runner.finish()
                return found
            pair[name], last[name] = turn, turn.until
        found.append(pair)
