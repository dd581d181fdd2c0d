"""Attempts and leases: messages between a worker and the server about a run."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from taskloom.contract.bodies import MOST, MOST_ID, OPEN, Model, Request

Purpose = Literal["timing", "tracing"]
AttemptState = Literal["leased", "running", "succeeded", "failed", "cancelled", "lost", "superseded"]

STEPPING = ("training", "inferring")  # stages of a trainer that runs steps


class Progress(Request):
    """Progress of a trainer, sent with heartbeats."""

    stage: Literal["starting", "compiling", "training", "inferring", "finishing"] = "starting"
    step: int = Field(0, ge=0, le=MOST)
    steps: int = Field(0, ge=0, le=MOST)
    loss: float | None = Field(None, ge=-1e100, le=1e100)
    tokens_per_s: float | None = Field(None, ge=0, le=1e100)


class ProgressSeen(Progress):
    """Progress of a trainer at its last heartbeat."""

    model_config = OPEN

    @classmethod
    def kept(cls, values: dict[str, Any] | None) -> ProgressSeen | None:
        """From its stored form; None if it is missing, or older than its bounds."""
        try:
            return None if values is None else cls.model_validate(values)
        except ValidationError:
            return None


class AttemptSummary(Model):
    """One execution of a run by one worker under one lease."""

    id: int
    run_id: int
    attempt_no: int = Field(description="the fencing token: 1 for the first attempt of a run")
    worker_id: str
    purpose: Purpose = Field(description="timing: its result is the run's; tracing: it writes a trace")
    state: AttemptState
    claimed_at: datetime
    started_at: datetime | None = Field(None, description="its first heartbeat")
    expires_at: datetime
    deadline_at: datetime
    finished_at: datetime | None
    progress: ProgressSeen | None
    error: dict[str, Any] | None = Field(description="slug, detail and fields of the error; null without one")


class LeaseRequest(Request):
    """Claim of a run, answered when there is one or `wait_s` has passed."""

    worker_id: str = Field(min_length=1, max_length=200)
    boot_id: str = Field(min_length=1, max_length=200)
    wait_s: float = Field(25.0, ge=0, le=25)
    remaining_s: float | None = Field(
        None, ge=0, le=MOST, description="remaining lifetime of the worker; it gets no run with a longer time limit"
    )


class Lease(Model):
    """A run to execute, with the lease's expiry and the deadline."""

    attempt_id: int
    attempt_no: int
    run_id: int
    experiment_id: int
    purpose: Purpose = "timing"
    spec: dict[str, Any]
    lease_s: float
    heartbeat_s: float
    expires_at: datetime
    deadline_at: datetime
    deadline_s: float = Field(description="the deadline, in seconds from the claim by the worker's own clock")
    build: str | None = Field(
        None,
        description="hash of the trainer's sources that must run it; null: any",
        exclude_if=lambda build: build is None,  # the first workers refuse unknown fields
    )
    nodes: int = Field(
        1, description="nodes of the worker's job over which the ranks are divided", exclude_if=lambda nodes: nodes == 1
    )


OUTPUT_LINES = 100  # that one heartbeat carries
LINE_CHARS = 2000


class OutputLines(Request):
    """Lines that the trainer printed."""

    first: int = Field(ge=1, le=MOST_ID, description="number of the first line; the attempt's first line is 1")
    lines: list[Annotated[str, Field(max_length=LINE_CHARS)]] = Field(min_length=1, max_length=OUTPUT_LINES)


STEPS = 1000  # that one heartbeat carries


class StepsDone(Request):
    """Consecutive steps that the trainer has completed."""

    first: int = Field(ge=1, le=MOST, description="number of the first step; the attempt's first step is 1")
    step_s: list[Annotated[float, Field(ge=0, le=1e100)]] = Field(min_length=1, max_length=STEPS)
    loss: list[Annotated[float, Field(ge=-1e100, le=1e100)] | None] = Field(
        max_length=STEPS, description="loss of each step"
    )
    accuracy: list[Annotated[float, Field(ge=0, le=1)]] | None = Field(
        None, max_length=STEPS, description="top 1 of each step; null unless the network has classes or answers"
    )
    evaluation_loss: list[Annotated[float, Field(ge=-1e100, le=1e100)] | None] | None = Field(
        None,
        max_length=STEPS,
        description="loss of the evaluation after each step, null for a step without one; null: no step has one",
        exclude_if=lambda losses: losses is None,  # servers of version 0.1.0 refuse unknown fields
    )
    evaluation_accuracy: list[Annotated[float, Field(ge=0, le=1)] | None] | None = Field(
        None, max_length=STEPS, description="likewise", exclude_if=lambda accuracies: accuracies is None
    )

    @model_validator(mode="after")
    def _of_each(self) -> StepsDone:
        every = (self.loss, self.accuracy, self.evaluation_loss, self.evaluation_accuracy)
        if any(len(each) != len(self.step_s) for each in every if each is not None):
            raise ValueError("step_s, loss, accuracy, evaluation_loss and evaluation_accuracy have one entry a step")
        return self


class HeartbeatRequest(Request):
    """Heartbeat of an attempt."""

    worker_id: str = Field(max_length=200)
    attempt_no: int = Field(ge=1, le=MOST_ID)
    progress: Progress
    output: OutputLines | None = Field(None, description="repeated lines change nothing")
    steps: StepsDone | None = Field(None, description="repeated steps change nothing")


class HeartbeatAnswer(Model):
    """The renewed lease. `cancel`: stop the trainer. `overdue`: the reason is the deadline, not a request."""

    cancel: bool
    overdue: bool = False
    expires_at: datetime


class ResultUpload(Request):
    """The end of an attempt. `payload` is the JSON text whose SHA-256 is `sha256`; one of result or error is in it."""

    worker_id: str
    attempt_no: int = Field(ge=1, le=MOST_ID)
    outcome: Literal["succeeded", "failed", "cancelled"]
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    payload: str = Field(description='JSON text: {"result": TrainResult | null, "error": {...} | null}')


class ResultReceipt(Model):
    """Acknowledgement: the result is stored."""

    attempt_id: int
    state: AttemptState
    canonical: bool = Field(description="whether this is the run's canonical result")
