"""Nodes and the workers on them."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from taskloom.contract.attempts import AttemptSummary, ProgressSeen
from taskloom.contract.bodies import MOST, OPEN, Model, Request

TOPOLOGY_BYTES = 1 << 16
MOST_LABELS = 64
Text = Annotated[str, Field(pattern=r"^[^\x00]*$")]  # databases reject null characters in some columns
Short = Annotated[Text, Field(max_length=200)]


def _is_short(topology: dict[str, Any]) -> dict[str, Any]:
    if len(json.dumps(topology)) > TOPOLOGY_BYTES:
        raise ValueError(f"at most {TOPOLOGY_BYTES} bytes as JSON")
    return topology


class WorkerRegistration(Request):
    """Registration of a worker. It is idempotent for the same worker_id and boot_id."""

    worker_id: str = Field(min_length=1, max_length=200, pattern=r"^[\w.:@-]+$")
    boot_id: Text = Field(min_length=1, max_length=200)
    machine_boot_id: Text | None = Field(None, min_length=1, max_length=200, description="the machine's boot id")
    started_s: float | None = Field(
        None,
        ge=0,
        le=MOST,
        description="when the process started, in seconds since that boot: of two processes the older one is refused",
    )
    spool_id: Text | None = Field(
        None, min_length=1, max_length=200,
        description="identity of its spool: of two active processes with one worker_id, the later one is refused if "
        "it has another",
    )  # fmt: skip
    node: Text = Field(min_length=1, max_length=200, description="the machine's name")
    cores: list[Annotated[int, Field(ge=0, le=1 << 16)]] = Field(
        min_length=1, max_length=4096, description="cores a trainer may be pinned to"
    )
    memory_bytes: int = Field(ge=1, le=MOST)
    labels: dict[Short, Short] = Field(default_factory=dict, max_length=MOST_LABELS)
    software: dict[Short, Short] = Field(
        default_factory=dict, max_length=64, description="versions; `hash` is the trainer's source hash"
    )
    topology: Annotated[dict[str, Any], AfterValidator(_is_short)] = Field(
        default_factory=dict, description=f"CPU model, sockets, SMT, caches: at most {TOPOLOGY_BYTES} bytes as JSON"
    )
    measuring_peaks: bool = Field(
        False,
        description="it measures its node's peaks; it takes no run until it registers again or claims one",
    )


class Leaving(Request):
    """Notice that a worker takes no further run."""

    boot_id: str = Field(min_length=1, max_length=200)


WorkerState = Literal["idle", "busy", "measuring peaks", "ending", "silent", "left"]


class CurrentAttempt(Model):
    """The attempt that a worker runs."""

    attempt_id: int
    run_id: int
    experiment_id: int
    claimed_at: datetime
    progress: ProgressSeen | None


class WorkerSummary(WorkerRegistration):
    """A worker's registration, with the time of its last message and its current attempt."""

    model_config = OPEN

    # Everything that was once accepted can be shown.
    labels: dict[str, str]
    software: dict[str, str]
    topology: dict[str, Any]
    registered_at: datetime
    seen_at: datetime
    ends_at: datetime | None = Field(description="end of its walltime, as of its last claim")
    left_at: datetime | None = Field(None, description="time at which it left")
    current_attempt_id: int | None
    state: WorkerState | None = Field(
        None,
        description="busy: it runs an attempt; left: it takes no further run; silent: it sent no message recently; "
        "measuring peaks: it measures those of its node; ending: its walltime ends within two minutes; otherwise idle",
    )
    current: CurrentAttempt | None = Field(None, description="its current attempt")


class WorkerPage(Model):
    """A page of workers, by id."""

    items: list[WorkerSummary]
    unreadable: list[str] = Field(
        default_factory=list, description="workers of this page with an unreadable registration"
    )
    next_cursor: str | None


class WorkerAttempt(AttemptSummary):
    """An attempt of a worker."""

    experiment_id: int
    cores: list[int]


class WorkerAttemptPage(Model):
    """A page of a worker's attempts, newest first."""

    items: list[WorkerAttempt]
    next_cursor: str | None
