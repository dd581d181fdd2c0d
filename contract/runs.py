"""Runs as they cross the network: their settings, lists, live progress, history and samples."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, WithJsonSchema, create_model

from gpt2core.spec import networks
from gpt2core.spec.config import DEFAULTS, FIELDS, TrainConfig
from gpt2core.spec.field_types import field_type
from gpt2core.spec.fields import parse_cores
from gpt2core.spec.generation import UNREAD_BY_USE, parse_prompt
from gpt2core.spec.models import model_names
from gpt2core.spec.modes import UNREAD
from gpt2core.spec.roles import MAIN
from gpt2core.spec.schedulers import AUTO, RUNTIMES
from taskloom.contract.attempts import AttemptState, AttemptSummary
from taskloom.contract.bodies import Model, Request
from taskloom.contract.commits import Commits, TrainerCommit

RunState = Literal["queued", "leased", "running", "succeeded", "failed", "cancelled", "quarantined"]


def _model_schema() -> dict[str, Any]:
    """JSON schema of a model: a preset's name, or the sizes of one network, which `network` names (absent: gpt2).

    Requests are checked by the networks' own dataclasses, so that an error's place is that of the size.
    """
    every: list[dict[str, Any]] = []
    for name in networks.KNOWN:
        schema = TypeAdapter(networks.network(name).model).json_schema()
        schema["properties"] = {"network": {"const": name, "type": "string"}, **schema["properties"]}
        schema["required"] = [] if name == networks.DEFAULT else ["network"]
        about = {"title": name, "description": f"Sizes of a model of {name}", "additionalProperties": False}
        every.append({**schema, **about})
    return {"anyOf": [{"type": "string", "description": "Name of a preset or of a network"}, *every]}


def _spec_fields() -> dict[str, Any]:
    """TrainConfig's fields as optional pydantic fields; the dataclass stays the one list."""
    fields: dict[str, Any] = {}
    for item in dataclasses.fields(TrainConfig):
        meta, kind = item.metadata, field_type(item.name)
        limits: dict[str, Any] = {"ge": meta.get("low"), "le": meta.get("high")}
        if item.name == "model":
            limits = {"examples": list(model_names())}
            kind = Annotated[str | dict[str, bool | int | str], WithJsonSchema(_model_schema())]
        elif item.name == "cores":
            kind = Annotated[list[int], BeforeValidator(lambda v: list(parse_cores(v)))]
        elif item.name == "prompt":
            kind = Annotated[list[int], BeforeValidator(lambda v: list(parse_prompt(v)))]
        elif item.name == "op_threads":
            kind = dict[str, int] | str
        elif item.name == "stop_at":
            kind = dict[str, float] | str
        elif item.name == "runtime":  # a path would be code from a request
            kind = Literal[(AUTO, *RUNTIMES)]
        elif "choices" in meta:
            kind = Literal[tuple(meta["choices"])]
        extra: dict[str, Any] = {f"x-{key}": meta[key] for key in ("role", "group", "unit") if key in meta}
        by_use = {**UNREAD, **UNREAD_BY_USE}
        unread = {use: names[item.name] for use, names in by_use.items() if item.name in names}
        extra |= {"x-unread": unread} if unread else {}
        default = DEFAULTS[item.name]
        if default is not None:
            extra["x-default"] = default.name if item.name == "model" else default
        if meta.get("by_network"):
            extra["x-default-of"] = networks.DEFAULT
        fields[item.name] = (kind | None, Field(None, description=meta["help"], json_schema_extra=extra, **limits))
    return fields


class _RunSpec(Request):
    """Settings of one run. Missing ones take their defaults; docs/reference lists them."""

    model_config = ConfigDict(allow_inf_nan=False)  # in JSON they would be null, which is the default


RunSpec: type[_RunSpec] = create_model("RunSpec", __base__=_RunSpec, __doc__=_RunSpec.__doc__, **_spec_fields())


class ProgressPoint(Model):
    """Progress of a trainer at one heartbeat."""

    attempt_no: int
    step: int = Field(description="1-based")
    at: datetime
    loss: float | None
    tokens_per_s: float | None
    step_s: float | None = Field(description="mean time of the steps since the previous point")


class ProgressCurve(Model):
    """The live curve of a run, oldest first; empty once it has a result, whose samples have every step."""

    run_id: int
    items: list[ProgressPoint]


class StepSeen(Model):
    """One step of a running attempt."""

    attempt_no: int
    step: int = Field(description="1-based, as in `progress`")
    step_s: float
    loss: float | None = Field(description="null if it is not finite")
    accuracy: float | None = Field(None, description="top 1; null unless the network has classes or answers")
    evaluation_loss: float | None = Field(None, description="of the evaluation after this step; null without one")
    evaluation_accuracy: float | None = Field(None, description="likewise")


class StepPage(Model):
    """Steps of a running run, oldest first; none once it has a result, whose samples have every step."""

    run_id: int
    items: list[StepSeen]
    cursor: str = Field(description="pass it as `cursor` to get later steps")


class LogLine(Model):
    """A line of output of an attempt's trainer."""

    run_id: int
    attempt_no: int
    line_no: int
    at: datetime = Field(description="when the server received it")
    text: str


class LogPage(Model):
    """Lines of a run's attempts, in the order of their arrival."""

    items: list[LogLine]
    cursor: str = Field(description="`cursor` of the following lines")


class RunError(Model):
    """Summary of an error."""

    slug: str
    detail: str


class _MainSettings(Model):
    """The settings that most often differ between runs."""


def _main_fields() -> dict[str, Any]:
    """The main settings; those with a choice of their own or none may be null."""
    fields: dict[str, Any] = {}
    for name in MAIN:
        kind = str if name == "model" else field_type(name)
        nullable = DEFAULTS[name] is None or name == "sync"  # serial has no waits
        fields[name] = (kind | None if nullable else kind, Field(description=FIELDS[name].metadata["help"]))
    return fields


MainSettings: type[_MainSettings] = create_model(
    "MainSettings", __base__=_MainSettings, __doc__=_MainSettings.__doc__, **_main_fields()
)


class Resolved(Model):
    """Settings that a run had in the end, of those that the trainer chooses where the request leaves them open."""

    batch_slice: int | None = None
    token_slice: int | None = None
    fusion: str | None = Field(None, description="kernels that share a task: none, rows or all")
    blas: str | None = Field(
        None, description="libraries of its matrix products, separated by spaces; null: it has no products, or unknown"
    )


def resolved_columns(of: Mapping[str, Any] | None) -> dict[str, Any]:
    """The fields of Resolved as flat columns."""
    return {f"resolved_{name}": (of or {}).get(name) for name in Resolved.model_fields}


class RunSummary(Commits, TrainerCommit):
    """A run in a list."""

    id: int
    experiment_id: int
    variant: dict[str, Any] = Field(description="this run's values on the experiment's axes")
    repetition: int = Field(description="1-based")
    block: int = Field(description="position of its block in the design; runs of one block are paired")
    position: int = Field(description="place in the experiment's order, 0-based")
    state: RunState
    attempts: int
    created_at: datetime
    started_at: datetime | None = Field(None, description="start of its first attempt; a retry starts again")
    finished_at: datetime | None
    median_step_s: float | None
    tokens_per_s: float | None
    unit: str = Field("tokens", description="what `tokens_per_s` counts: tokens or images")
    final_loss: float | None
    settings: MainSettings | None = Field(None, description="its main settings; the run itself has all of them")
    resolved: Resolved | None = Field(
        None, description="what the trainer chose; null without a result, or if the server did not keep it yet"
    )
    node: str | None = Field(None, description="node of the canonical result")
    duration_s: float | None = Field(None, description="from its start to its end")
    flagged_steps: int | None = Field(None, description="number of flagged steps; null without a result")
    traced: bool = Field(False, description="whether it has also been run to be traced")


class RunRow(RunSummary):
    """A run in a list, with its error."""

    error: RunError | None = Field(None, description="summary; the run itself has all of it")


WaitingReason = Literal[
    "no-worker", "no-label", "no-runtime", "too-few-cores", "other-cores", "too-little-memory", "too-little-time",
    "block-bound", "all-busy", "measuring-peaks", "runs-before", "next", "pool-waiting", "pool-starting", "pool-held",
    "pool-asked",
]  # fmt: skip


class QueuePlace(Model):
    """Position of a queued run and what it waits for."""

    position: int = Field(description="1: no run is before it")
    reason: WaitingReason
    waiting_for: str = Field(description="the reason, for people")


class NodeTime(Model):
    """Where the node's time of one or several runs went."""

    node_time: dict[str, float] | None = Field(
        None, description="seconds by part, as in a result (docs/reference/result.md); null if unknown"
    )
    node_time_missing: str | None = Field(
        None, description="why node_time is null, or which results it leaves out; null if it is complete"
    )


class Cost(Model):
    """Cost of a run by the operator's price of a node hour (TASKLOOM_PRICE_PER_NODE_HOUR), in the operator's currency.
    """

    cost: float | None = Field(None, description="of its node's time, all parts of it; null without a price or a time")
    cost_missing: str | None = Field(None, description="why cost is null")
    cost_to_goal: float | None = Field(
        None, description="of the steps up to its goal `stop_at`, warm-up included, and of nothing else"
    )
    cost_to_goal_missing: str | None = Field(None, description="why cost_to_goal is null; null without a goal, too")


class RunDetail(NodeTime, Cost, RunSummary):
    """A run with its settings and every attempt."""

    queue: QueuePlace | None = Field(description="null unless it is queued")
    spec: dict[str, Any] = Field(description="the complete TrainConfig")
    history: list[AttemptSummary]
    error: dict[str, Any] | None


class RunPage(Model):
    """A page of runs. It may have fewer items than `limit` and still have a next page: see `next_cursor`."""

    items: list[RunRow]
    next_cursor: str | None = Field(
        description="`cursor` of the next page; null on the last. A page reads 5,000 runs at most"
    )
    total: int | None = Field(None, description="runs on all pages; null unless requested and known from an index")


class StateChange(Model):
    """A change of a run, and the run's state after it."""

    id: int
    run_id: int
    experiment_id: int
    at: datetime
    verb: str = Field(description="kind of change: submit, claim, start, succeed, requeue, retry, request-cancel, ...")
    state: RunState
    attempt_no: int | None = Field(description="the attempt of the change; null without one")
    attempt_state: AttemptState | None = Field(description="the attempt's new state")
    actor: str = Field(description="actor: key:ID, user:NAME, local (a server without keys), worker:ID, or server")
    reason: str | None = Field(description="the reason, where the verb does not imply it")


class StateChangePage(Model):
    """A page of a history, oldest first."""

    items: list[StateChange]
    next_cursor: str | None


class SampleRow(Model):
    """One step of a run."""

    step: int = Field(description="0-based, unlike in `progress` and `steps`")
    warmup: bool
    loss: float | None = Field(description="null if the phases of the run have no loss")
    accuracy: float | None = Field(None, description="top 1; null unless the network has classes or answers")
    evaluation_loss: float | None = Field(None, description="of the evaluation after this step; null without one")
    evaluation_accuracy: float | None = Field(None, description="likewise")
    step_s: float
    phase_s: dict[str, float]


class SampleList(Model):
    """Every step of a run's canonical result."""

    run_id: int
    attempt_no: int
    items: list[SampleRow]
