"""Metrics for Prometheus. Requests and outcomes are counted as they occur; the queue is read from the database on
request.

Processes that share a port also share a folder of counters (replicas.py), so each of them reports the sums.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from sqlalchemy import func, select

from gpt2core.spec.version import version
from taskloom.server import migrate
from taskloom.server.db import Database, db_now, now
from taskloom.server.queue.tables.runs import Run, is_queued
from taskloom.server.queue.tables.workers import Worker
from taskloom.server.queue.transitions.changes import Decided, Outcome

# Without this, each counter and histogram has a second series, which Prometheus does not need.
disable_created_metrics()  # type: ignore[no-untyped-call]
SHARED = "PROMETHEUS_MULTIPROC_DIR"  # the folder; prometheus_client reads this variable on import
OPEN_STATES = ("queued", "leased", "running", "quarantined")
BUCKETS_S = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 30.0)
LONG_BUCKETS_S = (0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 4 * 3600.0, 24 * 3600.0)


class Metrics:
    """One application's metrics, in a registry of its own."""

    def __init__(self, database: Database, alive_s: float) -> None:
        self.registry = CollectorRegistry()
        own = None if SHARED in os.environ else self.registry
        self._requests = Counter("taskloom_requests", "Requests answered", ("route", "status"), registry=own)
        self._seconds = Histogram(
            "taskloom_request_seconds", "Time to answer", ("route",), registry=own, buckets=BUCKETS_S
        )
        self._refused = Counter(
            "taskloom_refused_requests", "Requests answered with a problem", ("route", "problem"), registry=own
        )
        self._runs = Counter("taskloom_runs_ended", "Runs that reached a final state", ("state",), registry=own)
        self._attempts = Counter(
            "taskloom_attempts_ended", "Attempts that reached a final state", ("state", "purpose"), registry=own
        )
        self._waited_s = Histogram(
            "taskloom_queue_wait_seconds", "Time from queued to claimed", registry=own, buckets=LONG_BUCKETS_S
        )
        self._ran_s = Histogram(
            "taskloom_attempt_seconds",
            "Time from an attempt's first heartbeat to its end",
            ("state", "purpose"),
            registry=own,
            buckets=LONG_BUCKETS_S,
        )
        self._blocks = Counter("taskloom_tuning_blocks", "Blocks queued for tunings", ("phase",), registry=own)
        self._tunings = Counter("taskloom_tunings_ended", "Tunings that ended", ("reason",), registry=own)
        database.on_fact = self._count_fact
        if own is None:
            MultiProcessCollector(self.registry)  # type: ignore[no-untyped-call]
        else:
            ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self.registry.register(_Build())
        self.registry.register(_Queue(database, alive_s))

    def note(self, route: str, status: int, duration_s: float, problem: str | None = None) -> None:
        """Count an answered request. problem: the slug of its problem."""
        if problem is not None:
            self._refused.labels(route, problem).inc()
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(duration_s)

    def _count_fact(self, fact: object) -> None:
        if isinstance(fact, Decided):
            if fact.phase is not None:
                self._blocks.labels(fact.phase).inc()
            if fact.reason is not None:
                self._tunings.labels(fact.reason).inc()
        if not isinstance(fact, Outcome):
            return
        if fact.run_ended is not None:
            self._runs.labels(fact.run_ended).inc(fact.runs)
        if fact.waited_s is not None:
            self._waited_s.observe(max(0.0, fact.waited_s))
        if fact.attempt_ended is not None:
            self._attempts.labels(fact.attempt_ended, fact.purpose).inc()
            if fact.ran_s is not None:
                self._ran_s.labels(fact.attempt_ended, fact.purpose).observe(fact.ran_s)


class _Build(Collector):
    """Metric of the server's version. prometheus_client's Info does not work with a shared folder."""

    def collect(self) -> Iterator[Metric]:
        labels = {"version": version(), "schema": migrate.HEAD}
        yield InfoMetricFamily("taskloom_build", "The server's version, and that of its database's schema", labels)


class _Queue(Collector):
    def __init__(self, database: Database, alive_s: float) -> None:
        self._database, self._alive_s = database, alive_s

    def describe(self) -> list[Metric]:
        return []  # so that the registration does not query the database

    def collect(self) -> Iterator[Metric]:
        runs = GaugeMetricFamily("taskloom_runs", "Runs that have not ended, or are quarantined", labels=["state"])
        with self._database.read() as session:
            counts = select(Run.state, func.count()).where(Run.state.in_(OPEN_STATES)).group_by(Run.state)
            found = dict(session.execute(counts).all())
            oldest_at = session.execute(select(func.min(Run.queued_at)).where(is_queued())).scalar_one()
            waited_s = 0.0 if oldest_at is None else max(0.0, now(session) - oldest_at)
            alive = select(func.count()).select_from(Worker).where(Worker.seen_at > db_now() - self._alive_s)
            workers = session.execute(alive).scalar_one()
        for state in OPEN_STATES:
            runs.add_metric([state], found.get(state, 0))
        yield runs
        yield GaugeMetricFamily("taskloom_queue_age_seconds", "How long the oldest queued run has waited", waited_s)
        yield GaugeMetricFamily("taskloom_workers", "Workers that sent a message within the time of a lease", workers)
