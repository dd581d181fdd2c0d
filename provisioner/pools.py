"""The pools file: kinds of jobs and their limits."""

from __future__ import annotations

import math
import os
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ByteSize, ConfigDict, Field, ValidationError

from gpt2core.spec.errors import FileError, InputError, said
from gpt2core.spec.settings import NoHome
from taskloom.contract import durations, edited, key_files
from taskloom.contract.demand import Need
from taskloom.contract.fitting import JOB_RESERVE_S, Offer, lacks
from taskloom.contract.http import shown
from taskloom.contract.labels import MOST_NODES, NODES
from taskloom.contract.options import DEFAULT_SERVER

NAME = r"^[A-Za-z0-9_-]{1,40}$"
MOST_CHARS = 40  # of a number, a time or a size


def _positive(value: timedelta) -> timedelta:
    if value.total_seconds() < 1:
        raise ValueError("must be 1 second or more")
    return value


def _duration(value: object) -> object:
    """A duration such as 90s or 4h as a number of seconds; another value as it is."""
    found = durations.seconds(value) if isinstance(value, str) else None
    return value if found is None else found


def _number(value: object) -> object:
    """The value of a number, a time or a size. Raises ValueError for true, which pydantic would take for 1, and for
    what is too large for a float."""
    if isinstance(value, bool) or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError("must be a finite number")
    if len(str(value)) > MOST_CHARS:
        raise ValueError(f"must have at most {MOST_CHARS} characters")
    return value


def _path(value: Path) -> Path:
    if "\0" in str(value):
        raise ValueError("must be a path")
    return value


Duration = Annotated[
    timedelta, AfterValidator(_positive), BeforeValidator(_duration), BeforeValidator(_number), Field(strict=False)
]
Whole = Annotated[int, BeforeValidator(_number)]
Size = Annotated[ByteSize, BeforeValidator(_number)]
File = Annotated[Path, AfterValidator(_path)]
# In arguments of commands, and as a worker accepts labels.
Word = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]*$")]
Label = Annotated[str, Field(pattern=r"^[^=\x00-\x1f\x7f]{1,200}$")]
Short = Annotated[Word, Field(max_length=200)]


class PoolsFileRefused(InputError):
    """The pools file is invalid; the message names the field, its value and what is accepted."""


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Pool(_Settings):
    """Jobs of one kind: each is one worker on its first node."""

    name: str = Field(pattern=NAME)
    partition: Word | None = None
    constraint: Word | None = None
    account: Word | None = None
    qos: Word | None = None
    nodes: Whole = Field(1, ge=1, le=MOST_NODES)
    cores: Whole = Field(ge=1, le=1 << 16)
    memory: Size = Field(gt=0)
    walltime: Duration
    exclusive: bool = True
    max_jobs: Whole = Field(ge=1, le=1000)
    max_pending: Whole = Field(1, ge=1, le=1000)
    idle_exit: Duration = timedelta(seconds=120)
    peaks: Literal["once", "never"] = "once"
    labels: dict[Label, Short] = Field(default_factory=dict)
    sbatch_options: tuple[Word, ...] = ()
    prelude: str = Field(
        "", pattern=r"^[^\x00]*$", description="shell commands that make `taskloom` available on a node"
    )

    @property
    def worker_labels(self) -> dict[str, str]:
        """Labels of the pool's workers, without `slurm_job`, which is the job's."""
        return {key: self.labels[key] for key in self.labels if key != "slurm_job"} | {"pool": self.name}

    @property
    def offered_labels(self) -> dict[str, str]:
        """Labels of the pool's workers, with the one that a worker of several nodes gives itself."""
        return {**self.worker_labels, **({NODES: str(self.nodes)} if self.nodes > 1 else {})}

    def lacks(self, need: Need) -> str | None:
        """Reason why a worker of this pool cannot run the block, which is the subject; None if one can."""
        cores = frozenset(range(self.cores)) if self.exclusive or not need.pinned_cores else frozenset()
        limit_s = self.walltime.total_seconds() - JOB_RESERVE_S
        labels = frozenset(self.offered_labels.items())
        offer = Offer(labels, cores, self.memory, limit_s)
        nodes = need.labels.get(NODES, "1")
        if nodes not in ("1", str(self.nodes)):
            return f"needs {nodes} nodes; the pool's jobs have {self.nodes}"
        if need.cores > self.cores:
            return f"needs {need.cores} cores; the pool's workers have {self.cores}"
        match lacks(need.need, offer):
            case "no-label":
                missing = [f"{k}={v}" for k, v in need.labels.items() if self.offered_labels.get(k) != v]
                return f"requires {', '.join(missing)}"
            case "too-few-cores" | "other-cores":  # without an exclusive node, Slurm chooses the cores
                return f"requires the cores {','.join(map(str, need.pinned_cores))}"
            case "too-little-memory":
                return f"needs {need.memory_bytes:,} bytes of memory; the pool's workers have {self.memory:,}"
            case "too-little-time":
                return f"may take {need.timeout_s:g} s; the pool's workers have {limit_s:g} s for runs"
        return None


class Pools(_Settings):
    """A pools file. The first pool that can run a block serves it."""

    name: str = Field("taskloom", pattern=NAME)
    server: str = DEFAULT_SERVER
    token_file: File | None = None
    interval: Duration = timedelta(seconds=30)
    log_folder: File = Path("taskloom-jobs")
    pools: tuple[Pool, ...] = Field(min_length=1)

    @property
    def interval_s(self) -> float:
        return self.interval.total_seconds()

    @property
    def secrets(self) -> dict[str, str]:
        """Variables of each job, with what its script and arguments may not contain, which Slurm keeps and shows to
        others: the server's address, if it has a password."""
        return {} if shown(self.server) == self.server else {"TASKLOOM_SERVER": self.server}

    def token(self) -> str | None:
        """The key for the server: TASKLOOM_TOKEN, or that of the token file. Raises PoolsFileRefused."""
        try:
            return key_files.token(os.environ, self.token_file)
        except (FileError, NoHome) as error:
            raise PoolsFileRefused(f"token_file: {error}") from error


def read(path: Path, server: str | None = None) -> Pools:
    """Read a TOML file with one table `[pools.NAME]` per pool. `server` replaces its server. Raises
    PoolsFileRefused."""
    try:
        given: dict[str, Any] = edited.parse_toml(edited.read_text(path))
    except OSError as error:
        raise PoolsFileRefused(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # ValueError: also of numbers with thousands of digits
        raise PoolsFileRefused(f"{path}: not TOML: {error}") from error
    tables = given.get("pools")
    if isinstance(tables, dict):
        given["pools"] = [
            {"name": name, **table} if isinstance(table, dict) else table for name, table in tables.items()
        ]
    if server is not None:
        given["server"] = server
    try:
        pools = Pools.model_validate(given)
    except ValidationError as error:
        wrong = [item for item in error.errors() if item["type"] != "too_short"] or error.errors()  # no pool is left
        raise PoolsFileRefused("\n".join(_explained(path, given, item) for item in wrong)) from error
    if len({pool.name for pool in pools.pools}) < len(pools.pools):
        raise PoolsFileRefused(f"{path}: pools: two pools have the same name")
    return pools


def _explained(path: Path, given: dict[str, Any], error: Any) -> str:
    place, at = [], given
    for key in error["loc"]:
        if isinstance(key, int) and isinstance(at, list):
            at = at[key] if key < len(at) else {}
            place.append(str(at.get("name", key)) if isinstance(at, dict) else str(key))
        else:
            at = at.get(key, {}) if isinstance(at, dict) else {}
            place.append(str(key))
    value = "" if error["type"] == "missing" else f" is {said(error['input'])}"
    wanted = error["msg"]
    if error["type"] == "extra_forbidden":
        accepted = [*Pools.model_fields] if len(place) == 1 else [key for key in Pool.model_fields if key != "name"]
        wanted = f"there is no such key; accepted are {', '.join(accepted)}"
    return f"{path}: {'.'.join(place)}{value}: {wanted}"
