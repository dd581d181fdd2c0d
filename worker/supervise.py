"""One trainer from start to end: spawn, stream, cancel, reap."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from gpt2core.node import host
from gpt2core.process.child import GRACE_S, Child, Exited, Printed, Reported, Waiting
from gpt2core.process.launch import EXIT_CANCELLED
from taskloom.worker.agent import Agent, DrainAsked, StopAsked, StopReason

OUTPUT_LINES = 40  # last lines that the report of a failure contains
OWN_SIGNAL_S = 5.0  # longest time between Slurm's signals to the trainer and to this worker


@dataclass(frozen=True)
class Ending:
    """End of a trainer. code: exit status, or the negative signal number."""

    code: int
    signal: str | None
    reason: StopReason | None  # why the worker stopped it, if it did
    result: Mapping[str, Any] | None  # its `result` event
    error: Mapping[str, Any] | None  # its `error` event
    output: tuple[str, ...]
    warnings: tuple[str, ...]
    oom_killed: bool
    at_s: float  # when it was noticed, on the monotonic clock


class Supervisor:
    """Runs one trainer and processes the inbox meanwhile."""

    def __init__(self, agent: Agent, inbox: SimpleQueue[Any], grace_s: float = GRACE_S) -> None:
        self._agent, self._inbox, self._grace_s = agent, inbox, grace_s
        self._child: Child | None = None

    def kill(self) -> None:
        """Kill the trainer, if there is one, without waiting."""
        if self._child is not None:
            self._child.kill()

    def run(
        self,
        trainer: Waiting,
        settings: Mapping[str, Any],
        deadline_s: float,
        started: Callable[[int], None],
        entered_stage: Callable[[], None],
        printed: Callable[[str], None],
    ) -> Ending:
        """Give a trainer its settings; return its ending once it and all its children have ended.

        deadline_s: seconds from now until the trainer is stopped.
        """
        oom_kills = host.cgroup_oom_kills()
        child = self._child = Child(trainer, settings, self._inbox)
        started(child.pid)
        deadline = time.monotonic() + deadline_s
        kill_at: float | None = None
        output: deque[str] = deque(maxlen=OUTPUT_LINES)
        warnings: list[str] = []
        events: dict[str, Mapping[str, Any]] = {}
        while True:
            until = deadline if kill_at is None else kill_at
            try:
                message = self._inbox.get(timeout=max(0.0, until - time.monotonic()))
            except Empty:
                if kill_at is not None:
                    child.kill()
                    kill_at = time.monotonic() + self._grace_s
                elif self._agent.ask_to_stop(StopReason.DEADLINE):
                    child.terminate()
                    kill_at = time.monotonic() + self._grace_s
                continue
            reason: StopReason | None = None
            match message:
                case Reported(event):
                    kind = str(event["event"])
                    if kind == "warning":
                        warnings.append(str(event.get("message", "")))
                    elif kind in ("result", "error"):
                        events.setdefault(kind, event)  # the first of several ranks' errors is the cause of the others
                    if self._agent.note(event):
                        entered_stage()
                case Printed(text):
                    output.append(text)
                    printed(text)
                case StopAsked(attempt_id, why) if self._agent.lease and attempt_id == self._agent.lease.attempt_id:
                    reason = why
                case DrainAsked():
                    reason = self._agent.drain()
                case Exited(code):
                    self._child = None
                    if code == EXIT_CANCELLED:
                        self._hear_who_stopped_it()
                    return Ending(
                        code=code,
                        signal=message.signal_name,
                        reason=self._agent.stop_reason,
                        result=events.get("result"),
                        error=events.get("error"),
                        output=tuple(output),
                        warnings=tuple(warnings),
                        oom_killed=oom_kills is not None and (host.cgroup_oom_kills() or 0) > oom_kills,
                        at_s=time.monotonic(),
                    )
            if reason is None:
                continue
            first = self._agent.ask_to_stop(reason)
            if reason is StopReason.LEASE_LOST:
                child.kill()
            elif first:
                child.terminate()
                kill_at = time.monotonic() + self._grace_s

    def _hear_who_stopped_it(self) -> None:
        """Wait for this worker's own SIGTERM. Slurm signals every process of a job, and the trainer may end first."""
        until = time.monotonic() + OWN_SIGNAL_S
        while self._agent.stop_reason is None:
            try:
                message = self._inbox.get(timeout=max(0.0, until - time.monotonic()))
            except Empty:
                return
            if isinstance(message, DrainAsked):
                reason = self._agent.drain()
                if reason is None:
                    return
                self._agent.ask_to_stop(reason)
