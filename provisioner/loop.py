"""Runs one round per interval: compares Slurm's jobs with the queue's demand, then submits and cancels jobs."""

from __future__ import annotations

import logging
import shlex
import threading
import time
from collections.abc import Callable
from typing import Any

from taskloom.contract.demand import PoolJob, PoolReport
from taskloom.contract.retry import Unreachable
from taskloom.provisioner import slurm
from taskloom.provisioner.decide import Decision, decide
from taskloom.provisioner.jobs import Job, Jobs
from taskloom.provisioner.metrics import Metrics
from taskloom.provisioner.pools import Pool, Pools
from taskloom.provisioner.server import Server
from taskloom.provisioner.slurm import SlurmFailed, SlurmUnknown

LONGEST_BACKOFF_S = 600.0
LOGGER = logging.getLogger("taskloom.provisioner")


def log(event: str, message: str, level: int = logging.INFO, **fields: Any) -> None:
    """Log a message with its event and further fields."""
    LOGGER.log(level, message, extra={"fields": {"event": event, **fields}})


class Provisioner:
    """Keeps as many jobs as the queue needs and the pools allow."""

    def __init__(
        self, pools: Pools, jobs: Jobs, server: Server, metrics: Metrics, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._pools, self._jobs, self._server, self._metrics, self._clock = pools, jobs, server, metrics, clock
        self._failures: dict[str, int] = {}  # by pool, since one of its workers last registered
        self._not_before: dict[str, float] = {}
        self._problem: dict[str, str] = {}
        self._surplus: dict[str, set[str]] = {}

    def run(self, stop: threading.Event, once: bool = False) -> None:
        """Run rounds until `stop` is set, or one round. Raises Refused."""
        while True:
            began = self._clock()
            self.round()
            if once or stop.wait(max(0.0, began + self._pools.interval_s - self._clock())):
                return

    def round(self) -> None:
        """Run one round. It changes nothing unless both Slurm and the server answered."""
        decisions = self._decisions()
        if decisions is None:
            return
        for pool in self._pools.pools:
            decision = decisions[pool.name]
            self._submit(pool, decision)
            self._cancel(pool, decision)
            jobs = self._jobs.of(pool.name)
            self._metrics.note(pool.name, decision, jobs)
            try:
                self._server.report(pool.name, self._report(pool, jobs, decision))
            except Unreachable as error:
                log("server-silent", str(error), logging.WARNING)
        self._metrics.last_round.set_to_current_time()

    def plan(self) -> list[str] | None:
        """Commands and scripts that a round would run now. None: Slurm or the server did not answer."""
        decisions = self._decisions()
        if decisions is None:
            return None
        lines = []
        for pool in self._pools.pools:
            decision, jobs = decisions[pool.name], self._jobs.of(pool.name)
            held = f"; {decision.held}" if decision.held else ""
            lines.append(
                f"# pool {pool.name}: {decision.blocks} blocks wait, {len(jobs)} jobs, "
                f"{decision.submit} to submit, {len(decision.surplus)} to cancel{held}"
            )
            for _ in range(decision.submit):
                command, script = slurm.submission(self._pools, pool, f"{self._pools.name}.{pool.name}.NEW")
                lines.append(f"{shlex.join(command)} <<'END'\n{script}END")
            lines += [shlex.join(["scancel", "--state=PENDING", job.job_id]) for job in decision.surplus]
        return lines

    def _decisions(self) -> dict[str, Decision] | None:
        try:
            listed = slurm.queue()
        except (SlurmFailed, SlurmUnknown) as error:
            self._metrics.failures.labels("slurm").inc()
            log("slurm-silent", f"{error}; nothing is submitted until it answers", logging.WARNING)
            return None
        gone = self._jobs.update(listed, [pool.name for pool in self._pools.pools])
        for job in gone:
            log("job-gone", f"job {job.job_id or job.name} has ended", pool=job.pool, job_id=job.job_id)
        self._judge(gone)
        try:
            demand = self._server.demand()
        except Unreachable as error:
            self._metrics.failures.labels("server").inc()
            log("server-silent", str(error), logging.WARNING)
            return None
        present = {worker.labels.get("slurm_job", "") for worker in demand.workers}
        for job in self._jobs.explain(present):
            self._failures.pop(job.pool, None)
        return decide(demand, self._pools.pools, {pool.name: self._jobs.of(pool.name) for pool in self._pools.pools})

    def _judge(self, gone: list[Job]) -> None:
        """Back off for a pool whose jobs end before their workers register."""
        for pool in self._pools.pools:
            fruitless = [job for job in gone if job.pool == pool.name and job.job_id and not job.explained]
            if fruitless:
                job = fruitless[-1]
                path = slurm.log_path(self._pools, job.name)
                problem = f"job {job.job_id} ended before its worker registered; its log is {path}"
                self._back_off(pool, problem, "fruitless")

    def _submit(self, pool: Pool, decision: Decision) -> None:
        if self._clock() < self._not_before.get(pool.name, 0.0):
            return
        for _ in range(decision.submit):
            job = self._jobs.plan(pool.name)
            command, script = slurm.submission(self._pools, pool, job.name)
            try:
                job_id = slurm.submit(command, script, **self._pools.secrets)
            except SlurmFailed as error:
                self._jobs.refused(job)
                self._back_off(pool, str(error), "refused")
                return
            except SlurmUnknown as error:
                # The job may exist: it counts until MISSES successive lists do not contain it.
                self._back_off(pool, f"{error}; it is unknown whether the job exists", "unknown")
                return
            self._jobs.submitted(job, job_id)
            self._metrics.submissions.labels(pool.name, "accepted").inc()
            self._problem.pop(pool.name, None)
            log("submitted", f"job {job_id} for pool {pool.name}", pool=pool.name, job_id=job_id, name=job.name)

    def _back_off(self, pool: Pool, problem: str, outcome: str) -> None:
        times = self._failures[pool.name] = self._failures.get(pool.name, 0) + 1
        delay_s = min(LONGEST_BACKOFF_S, self._pools.interval_s * 2 ** (times - 1))
        self._not_before[pool.name] = self._clock() + delay_s
        self._problem[pool.name] = problem
        self._metrics.submissions.labels(pool.name, outcome).inc()
        text = f"{problem}; next try in {delay_s:g} s"
        log(f"submission-{outcome}", text, logging.WARNING, pool=pool.name, delay_s=delay_s)

    def _cancel(self, pool: Pool, decision: Decision) -> None:
        """Cancel pending jobs that two successive rounds found unneeded."""
        before = self._surplus.get(pool.name, set())
        self._surplus[pool.name] = {job.name for job in decision.surplus}
        for job in decision.surplus:
            if job.name not in before:
                continue
            try:
                slurm.cancel(job.job_id)
            except (SlurmFailed, SlurmUnknown) as error:
                log("cancel-failed", str(error), logging.WARNING, pool=pool.name, job_id=job.job_id)
            else:
                self._jobs.explain([job.job_id])
                self._metrics.cancellations.labels(pool.name).inc()
                text = f"job {job.job_id} cancelled: no block waits for its worker"
                log("cancelled", text, pool=pool.name, job_id=job.job_id)

    def _report(self, pool: Pool, jobs: list[Job], decision: Decision) -> PoolReport:
        held = f"no further job is submitted: {decision.held}" if decision.held else None
        return PoolReport(
            cores=pool.cores,
            memory_bytes=int(pool.memory),
            labels=pool.offered_labels,
            walltime_s=pool.walltime.total_seconds(),
            interval_s=self._pools.interval_s,
            jobs=[PoolJob(job_id=job.job_id or job.name, state=job.state, reason=job.reason[:500]) for job in jobs],
            problem=self._problem.get(pool.name, held),
        )
