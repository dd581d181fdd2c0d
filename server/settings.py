"""Settings of a server, from TASKLOOM_* in the environment or from the caller."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict
from sqlalchemy.engine import make_url

from gpt2core.spec.errors import said
from gpt2core.spec.settings import expanded
from taskloom.contract.options import DEFAULT_DATABASE
from taskloom.server.errors import StartRefused

PREFIX = "TASKLOOM_"
ALIKE = 0.85  # of two names, from 0 to 1 (difflib): other variables are less alike than this, misspelt ones more
Place = Annotated[Path, AfterValidator(lambda path: expanded(path, "a whole path"))]
ACCEPTED = {  # by pydantic's types of errors
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "int_parsing": "a whole number",
    "bool_parsing": "true or false",
    "greater_than": "a number above {gt:g}",
    "greater_than_equal": "{ge:g} or more",
    "less_than_equal": "{le:g} or less",
    "literal_error": "{expected}",
    "string_pattern_mismatch": "text of the form {pattern}",
    "value_error": "{error}",
}


class Settings(BaseSettings):
    """The server's settings. Times in seconds, sizes in bytes."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_ignore_empty=True,  # compose files pass variables that are not set as empty ones
        allow_inf_nan=False,
        frozen=True,
        extra="ignore",
    )

    database_url: str = Field(DEFAULT_DATABASE, description="SQLAlchemy URL: sqlite:///FILE or postgresql://...")
    lease_s: float = Field(60.0, gt=0, description="an attempt without a heartbeat for this long is lost")
    heartbeat_s: float = Field(15.0, gt=0, description="interval at which workers send heartbeats")
    reap_every_s: float = Field(5.0, gt=0, description="interval of checks for expired leases and passed deadlines")
    reap_after_s: float = Field(
        30.0, ge=0, description="delay of the first such check after a start, in which workers renew expired leases"
    )
    deadline_grace_s: float = Field(
        30.0, ge=0, description="time after a deadline until the server fails the attempt, unless its worker does"
    )
    max_losses: int = Field(2, ge=0, description="a run that lost its worker more often than this is quarantined")
    block_release_s: float = Field(
        120.0, gt=0, description="a block is released from its node after this long without a message of its worker"
    )
    control_threads: int = Field(
        16, ge=1, description="threads for claims, heartbeats, results and everything else that writes"
    )
    reader_threads: int = Field(8, ge=1, description="threads for lists, details and files")
    readers_at_once: int = Field(
        2, ge=1, description="readers' requests handled at once; few, so that claims and heartbeats do not wait; one "
        "that takes over 0.1 s no longer counts"
    )
    poll_s: float = Field(
        1.0, gt=0, description="interval of polls for runs that other servers queued; on PostgreSQL they also notify"
    )
    confirm_alerts: bool = Field(
        True, description="queue fresh runs that confirm or dismiss a slowdown, once its experiment has ended"
    )
    max_wait_s: float = Field(25.0, ge=0, description="longest wait of a claim, whatever it requests")
    events_every_s: float = Field(0.5, gt=0, description="interval at which event streams poll for changes")
    stream_s: float = Field(
        300.0, gt=0, description="an event stream ends after this long; the client reconnects with its key"
    )
    max_streams: int = Field(200, ge=0, description="open event streams of each server")
    max_runs: int = Field(10_000, ge=1, description="most runs of one experiment")
    max_queued: int = Field(
        100_000, ge=1, description="most queued runs of one key, user or group; without any of them, of all callers"
    )
    max_node_hours: float | None = Field(
        None,
        ge=0,
        description="most node hours of one key, user or group within TASKLOOM_QUOTA_DAYS, after which it queues no "
        "more runs",
    )
    quota_days: float = Field(30.0, gt=0, le=366, description="days of TASKLOOM_MAX_NODE_HOURS, up to now")
    rate_per_s: float = Field(
        200.0,
        gt=0,
        description="most requests per second of one key or user, in each process; bursts may be twice as large",
    )
    max_body_bytes: int = Field(1 << 20, ge=1, description="largest request body, except results and artifacts")
    max_result_bytes: int = Field(64 << 20, ge=1, description="largest body of an uploaded result")
    max_bytes_in_flight: int = Field(
        128 << 20, ge=1, description="bytes of requests in each server's memory, over all connections"
    )
    header_timeout_s: float = Field(10.0, gt=0, description="longest time for a request's headers to arrive")
    body_timeout_s: float = Field(15.0, gt=0, description="how far a body may fall behind TASKLOOM_MIN_BODY_RATE")
    min_body_rate: float = Field(16384.0, gt=0, description="minimum rate of a body, in bytes per second")
    linger_s: float = Field(
        5.0, gt=0, description="how long the rest of a rejected body is discarded"
    )
    send_timeout_s: float = Field(
        30.0, gt=0, description="a connection ends when its client reads nothing for this long"
    )
    max_bytes_unread: int = Field(
        64 << 20, ge=1, description="bytes of answers in each server's memory that wait for slow clients"
    )
    artifact_root: Place | None = Field(
        None, description="folder of artifacts; default FILE.artifacts beside SQLite's FILE, otherwise ./artifacts"
    )
    max_artifact_bytes: int = Field(256 << 20, ge=1, description="largest artifact")
    max_artifacts: int = Field(32, ge=1, description="most artifacts of one attempt")
    max_output_lines: int = Field(1000, ge=1, description="lines of trainer output kept of one attempt")
    analysis_processes: int | None = Field(
        None,
        ge=0,
        description="processes that compute analyses and dry runs; 0: in the server's process, without a deadline; "
        "default: one fewer than the cores, but at least 1 and at most 2",
    )
    analysis_s: float = Field(
        60.0, gt=0, description="processor time after which an analysis is stopped; by the clock it may take ten times "
        "as long, since claims, heartbeats and runs have priority"
    )
    max_questions: int = Field(100, ge=1, description="analyses that may run or wait at once")
    exports_at_once: int = Field(2, ge=1, description="exports that are written at once; others wait")
    answer_root: Place | None = Field(
        None, description="folder of cached answers; default FILE.answers beside SQLite's FILE, otherwise ./answers"
    )
    max_answer_bytes: int = Field(
        1 << 30, ge=0, description="total size of cached answers; the least recently used are deleted first"
    )
    cors_origins: str = Field(
        "", description="origins whose pages may read answers, with a key, separated by commas: https://plots.example.org"
    )
    proxy_user_header: str = Field(
        "", pattern=r"^([A-Za-z][A-Za-z0-9-]{0,99})?$",
        description="header in which a proxy of TASKLOOM_PROXY_ADDRESSES names its authenticated user, such as "
        "X-Forwarded-User; without it, such headers are ignored",
    )
    proxy_group_header: str = Field(
        "", pattern=r"^([A-Za-z][A-Za-z0-9-]{0,99})?$",
        description="header in which such a proxy names the user's group, such as X-Forwarded-Groups; of several, "
        "separated by commas, the first counts",
    )
    proxy_addresses: str = Field(
        "", description="addresses and networks of these proxies, separated by commas: 127.0.0.1, 10.0.0.0/24"
    )
    proxy_user_scope: Literal["read", "submit", "admin"] = Field(
        "submit", description="scope of the users that a proxy names"
    )
    oidc_issuer: str = Field(
        "", description="OpenID Connect provider that signs people on to the dashboard, such as "
        "https://login.example.org/realms/lab; it needs taskloom[oidc]",
    )
    oidc_client_id: str = Field("", description="the name under which the provider knows this server")
    oidc_client_secret_file: Place | None = Field(
        None, description="file with the client's secret, which also signs the sessions; only its owner can read it"
    )
    oidc_origin: str = Field(
        "", pattern=r"^(https://[A-Za-z0-9.\[\]:-]+)?$",
        description="how browsers reach this server, such as https://taskloom.example.org; the provider leads them "
        "back to its /sign-in/callback, below TASKLOOM_ROOT_PATH",
    )
    oidc_groups: str = Field(
        "", description="groups that may sign on, with the scopes of their users: vision=submit, admins=admin, *=read; "
        "the first that a user has counts, `*` is everybody whom the provider signs on",
    )
    oidc_groups_claim: str = Field("groups", min_length=1, description="claim of the provider's token with the groups")
    oidc_user_claim: str = Field(
        "sub", min_length=1, description="claim of the provider's token that names the user, such as "
        "preferred_username; one that nobody can choose freely",
    )
    oidc_scopes: str = Field("profile", description="what the provider is asked for beside openid")
    oidc_session_s: float = Field(
        14400.0, gt=0, le=86400, description="a session ends this long after its sign-on; it cannot be ended earlier "
        "for a single user",
    )
    root_path: str = Field(
        "", pattern=r"^(/[A-Za-z0-9._~-]+)*$",
        description="path below which a proxy serves this server, such as /taskloom; the proxy may strip it or not",
    )
    webhook_targets: str = Field(
        "",
        pattern=r"^(https?://[^\s,]+(,\s*https?://[^\s,]+)*)?$",
        description="URL prefixes that webhooks may use, separated by commas: https://ci.example.org/hooks; "
        "without it there are no webhooks",
    )
    webhook_timeout_s: float = Field(10.0, gt=0, le=60, description="longest time until a webhook's receiver answers")
    webhook_retry_s: float = Field(
        10.0, gt=0, description="delay before an undelivered message is sent again; doubled each time, up to an hour"
    )
    webhook_tries: int = Field(12, ge=1, le=100, description="how often delivery of a message is tried")
    max_webhooks: int = Field(50, ge=0, description="most webhooks of this server")
    commits_url: str = Field(
        "",
        pattern=r"^(https?://[^\s{}]*\{from\}[^\s{}]*\{to\}[^\s{}]*)?$",
        description="template of links to the commits between which a series changed: "
        "https://github.com/OWNER/NAME/compare/{from}...{to}",
    )
    calibrate_every_h: float | None = Field(
        None, gt=0, description="in each interval of this many hours, queue an A/A experiment for each value of the "
        "label `node` of present workers",
    )
    prune_after_days: float | None = Field(
        None, gt=0, description="each hour, delete the runs that ended this many days ago, with their results"
    )
    price_per_node_hour: float | None = Field(
        None, ge=0, description="the operator's price of an hour of a node, in any currency: runs then state their cost"
    )
    keep_verdicts: bool = Field(True, description="compute an experiment's verdict when it has ended, for lists")
    max_page: int = Field(500, ge=1, description="most items of a page")
    max_samples: int = Field(100_000, ge=1, description="a page of samples ends with the run that reaches this number")
    busy_timeout_s: float = Field(30.0, gt=0, description="how long SQLite waits for a write of another process")

    @property
    def processes(self) -> int:
        """Number of processes of the analysis pool. With several cores, one stays free for claims and heartbeats."""
        if self.analysis_processes is not None:
            return self.analysis_processes
        return max(1, min(2, len(os.sched_getaffinity(0)) - 1))

    @property
    def artifact_folder(self) -> Path:
        """Folder of artifacts."""
        return self.artifact_root or self._beside("artifacts")

    @property
    def answer_folder(self) -> Path:
        """Folder of cached answers."""
        return self.answer_root or self._beside("answers")

    @classmethod
    def read(cls, database_url: str | None = None) -> Settings:
        """The settings of the environment. Raises StartRefused, which names every variable that is not accepted."""
        try:
            found = cls() if database_url is None else cls(database_url=database_url)
        except ValidationError as error:
            raise StartRefused("; ".join(map(_explained, error.errors()))) from None
        if found.heartbeat_s >= found.lease_s:
            raise StartRefused(
                f"{PREFIX}HEARTBEAT_S = {found.heartbeat_s:g} is not accepted: less than {PREFIX}LEASE_S, "
                f"{found.lease_s:g}, because an attempt without a heartbeat for this long is lost"
            )
        if misspelt := _misspelt():
            raise StartRefused("; ".join(misspelt))
        return found

    def _beside(self, name: str) -> Path:
        """A folder beside SQLite's file, or in the current folder."""
        url = make_url(self.database_url)
        is_file = url.get_backend_name() == "sqlite" and url.database
        return Path(f"{url.database}.{name}" if is_file else name)


def _misspelt() -> list[str]:
    """Variables that are nearly those of a setting: a limit that nobody reads would be none. Values may be secrets."""
    names = {name.upper() for name in Settings.model_fields}
    given = {name.removeprefix(PREFIX) for name in os.environ if name.startswith(PREFIX)}
    nearly = {name: difflib.get_close_matches(name, names, 1, ALIKE) for name in sorted(given - names)}
    return [
        f"{PREFIX}{name} is not accepted: no setting has this name; did you mean {PREFIX}{near[0]}?"
        for name, near in nearly.items() if near
    ]  # fmt: skip


def _explained(error: ErrorDetails) -> str:
    accepted = ACCEPTED.get(error["type"], error["msg"]).format_map(error.get("ctx", {}))
    return f"{PREFIX}{str(error['loc'][0]).upper()} = {said(error['input'])} is not accepted: {accepted}"
