"""The provisioner's metrics, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics, start_http_server

from taskloom.provisioner.decide import Decision
from taskloom.provisioner.jobs import Job


class Metrics:
    """Metrics, served at `url` on 127.0.0.1 and a port (0: a free one), or not served (None). Raises OSError."""

    def __init__(self, port: int | None) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        registry = CollectorRegistry()
        self._jobs = Gauge("taskloom_provision_jobs", "jobs by pool and state", ["pool", "state"], registry=registry)
        self._blocks = Gauge(
            "taskloom_provision_waiting_blocks", "blocks that wait for a worker of a pool", ["pool"], registry=registry
        )
        self.submissions = Counter(
            "taskloom_provision_submissions",
            "calls of sbatch: accepted, refused or unknown; fruitless: jobs that ended before a worker registered",
            ["pool", "outcome"],
            registry=registry,
        )
        self.cancellations = Counter(
            "taskloom_provision_cancellations", "calls of scancel", ["pool"], registry=registry
        )
        self.failures = Counter(
            "taskloom_provision_failed_rounds",
            "rounds that Slurm or the server did not answer",
            ["asked"],
            registry=registry,
        )
        self.last_round = Gauge(
            "taskloom_provision_last_round_timestamp_seconds", "when the last complete round ended", registry=registry
        )
        self.url: str | None = None
        if port is not None:
            try:
                served, _ = start_http_server(port, addr="127.0.0.1", registry=registry)
            except OSError as error:
                raise OSError(f"metrics: port {port} of 127.0.0.1: {error.strerror}") from error
            self.url = f"http://127.0.0.1:{served.server_port}/metrics"

    def note(self, pool: str, decision: Decision, jobs: list[Job]) -> None:
        """Record a pool's state after a round."""
        self._blocks.labels(pool).set(decision.blocks)
        for state in {"PENDING", "RUNNING", *(job.state for job in jobs)}:
            self._jobs.labels(pool, state).set(sum(job.state == state for job in jobs))
