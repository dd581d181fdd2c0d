"""Settings of a server, from TASKLOOM_* in the environment or from the caller."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict
from sqlalchemy.engine import make_url


class Settings(BaseSettings):
    """The server's settings. Times in seconds, sizes in bytes."""

    model_config = SettingsConfigDict(env_prefix="TASKLOOM_", frozen=True, extra="ignore")

    database_url: str = Field("sqlite:///taskloom.db", description="SQLAlchemy URL: sqlite:///FILE or postgresql://...")
    lease_s: float = Field(60.0, gt=0, description="an attempt without a heartbeat for this long is lost")
    heartbeat_s: float = Field(15.0, gt=0, description="how often workers are told to beat")
    reap_every_s: float = Field(5.0, gt=0, description="how often expired leases and passed deadlines are looked for")
    reap_after_s: float = Field(
        30.0, ge=0, description="from the start to the first such look: workers renew what ran out meanwhile"
    )
    deadline_grace_s: float = Field(
        30.0, ge=0, description="from a deadline to the server failing the attempt; the worker may report it meanwhile"
    )
    max_losses: int = Field(2, ge=0, description="a run that lost its worker more often than this is quarantined")
    block_release_s: float = Field(
        120.0, gt=0, description="a block leaves its node when no worker there was heard of for this long"
    )
    control_threads: int = Field(16, ge=1, description="threads of claims, heartbeats, results and all that writes")
    reader_threads: int = Field(8, ge=1, description="threads of lists, details and files")
    readers_at_once: int = Field(
        2, ge=1, description="requests of readers that are handled at once, so that claims and heartbeats go first"
    )
    poll_s: float = Field(
        1.0, gt=0, description="how often waiting claims look for other servers' runs, beside being told on PostgreSQL"
    )
    confirm_alerts: bool = Field(
        True, description="queue fresh runs of what has become slower, once the experiment that shows it has ended"
    )
    max_wait_s: float = Field(25.0, ge=0, description="how long a claim waits at most, whatever it asks for")
    events_every_s: float = Field(0.5, gt=0, description="how often an event stream looks for what has changed")
    stream_s: float = Field(
        300.0, gt=0, description="an event stream ends after this long; the client comes again, with its key"
    )
    max_streams: int = Field(200, ge=0, description="event streams that each server keeps open at once")
    max_runs: int = Field(10_000, ge=1, description="runs one experiment may become")
    max_queued: int = Field(100_000, ge=1, description="queued runs of one key; without keys, of everybody")
    rate_per_s: float = Field(
        200.0, gt=0, description="requests a second with one key, at each process; twice as many may come at once"
    )
    max_body_bytes: int = Field(1 << 20, ge=1, description="largest request body, results and artifacts excepted")
    max_result_bytes: int = Field(64 << 20, ge=1, description="largest body of an uploaded result")
    max_bytes_in_flight: int = Field(
        128 << 20, ge=1, description="bytes of bodies that each server holds at once, all requests together"
    )
    header_timeout_s: float = Field(10.0, gt=0, description="how long a request's headers may take to come")
    body_timeout_s: float = Field(15.0, gt=0, description="how far a body may lag behind min_body_rate")
    min_body_rate: float = Field(16384.0, gt=0, description="bytes a second that a body comes at, at least")
    linger_s: float = Field(
        5.0, gt=0, description="how long the rest of a body is thrown away that was answered before its end"
    )
    artifact_root: Path | None = Field(
        None, description="where artifacts are kept; else FILE.artifacts beside SQLite's FILE, or ./artifacts"
    )
    max_artifact_bytes: int = Field(256 << 20, ge=1, description="largest artifact")
    max_artifacts: int = Field(32, ge=1, description="artifacts one attempt may leave")
    max_output_lines: int = Field(1000, ge=1, description="lines kept of what the trainer of one attempt prints")
    analysis_processes: int | None = Field(
        None,
        ge=0,
        description="processes that compute analyses and dry runs; 0: the server's own, without a deadline; by default "
        "one fewer than there are cores, 1 or 2",
    )
    analysis_s: float = Field(60.0, gt=0, description="an analysis that takes longer is given up")
    max_questions: int = Field(100, ge=1, description="different analyses that are computed or wait at once")
    answer_root: Path | None = Field(
        None, description="where answers are kept; else FILE.answers beside SQLite's FILE, or ./answers"
    )
    max_answer_bytes: int = Field(1 << 30, ge=0, description="kept answers; those unused for longest go first")
    cors_origins: str = Field(
        "", description="origins whose pages may read answers, with a key, separated by commas: https://plots.example.org"
    )
    root_path: str = Field(
        "", pattern=r"^(/[A-Za-z0-9._~-]+)*$", description="the path below which a proxy serves this server: /taskloom"
    )
    webhook_targets: str = Field(
        "",
        pattern=r"^(https?://[^\s,]+(,\s*https?://[^\s,]+)*)?$",
        description="addresses below which webhooks may be, separated by commas: https://ci.example.org/hooks; "
        "without it there are no webhooks",
    )
    webhook_timeout_s: float = Field(10.0, gt=0, le=60, description="how long a webhook's receiver may take")
    webhook_retry_s: float = Field(
        10.0, gt=0, description="until what a receiver did not take is sent again; doubled each time, up to an hour"
    )
    webhook_tries: int = Field(12, ge=1, le=100, description="how often a message is sent before it is given up")
    max_webhooks: int = Field(50, ge=0, description="webhooks that this server keeps")
    keep_verdicts: bool = Field(True, description="compare an experiment's variants once it has ended, for lists")
    max_page: int = Field(500, ge=1, description="items one page of a list may hold")
    max_samples: int = Field(100_000, ge=1, description="a page of samples ends with the run that reaches so many")
    busy_timeout_s: float = Field(30.0, gt=0, description="how long SQLite waits for another process's write")

    @property
    def processes(self) -> int:
        """Processes of the analysis pool: with several cores, one is left to claims and heartbeats."""
        if self.analysis_processes is not None:
            return self.analysis_processes
        return max(1, min(2, len(os.sched_getaffinity(0)) - 1))

    @property
    def artifact_folder(self) -> Path:
        """Folder of artifacts."""
        return self.artifact_root or self._beside("artifacts")

    @property
    def answer_folder(self) -> Path:
        """Folder of kept answers."""
        return self.answer_root or self._beside("answers")

    def _beside(self, name: str) -> Path:
        """A folder beside SQLite's file, or in the current folder."""
        url = make_url(self.database_url)
        is_file = url.get_backend_name() == "sqlite" and url.database
        return Path(f"{url.database}.{name}" if is_file else name)
