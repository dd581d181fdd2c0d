"""The claim loop: deliver the spool, claim a run, execute it and deliver its result, until the worker stops."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from gpt2core.process.node_time import NodeTime
from gpt2core.spec.wording import counted
from taskloom.contract import http
from taskloom.contract.attempts import Lease, LeaseRequest
from taskloom.contract.retry import GaveUp, Refused, RetryPolicy, Unreachable, call_until_answered
from taskloom.contract.workers import WorkerRegistration
from taskloom.worker import builds, execution, node
from taskloom.worker.agent import Agent, DrainAsked
from taskloom.worker.client import ServerClient
from taskloom.worker.delivery import Delivery
from taskloom.worker.execution import Executor, Verdict
from taskloom.worker.heartbeat_loop import HeartbeatLoop
from taskloom.worker.peaks import IDLE_S, Begun, Measurement
from taskloom.worker.report import Report
from taskloom.worker.settings import Settings, default_prefix, is_default_spool
from taskloom.worker.spool import Entry, Spool, stranded

EXIT_OK, EXIT_RUN_FAILED, EXIT_REFUSED = 0, 1, 3
KEEP_ALIVE_S = 5.0  # period of registrations while the peaks are measured
AT_ONCE_S, AGAIN_S = 0.1, 1.0  # an answer within the first is no long poll's; another is sent after the second


@dataclass(frozen=True)
class ClaimAnswered:
    """Message of the claim thread: answer or error of a long poll."""

    lease: Lease | None
    error: Exception | None


class ClaimLoop:
    """The loop of one worker, in the main thread."""

    def __init__(
        self,
        settings: Settings,
        client: ServerClient,
        agent: Agent,
        inbox: SimpleQueue[Any],
        spool: Spool,
        executor: Executor,
        measurement: Measurement,
        report: Report,
    ) -> None:
        self._settings, self._client, self._agent, self._inbox = settings, client, agent, inbox
        self._spool, self._executor, self._measurement, self._report = spool, executor, measurement, report
        self._life = node.new_life()
        self._delivery = Delivery(client, spool, self.pause, report)
        self._policy = RetryPolicy()
        self._failures = 0
        self._registered = self._measuring = False
        self._announced: Mapping[str, str] = {}
        self._idle_since = time.monotonic()
        self._spent = NodeTime()

    def run(self) -> int:
        """Run until stopped or, with `once`, for one run; return the exit code."""
        try:
            self._measuring = self._measurement.first() and not self._settings.resend
            self._register()
            if self._settings.resend:
                return self._resend()
            self._deliver_stranded()
            self._measure_first()
            while not self._agent.draining:
                self._delivery.deliver_waiting()
                if self._settings.walltime.remaining_s() == 0:
                    self._report.say("walltime-over", "stopping: the walltime has ended")
                    return EXIT_OK
                if self._idle_left_s() == 0:
                    self._report.say("idle", f"stopping: no run for {self._settings.idle_exit_s:g} s")
                    return EXIT_OK
                self._announce_builds()
                self._spent.went_to("delivering")
                lease = self._claim()
                self._spent.went_to("claiming")
                if lease is None:
                    self._executor.standby.dismiss()  # an idle node keeps no waiting trainer
                    self._measure_when_idle()
                    continue
                verdict = self._execute(lease)
                self._idle_since = time.monotonic()
                if self._settings.once:
                    succeeded = verdict is not None and verdict.outcome == "succeeded"
                    return EXIT_OK if succeeded else EXIT_RUN_FAILED
        except GaveUp as error:
            text = f"stopping while a request is retried ({error}); undelivered results stay in the spool"
            self._report.say("gave-up", text, reason=str(error))
        except Refused as error:
            self._report.say("refused", f"the server refuses this worker: {error}", problem=error.problem)
            return EXIT_REFUSED
        finally:
            self._agent.stop()
            self._measurement.interrupt()
            self._executor.standby.dismiss()
            self._leave()
        return EXIT_OK

    def _measure_first(self) -> None:
        """Measure unknown peaks before the first claim. Meanwhile heartbeats say so, lest the worker seem silent. A
        worker that drains interrupts the measurement."""
        if not self._measuring:
            return
        while (begun := self._measurement.begin()) == Begun.LOCKED and self.pause(KEEP_ALIVE_S):
            self._show(measuring=True)
        while begun == Begun.STARTED and self._measurement.running:
            if not self.pause(KEEP_ALIVE_S, lambda: not self._measurement.running):
                return
            self._show(measuring=self._measurement.running)
        if self._measuring:
            self._show(measuring=False)

    def _measure_when_idle(self) -> None:
        """Begin to measure unknown peaks if no run has come for a while. The worker goes on to ask for runs."""
        idle_s = time.monotonic() - self._idle_since
        if idle_s >= IDLE_S and self._measurement.when_idle() and self._measurement.begin() == Begun.STARTED:
            self._show(measuring=True)

    def _note(self, message: object) -> None:
        """Process a message that may arrive at any time: of the signal thread, or of the measurement."""
        if isinstance(message, DrainAsked):
            self._agent.drain()
        elif self._measurement.note(message) and self._settings.peaks == "idle":
            self._show(measuring=False)

    def _show(self, measuring: bool) -> None:
        """Tell the server whether this worker measures peaks, without retries: the next claim finds what is wrong."""
        self._measuring, kept = measuring, builds.labels()
        with contextlib.suppress(Refused, Unreachable):
            self._client.register(self._introduction())
            self._announced = kept

    def _announce_builds(self) -> None:
        """Tell the server about builds that were stored or deleted since it was last told."""
        if builds.labels() != self._announced:
            self._show(self._measuring)

    def _resend(self) -> int:
        """Send waiting and rejected results, once."""
        count = self._spool.take_back()
        self._report.say("resending", f"sending {counted(count, 'rejected file')} again", count=count)
        self._delivery.deliver_waiting()
        return EXIT_RUN_FAILED if self._spool.refused() else EXIT_OK

    def pause(self, delay_s: float, ended: Callable[[], bool] = lambda: False) -> bool:
        """Wait for `delay_s`, or until `ended`; return False as soon as the worker drains."""
        until = time.monotonic() + delay_s
        while not self._agent.draining:
            if ended():
                return True
            try:
                message = self._inbox.get(timeout=max(0.0, until - time.monotonic()))
            except Empty:
                return True
            self._note(message)
        return False

    def _deliver_stranded(self) -> None:
        """Deliver results of this user's earlier workers from their default spools, and delete what those of this node
        that were killed had not finished."""
        if is_default_spool(self._settings.spool, self._settings.worker_id):
            for spool in stranded(self._settings.spool, default_prefix()):
                self._report.say("adopted", f"delivering results from spool {spool.folder}")
                Delivery(self._client, spool, self.pause, self._report).deliver_waiting()

    def _pause_while_wanted(self, delay_s: float) -> bool:
        """Like `pause`; also returns False once --idle-exit has passed without a run."""
        return self._idle_left_s() > 0 and self.pause(min(delay_s, self._idle_left_s()))

    def _register(self) -> None:
        kept, introduction = builds.labels(), self._introduction()
        call_until_answered(lambda: self._client.register(introduction), self._pause_while_wanted, self._tell_retry)
        self._registered, self._announced = True, kept
        name, cores = self._settings.worker_id, list(self._settings.cores)
        text = f"worker {name} (cores {cores}) registered with {http.shown(self._settings.server)}"
        self._report.say("registered", text, worker_id=name)

    def _introduction(self) -> WorkerRegistration:
        return node.registration(self._settings, self._life, self._spool.id, self._measuring)

    def _leave(self) -> None:
        """Notify the server, without retries: it also notices when a worker sends nothing."""
        if self._registered:
            try:
                self._client.leave(self._settings.worker_id, self._life.boot_id)
            except (Refused, Unreachable) as error:
                self._report.say("left-untold", f"the server could not be notified that this worker leaves: {error}")

    def _idle_left_s(self) -> float:
        """Seconds until --idle-exit; infinity without it."""
        limit_s = self._settings.idle_exit_s
        return math.inf if limit_s is None else max(0.0, self._idle_since + limit_s - time.monotonic())

    def _claim(self) -> Lease | None:
        """Poll once for a lease. None: there is none, or the worker drains. The poll runs in its own thread, so that a
        signal is processed at once."""
        remaining_s = self._settings.walltime.remaining_s()
        request = LeaseRequest(
            worker_id=self._settings.worker_id,
            boot_id=self._life.boot_id,
            wait_s=min(self._settings.wait_s, math.inf if remaining_s is None else remaining_s, self._idle_left_s()),
            remaining_s=remaining_s,
        )
        begun = time.monotonic()
        threading.Thread(target=self._poll, args=(request,), name="claim", daemon=True).start()
        while True:
            match self._inbox.get():
                case ClaimAnswered(lease, None):
                    self._failures = 0
                    if lease is not None:
                        self._measurement.interrupt()
                        self._measuring = False
                    elif time.monotonic() - begun < min(AT_ONCE_S, request.wait_s / 2):
                        # The server stops, or another program answers 204 to everything.
                        self.pause(min(AGAIN_S, request.wait_s))
                    return lease
                case ClaimAnswered(_, error):
                    self._after_failed_claim(error)
                    return None
                case message:
                    self._note(message)
            if self._agent.draining:
                return None  # the process then ends, which closes the poll's connection

    def _poll(self, request: LeaseRequest) -> None:
        try:
            answer = ClaimAnswered(self._client.claim(request), None)
        except Exception as error:
            answer = ClaimAnswered(None, error)
        self._inbox.put(answer)

    def _after_failed_claim(self, error: Exception | None) -> None:
        slug = error.slug if isinstance(error, Refused) else ""
        if slug == "unknown-worker":
            self._register()
        elif isinstance(error, Unreachable) or slug == "worker-busy":
            self._failures += 1
            delay_s = self._policy.delay_s(self._failures, getattr(error, "retry_after_s", None))
            self._tell_retry(error, delay_s)
            self.pause(delay_s)
        elif error is not None:
            raise error

    def _execute(self, lease: Lease) -> Verdict | None:
        agent = self._agent
        agent.claim(lease)
        fields = {"run_id": lease.run_id, "attempt_id": lease.attempt_id, "attempt_no": lease.attempt_no}
        name = f"run {lease.run_id}, attempt {lease.attempt_no}"
        self._report.say("claimed", f"{name}: started", **fields)
        beats = HeartbeatLoop(self._client, self._settings.worker_id, lease, agent, self._inbox, self._report)
        beats.start()
        try:
            verdict = self._executor.execute(lease, self._spent, beats.nudge, beats.printed)
            self._spent = NodeTime(self._spent.until_s)
            agent.finish()
            if verdict is None:
                self._spool.remove(lease.attempt_id)
                self._report.say("lease-lost", f"{name}: the lease was lost and the trainer killed", **fields)
            else:
                slug = (verdict.error or {}).get("slug")
                text = f"{name}: {verdict.outcome}" + (f" ({slug})" if slug else "")
                self._report.say("finished", text, outcome=verdict.outcome, slug=slug, **fields)
                entry = Entry(lease.attempt_id, execution.upload(self._settings.worker_id, lease.attempt_no, verdict))
                self._keep(entry)
                if not (self._settings.once or agent.draining):
                    self._executor.standby.prepare()  # no trainer runs until the next lease
                beats.send_last_lines()
                self._delivery.deliver(entry)  # with heartbeats, since it may take longer than the lease
        finally:
            beats.stop()
        agent.acknowledge()
        return verdict

    def _keep(self, entry: Entry) -> None:
        try:
            self._spool.put(entry)
        except OSError as error:  # a full disk: the result in memory can still be sent
            text = f"spool {self._spool.folder} is not writable ({error}); delivering from memory"
            self._report.say("spool-failed", text)

    def _tell_retry(self, error: Exception | None, delay_s: float) -> None:
        self._report.say("retrying", f"server: {error}; retrying in {delay_s:.1f} s")
