"""Exportable tables: a row for each experiment, run, step, op, variant, trial or point of a history, with flat typed
columns."""

from __future__ import annotations

import datetime
import hashlib
import json
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson
from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from gpt2core.spec import networks
from gpt2core.spec.config import NAMES
from gpt2core.spec.field_types import field_type, is_integer
from gpt2core.spec.phases import PHASES
from gpt2core.spec.roles import MAIN
from taskloom.contract.commits import NAMED, OF_TRAINER
from taskloom.contract.runs import resolved_columns
from taskloom.contract.variants import VariantRow
from taskloom.server.alerts.models import Alert
from taskloom.server.db import Database, utc
from taskloom.server.queue.attempts import commits, node_time
from taskloom.server.queue.experiments import blocks
from taskloom.server.queue.runs import cost
from taskloom.server.queue.runs.details import evaluations_of
from taskloom.server.queue.tables.attempts import Digest, Result
from taskloom.server.queue.tables.experiments import Experiment, ExperimentTag
from taskloom.server.queue.tables.runs import Run
from taskloom.server.read.experiments.variants import variants
from taskloom.server.read.exports import experiments
from taskloom.server.read.exports.measures import MEASURES, with_measures
from taskloom.server.read.lists import keyset
from taskloom.server.read.measured import FIRST, goals, quantiles
from taskloom.server.read.runs.listing import Filters, Sort, look
from taskloom.server.read.tuning.search import tuning

Kind = Literal["integer", "number", "text", "boolean", "instant"]
Row = dict[str, Any]
RUNS_AT_ONCE = 500  # runs per read of columns
RESULTS_AT_ONCE = 20  # results per read


@dataclass(frozen=True)
class Table:
    """A table: columns with their kinds, and a function that yields rows. Filters are of runs, or of experiments."""

    columns: Mapping[str, Kind]
    rows: Callable[[Database, Any, Sort], Iterator[Row]]


def _kinds(kind: Kind, *names: str) -> dict[str, Kind]:
    return dict.fromkeys(names, kind)


OF_TYPES: Mapping[Any, Kind] = {float: "number", bool: "boolean"}
# Settings that have several types, or are lists or pairs, are JSON text.
SETTING_KINDS: dict[str, Kind] = {
    name: "integer" if is_integer(name) else OF_TYPES.get(field_type(name), "text") for name in NAMES
}
RESOLVED_KINDS = {name: SETTING_KINDS[name.removeprefix("resolved_")] for name in resolved_columns(None)}
MAIN_KINDS = {name: SETTING_KINDS[name] for name in MAIN}
LATENCY = ("p50", "p99")  # quantiles of the step's time
GOAL_KINDS: dict[str, Kind] = {"reached": "boolean", "steps": "integer", "time_s": "number", "energy_j": "number"}
COMMIT_KINDS: dict[str, Kind] = {
    name: "boolean" if name.endswith("dirty") else "instant" if name.endswith("_at") else "text"
    for name in (*NAMED, *OF_TRAINER)
}
COSTS = {"cost": "node_s", "cost_to_goal": "goal_time_s"}  # prices, by the columns of seconds
PHASE_COLUMNS = tuple(f"{phase}_s" for phase in PHASES)


def _settings(spec: Mapping[str, Any], names: Sequence[str]) -> Row:
    return {name: _setting(name, spec.get(name)) for name in names}


def _setting(name: str, value: Any) -> Any:
    if name == "model" and isinstance(value, Mapping):
        return value.get("name")
    kind = SETTING_KINDS[name]
    if value is None or kind == "text":
        return value if value is None or isinstance(value, str) else json.dumps(value)
    if isinstance(value, bool) != (kind == "boolean") or not isinstance(value, int | float):
        return None
    return float(value) if kind == "number" else value


def _pages(database: Database, filters: Filters, sort: Sort, columns: Sequence[Any], most: int) -> Iterator[list[Any]]:
    """Rows of `columns` of every run, by pages; each page is its own transaction."""
    cursor: str | None = None
    while True:
        with database.read(snapshot=True) as session:
            ids, cursor = keyset.page(session, look(session, filters, sort), cursor, most)
            found = {row.id: row for row in session.execute(select(*columns).where(Run.id.in_(ids)))}
        yield [found[run_id] for run_id in ids]
        if cursor is None:
            return


RUN_COLUMNS = (
    Run.id, Run.experiment_id, Run.state, Run.repetition, Run.block, Run.position, Run.attempts, Run.created_at,
    Run.started_at, Run.finished_at, Run.median_step_s, Run.tokens_per_s, Run.final_loss, Run.phase_s,
    Run.flagged_steps, Run.node, Run.environment_sha256, Run.error, Run.variant, Run.spec, Run.resolved,
    *commits.TRAINER, *node_time.COLUMNS.values(),
)  # fmt: skip


def _runs(database: Database, filters: Filters, sort: Sort) -> Iterator[Row]:
    for page in _pages(database, filters, sort, RUN_COLUMNS, RUNS_AT_ONCE):
        with database.read() as session:
            titled = _named(session, {run.experiment_id for run in page})
            latency = quantiles(session, [run.id for run in page if run.spec.get("mode") == "infer"])
            reached = goals(session, [run.id for run in page if run.spec.get("stop_at")])
            named = commits.of_experiments(session, {run.experiment_id for run in page})
        for run in page:
            ended = run.started_at is not None and run.finished_at is not None
            yield {
                "run_id": run.id,
                **{name: getattr(run, name) for name in ("experiment_id", "state", "repetition", "block", "position")},
                "attempts": run.attempts,
                **{name: _instant(getattr(run, name)) for name in ("created_at", "started_at", "finished_at")},
                "duration_s": run.finished_at - run.started_at if ended else None,
                **{name: getattr(run, name) for name in ("median_step_s", "tokens_per_s", "final_loss")},
                "unit": networks.unit_of(run.spec.get("model")),
                **{f"{phase}_s": (run.phase_s or {}).get(phase) for phase in PHASES},
                **{f"latency_{name}_s": latency.get(run.id, {}).get(f"{name}_s") for name in LATENCY},
                FIRST: latency.get(run.id, {}).get(FIRST),
                **{f"goal_{name}": reached.get(run.id, {}).get(name) for name in GOAL_KINDS},
                "node_s": node_time.total_s(run),
                **{name: getattr(run, name) for name in ("flagged_steps", "node", "environment_sha256")},
                "error_slug": _text((run.error or {}).get("slug")),
                "error_detail": _text((run.error or {}).get("detail")),
                **named[run.experiment_id],
                **commits.of_trainer(run),
                **titled.get(run.experiment_id, UNTITLED),
                "build": run.variant.get("build"),
                **resolved_columns(run.resolved),
                **_settings(run.spec, NAMES),
            }


TITLE_KINDS = _kinds("text", "experiment_name", "tags")
UNTITLED = dict.fromkeys(TITLE_KINDS)


def _named(session: Session, experiment_ids: Collection[int]) -> dict[int, Row]:
    """Name and tags of experiments."""
    of_names = select(Experiment.id, Experiment.name).where(Experiment.id.in_(experiment_ids))
    found = {row.id: {"experiment_name": row.name, "tags": ""} for row in session.execute(of_names)}
    of_tags = select(ExperimentTag.experiment_id, ExperimentTag.tag).order_by(ExperimentTag.tag)
    for experiment_id, tag in session.execute(of_tags.where(ExperimentTag.experiment_id.in_(experiment_ids))):
        found[experiment_id]["tags"] = f"{found[experiment_id]['tags']} {tag}".lstrip()
    return found


def _instant(at: float | None) -> datetime.datetime | None:
    return None if at is None else utc(at)


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _results(
    database: Database, filters: Filters, sort: Sort, column: InstrumentedAttribute[bytes], read: Callable[[bytes], Any]
) -> Iterator[tuple[Any, Any]]:
    """Each timed run with the output of `read` for a column of its canonical result or its digest."""
    query = select(Result.run_id, column).outerjoin(Digest, Digest.attempt_id == Result.attempt_id)
    for page in _pages(database, filters, sort, (Run.id, Run.experiment_id, Run.spec, Run.timed), RESULTS_AT_ONCE):
        timed = [run.id for run in page if run.timed]
        with database.read() as session:
            rows = session.execute(query.where(Result.run_id.in_(timed), Result.canonical, column.is_not(None)))
            found = {row[0]: row[1] for row in rows}
        for run in page:
            if run.id in found:
                yield run, read(found[run.id])


def _unpacked(payload: bytes) -> Any:
    return orjson.loads(zlib.decompress(payload))["result"]


NOT_EVALUATED = dict.fromkeys(("evaluation_loss", "evaluation_accuracy"))


def _steps(database: Database, filters: Filters, sort: Sort) -> Iterator[Row]:
    for run, result in _results(database, filters, sort, Result.payload, _unpacked):
        flagged = result.get("flagged") or [[]] * len(result["step_s"])
        same = {"run_id": run.id, "experiment_id": run.experiment_id}
        settings, phase_s = _settings(run.spec, MAIN), result["phase_s"]
        losses = result["losses"] or [None] * len(result["step_s"])
        accuracy = result.get("accuracy") or [None] * len(result["step_s"])
        evaluations = evaluations_of(result)
        for step, (loss, step_s) in enumerate(zip(losses, result["step_s"], strict=True)):
            yield {
                **same,
                "step": step,
                "warmup": step < result["config"]["warmup"],
                "loss": loss,
                "accuracy": accuracy[step],
                **(evaluations.get(step) or NOT_EVALUATED),
                "step_s": step_s,
                **{f"{phase}_s": phase_s[phase][step] if phase in phase_s else None for phase in PHASES},
                "flagged": " ".join(map(str, flagged[step])),
                **settings,
            }


def _ops(database: Database, filters: Filters, sort: Sort) -> Iterator[Row]:
    for run, result in _results(database, filters, sort, Digest.causes, orjson.loads):
        settings = _settings(run.spec, MAIN)
        for op in result["ops"]:
            of_it = {name: op[name] for name in ("op", "phase", "calls", "time_s", "flop", "bytes")}
            yield {"run_id": run.id, "experiment_id": run.experiment_id, **of_it, **settings}


def _variant_kind(name: str) -> Kind:
    if name in ("variant", "nodes"):
        return "text"
    return "number" if name.endswith("_s") or name in ("low", "high", "final_loss") else "integer"


VARIANT_KINDS = {name: _variant_kind(name) for name in VariantRow.model_fields
                 if name not in ("settings", "resolved")}  # fmt: skip


def _experiments(database: Database, filters: Filters, *which: ColumnElement[bool]) -> Sequence[int]:
    query = select(Experiment.id).where(*which, *filters.period.conditions(Experiment).values())
    if filters.experiment_id is not None:
        query = query.where(Experiment.id == filters.experiment_id)
    with database.read() as session:
        return session.scalars(query.order_by(Experiment.id)).all()


def _variants(database: Database, filters: Filters, sort: Sort) -> Iterator[Row]:  # noqa: ARG001
    for experiment_id in _experiments(database, filters):
        for row in variants(database, experiment_id).rows:
            flat = row.model_dump()
            settings = flat.pop("settings") or dict.fromkeys(MAIN)
            flat |= resolved_columns(flat.pop("resolved"))
            yield {**flat, "variant": json.dumps(row.variant), "nodes": " ".join(row.nodes), **settings}


def _tuning_trials(database: Database, filters: Filters, sort: Sort) -> Iterator[Row]:  # noqa: ARG001
    for experiment_id in _experiments(database, filters, blocks.tunes()):
        for trial in tuning(database, experiment_id).trials:
            yield {
                "experiment_id": experiment_id,
                **{name: getattr(trial, name) for name in TRIAL_KINDS if name != "settings"},
                "settings": json.dumps(trial.settings),
            }


TRIAL_KINDS: dict[str, Kind] = {
    **_kinds("integer", "run_id", "block"),
    **_kinds("text", "state", "reason", "settings"),
    **_kinds("number", "step_s", "ratio"),
    **_kinds("boolean", "flagged"),
}

HISTORY_COLUMNS = (
    Run.id, Run.experiment_id, Run.finished_at, Run.median_step_s, Run.tokens_per_s, Run.node, Run.environment_sha256,
    Run.shape, Run.state, Run.spec, Run.series_id, *commits.TRAINER,
)  # fmt: skip


def _history(database: Database, filters: Filters, sort: Sort) -> Iterator[Row]:
    for page in _pages(database, filters, sort, HISTORY_COLUMNS, RUNS_AT_ONCE):
        known = [run for run in page if run.median_step_s is not None and run.state == "succeeded"]
        with database.read() as session:
            query = select(Alert.run_id, Alert.state, Alert.ratio).where(Alert.kind == "change")
            query = query.where(Alert.run_id.in_([run.id for run in known]))
            alerts = {row.run_id: row for row in session.execute(query)}
            named = commits.of_experiments(session, {run.experiment_id for run in known})
        for run in known:
            alert = alerts.get(run.id)
            yield {
                "series": hashlib.sha256(f"{run.shape} {run.environment_sha256}".encode()).hexdigest()[:16],
                "series_id": run.series_id,
                "run_id": run.id,
                "experiment_id": run.experiment_id,
                "finished_at": _instant(run.finished_at),
                "median_step_s": run.median_step_s,
                "tokens_per_s": run.tokens_per_s,
                "node": run.node,
                "alert": None if alert is None else alert.state,
                "alert_ratio": None if alert is None else alert.ratio,
                **named[run.experiment_id],
                **commits.of_trainer(run),
                **_settings(run.spec, MAIN),
            }


TABLES: dict[str, Table] = {
    "experiments": Table(experiments.COLUMNS, experiments.rows),
    "runs": Table(
        _kinds("integer", "run_id", "experiment_id")
        | _kinds("text", "state")
        | _kinds("integer", "repetition", "block", "position", "attempts")
        | _kinds("instant", "created_at", "started_at", "finished_at")
        | _kinds("number", "duration_s", "median_step_s", "tokens_per_s", "final_loss", *PHASE_COLUMNS)
        | _kinds("text", "unit")
        | _kinds("number", *(f"latency_{name}_s" for name in LATENCY), FIRST)
        | {f"goal_{name}": kind for name, kind in GOAL_KINDS.items()}
        | _kinds("number", "node_s", *COSTS)
        | _kinds("integer", "flagged_steps")
        | _kinds("text", "node", "environment_sha256", "error_slug", "error_detail")
        | COMMIT_KINDS
        | MEASURES
        | TITLE_KINDS
        | _kinds("text", "build")
        | RESOLVED_KINDS
        | SETTING_KINDS,
        _runs,
    ),
    "steps": Table(
        _kinds("integer", "run_id", "experiment_id", "step")
        | _kinds("boolean", "warmup")
        | _kinds("number", "loss", "accuracy", *NOT_EVALUATED, "step_s", *PHASE_COLUMNS)
        | _kinds("text", "flagged")
        | MAIN_KINDS,
        _steps,
    ),
    "ops": Table(
        _kinds("integer", "run_id", "experiment_id")
        | _kinds("text", "op", "phase")
        | _kinds("integer", "calls")
        | _kinds("number", "time_s")
        | _kinds("integer", "flop", "bytes")
        | MAIN_KINDS,
        _ops,
    ),
    "variants": Table(VARIANT_KINDS | _kinds("number", "cost") | RESOLVED_KINDS | MAIN_KINDS, _variants),
    "tuning_trials": Table(_kinds("integer", "experiment_id") | TRIAL_KINDS, _tuning_trials),
    "history": Table(
        _kinds("text", "series")
        | _kinds("integer", "series_id", "run_id", "experiment_id")
        | _kinds("instant", "finished_at")
        | _kinds("number", "median_step_s", "tokens_per_s")
        | _kinds("text", "node", "alert")
        | _kinds("number", "alert_ratio")
        | COMMIT_KINDS
        | MAIN_KINDS,
        _history,
    ),
}


def rows(
    database: Database, table: str, columns: Collection[str], filters: Any, sort: Sort, price: float | None
) -> Iterator[Row]:
    """The rows of a table with at least these columns. price: of an hour of a node."""
    found = TABLES[table].rows(database, filters, sort)
    if costs := {name: of for name, of in COSTS.items() if name in TABLES[table].columns}:
        found = ({**row, **{name: cost.of_time(price, row[of]) for name, of in costs.items()}} for row in found)
    return with_measures(database, found) if table == "runs" and not MEASURES.keys().isdisjoint(columns) else found
