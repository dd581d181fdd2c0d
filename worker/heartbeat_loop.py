"""The heartbeat loop: renews one lease from its own thread and learns whether the run is still wanted."""

from __future__ import annotations

import threading
import time
from queue import Empty, SimpleQueue
from typing import Any

from taskloom.contract.attempts import OUTPUT_LINES, STEPS, Lease
from taskloom.contract.retry import Refused, RetryPolicy, Unreachable
from taskloom.worker.agent import Agent, StopAsked, StopReason
from taskloom.worker.client import ServerClient
from taskloom.worker.output import Output
from taskloom.worker.report import Report

LOST_STATUSES = (404, 409, 410)  # the attempt is gone, taken over, or at its end


OUTPUT_EVERY_S = 1.0  # minimum period of heartbeats that only carry lines or steps
LAST_OUTPUT_S = 5.0  # longest wait until the last lines are sent
NOW, SOON, END = "now", "soon", "end"  # nudges


class HeartbeatLoop:
    """Sends heartbeats from `start` until `stop`: at once, after each nudge, every lease.heartbeat_s seconds, and
    within OUTPUT_EVERY_S seconds of a new line."""

    def __init__(
        self, client: ServerClient, worker_id: str, lease: Lease, agent: Agent, inbox: SimpleQueue[Any], report: Report
    ) -> None:
        self._client, self._worker_id, self._lease = client, worker_id, lease
        self._agent, self._inbox, self._report = agent, inbox, report
        self._policy = RetryPolicy(most_s=lease.heartbeat_s)
        self._nudges: SimpleQueue[str] = SimpleQueue()
        self._output, self._steps = Output(), agent.steps
        self._stopped = False

    def start(self) -> None:
        threading.Thread(target=self._run, name=f"heartbeat-{self._lease.attempt_id}", daemon=True).start()

    def nudge(self) -> None:
        """Send a heartbeat now."""
        self._nudges.put(NOW)

    def printed(self, line: str) -> None:
        """Record a line that the trainer printed."""
        was_pending = self._output.pending
        self._output.add(line)
        if not was_pending:
            self._nudges.put(SOON)

    def send_last_lines(self) -> None:
        """Wait until the server has all output, for at most LAST_OUTPUT_S seconds. The result of a failure contains the
        last lines as well."""
        if self._output.pending:
            self.nudge()
            self._output.wait_until_sent(LAST_OUTPUT_S)

    def stop(self) -> None:
        """Stop without waiting for a heartbeat that is being sent; its answer is ignored."""
        self._stopped = True
        self._nudges.put(END)

    def _run(self) -> None:
        try:
            self._beat_until_stopped()
        finally:
            self._output.give_up()

    def _beat_until_stopped(self) -> None:
        failures = 0
        while not self._stopped:
            try:
                to_stop = self._beat()
            except Unreachable as error:
                failures += 1
                wait_s = self._failed(str(error), failures, error.retry_after_s)
            except Refused as error:
                failures, wait_s = failures + 1, self._lease.heartbeat_s
                if error.status in LOST_STATUSES:
                    self._ask(StopReason.LEASE_LOST)
                    return
                self._report.say("heartbeat-refused", f"heartbeat rejected: {error}")
            except Exception as error:  # a defect costs a heartbeat, not the lease
                failures += 1
                wait_s = self._failed(f"{type(error).__name__}: {error}", failures)
            else:
                failures, wait_s = 0, self._lease.heartbeat_s
                if self._output.pending:
                    wait_s = min(wait_s, OUTPUT_EVERY_S if self._output.pending < OUTPUT_LINES else 0.0)
                if self._steps.pending >= STEPS:
                    wait_s = min(wait_s, OUTPUT_EVERY_S)
                if to_stop is not None:
                    self._ask(to_stop)
            if not self._rest(wait_s):
                return

    def _failed(self, why: str, failures: int, retry_after_s: float | None = None) -> float:
        """Report a heartbeat without an answer; return the seconds until the next one."""
        wait_s = min(self._policy.delay_s(failures, retry_after_s), self._lease.heartbeat_s)
        self._report.say("heartbeat-failed", f"heartbeat failed: {why}; retrying in {wait_s:.1f} s")
        return wait_s

    def _rest(self, wait_s: float) -> bool:
        """Wait until the next heartbeat; return False at the end."""
        until = time.monotonic() + wait_s
        soon = time.monotonic() + OUTPUT_EVERY_S
        while True:
            try:
                nudge = self._nudges.get(timeout=max(0.0, until - time.monotonic()))
            except Empty:
                return True
            if nudge != SOON:
                return nudge == NOW
            until = min(until, soon)

    def _beat(self) -> StopReason | None:
        lease, lines, steps = self._lease, self._output.next(), self._steps.next()
        answer = self._client.heartbeat(
            lease.attempt_id, self._worker_id, lease.attempt_no, self._agent.progress, lines, steps
        )
        if lines is not None:
            self._output.acknowledge(lines)
        if steps is not None:
            self._steps.acknowledge(steps)
        if not answer.cancel:
            return None
        return StopReason.DEADLINE if answer.overdue else StopReason.CANCEL

    def _ask(self, reason: StopReason) -> None:
        if not self._stopped:
            self._inbox.put(StopAsked(self._lease.attempt_id, reason))
