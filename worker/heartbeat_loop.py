"""The heartbeat loop: keeps one lease alive from a thread of its own and hears whether the run is still wanted."""

from __future__ import annotations

import threading
from queue import Empty, SimpleQueue
from typing import Any

from contract.runs import Lease
from worker.agent import Agent, StopAsked, StopReason
from worker.client import Refused, ServerClient
from worker.report import Report
from worker.retry import RetryPolicy, Unreachable

LOST_STATUSES = (404, 409, 410)  # the attempt is gone, taken over, or at its end


class HeartbeatLoop:
    """Beats from `start` until `stop`: at once, on every nudge, and every lease.heartbeat_s."""

    def __init__(
        self, client: ServerClient, worker_id: str, lease: Lease, agent: Agent, inbox: SimpleQueue[Any], report: Report
    ) -> None:
        self._client, self._worker_id, self._lease = client, worker_id, lease
        self._agent, self._inbox, self._report = agent, inbox, report
        self._policy = RetryPolicy(most_s=lease.heartbeat_s)
        self._nudges: SimpleQueue[bool] = SimpleQueue()  # False: end
        self._stopped = False

    def start(self) -> None:
        threading.Thread(target=self._run, name=f"heartbeat-{self._lease.attempt_id}", daemon=True).start()

    def nudge(self) -> None:
        """Beat now: there is news."""
        self._nudges.put(True)

    def stop(self) -> None:
        """Beat no more. A beat under way is not waited for; its answer is not heeded."""
        self._stopped = True
        self._nudges.put(False)

    def _run(self) -> None:
        failures = 0
        while not self._stopped:
            try:
                cancel = self._beat()
            except Unreachable as error:
                failures += 1
                wait_s = min(self._policy.delay_s(failures, error.retry_after_s), self._lease.lease_s)
                self._report.say("heartbeat-failed", f"heartbeat failed: {error}; again in {wait_s:.1f} s")
            except Refused as error:
                failures, wait_s = failures + 1, self._lease.heartbeat_s
                if error.status in LOST_STATUSES:
                    self._ask(StopReason.LEASE_LOST)
                    return
                self._report.say("heartbeat-refused", f"heartbeat refused: {error}")
            else:
                failures, wait_s = 0, self._lease.heartbeat_s
                if cancel:
                    self._ask(StopReason.CANCEL)
            try:
                if not self._nudges.get(timeout=wait_s):
                    return
            except Empty:
                continue

    def _beat(self) -> bool:
        lease = self._lease
        answer = self._client.heartbeat(lease.attempt_id, self._worker_id, lease.attempt_no, self._agent.progress)
        return answer.cancel

    def _ask(self, reason: StopReason) -> None:
        if not self._stopped:
            self._inbox.put(StopAsked(self._lease.attempt_id, reason))
