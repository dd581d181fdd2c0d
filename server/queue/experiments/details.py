"""Experiments as the API shows them: summaries, details, and the phase of a tuning."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from gpt2core.spec.config import DEFAULTS
from gpt2core.spec.models import preset_name
from taskloom.contract.experiments import (
    MOST_SHOWN,
    ExperimentDetail,
    ExperimentSummary,
    Phase,
    StoppingState,
    TuningState,
)
from taskloom.server.access.keys.models import Key
from taskloom.server.db import Database, existing, utc
from taskloom.server.queue.attempts import commits, node_time
from taskloom.server.queue.experiments import blocks
from taskloom.server.queue.tables.experiments import Block, Experiment, ExperimentKey, ExperimentTag
from taskloom.server.queue.tables.runs import Run, is_flagged
from taskloom.server.queue.tables.states import OPEN


def show(database: Database, experiment_id: int) -> ExperimentDetail:
    """Raises NotFound."""
    with database.read() as session:
        return detail(session, existing(session, Experiment, experiment_id))


def submitters(session: Session, experiment_ids: Iterable[int]) -> dict[int, str]:
    """Names of the keys with which experiments were submitted; those without a key are missing."""
    of_names = select(ExperimentKey.experiment_id, Key.name).join(Key, Key.id == ExperimentKey.key_id)
    return dict(session.execute(of_names.where(ExperimentKey.experiment_id.in_(experiment_ids))).all())


def summaries(session: Session, experiments: list[Experiment]) -> list[ExperimentSummary]:
    """Each experiment with the number of its runs by state, and its submitter."""
    ids = [experiment.id for experiment in experiments]
    counts: dict[int, Counter[str]] = {identity: Counter() for identity in ids}
    grouped = select(Run.experiment_id, Run.state, func.count()).where(Run.experiment_id.in_(ids))
    for experiment_id, state, count in session.execute(grouped.group_by(Run.experiment_id, Run.state)):
        counts[experiment_id][state] = count
    of_flagged = select(Run.experiment_id, func.count()).where(Run.experiment_id.in_(ids), is_flagged())
    flagged = dict(session.execute(of_flagged.group_by(Run.experiment_id)).all())
    names = submitters(session, ids)
    # A block has the node of its runs, which are many more.
    of_nodes = select(Block.experiment_id, Block.node).where(Block.experiment_id.in_(ids), Block.node.is_not(None))
    nodes = sorted(tuple(row) for row in session.execute(of_nodes.distinct()))
    tags: dict[int, list[str]] = {identity: [] for identity in ids}
    of_tags = select(ExperimentTag.experiment_id, ExperimentTag.tag).where(ExperimentTag.experiment_id.in_(ids))
    for experiment_id, tag in session.execute(of_tags.order_by(ExperimentTag.experiment_id, ExperimentTag.tag)):
        tags[experiment_id].append(tag)
    return [
        ExperimentSummary(
            id=experiment.id,
            name=experiment.name,
            tags=tags[experiment.id],
            state=_state(experiment, counts[experiment.id]),
            runs=experiment.runs,
            by_state=dict(counts[experiment.id]),
            created_at=utc(experiment.created_at),
            started_at=None if experiment.started_at is None else utc(experiment.started_at),
            finished_at=None if experiment.finished_at is None else utc(experiment.finished_at),
            submitter=experiment.owner,
            submitter_name=names.get(experiment.id),
            group=experiment.group,
            **asked(experiment.request),
            nodes=[node for experiment_id, node in nodes if experiment_id == experiment.id],
            flagged_runs=flagged.get(experiment.id, 0),
            verdict=experiment.verdict,
            **commits.named(experiment),
        )
        for experiment in experiments
    ]


def asked(request: Mapping[str, Any]) -> dict[str, Any]:
    """What an experiment's row has from its request: purpose, model and axes."""
    builds = {"build": request["builds"]} if request.get("builds") else {}
    parts = (request.get("axes") or {}, *(request.get("zip") or []), request.get("space") or {}, builds)
    axes = {name: values[:MOST_SHOWN] for part in parts for name, values in part.items()}
    model = (request.get("base") or {}).get("model") or DEFAULTS["model"].name
    name = preset_name(model) if isinstance(model, str) else model.get("name", "custom")
    return {"purpose": _purpose(request), "model": None if "model" in axes else name, "axes": axes}


def _purpose(request: Mapping[str, Any]) -> Literal["measure", "calibrate", "confirm"]:
    if request.get("calibrates"):
        return "calibrate"
    return "measure" if request.get("confirms") is None else "confirm"


def _state(experiment: Experiment, by_state: Counter[str]) -> Any:
    if any(by_state[state] for state in OPEN) or (experiment.undecided and experiment.cancelled_at is None):
        return "active"
    return "finished" if experiment.cancelled_at is None else "cancelled"


def detail(session: Session, experiment: Experiment) -> ExperimentDetail:
    summary = summaries(session, [experiment])[0]
    state = None
    if experiment.request.get("stop") is not None:
        state = StoppingState(
            repetitions=blocks.complete(session, experiment.id),
            rel_ci=experiment.rel_ci,
            spent_s=blocks.spent_s(session, experiment.id),
            reason=experiment.stop_reason,
        )
    return ExperimentDetail(
        **summary.model_dump(),
        **node_time.of_experiment(session, experiment.id).model_dump(),
        request=experiment.request,
        notes=experiment.notes,
        stopping=state,
        tuning=_tuning(session, experiment),
        extended=experiment.extended,
    )


PHASES: Mapping[str, Phase] = {"trial": "explore", "drawn": "fresh"}


def phase_of(roles: Iterable[str | None]) -> Phase:
    """The phase of a tuning's block, by the roles of its runs."""
    return next((PHASES[role] for role in roles if role is not None and role in PHASES), "confirm")


def phase(session: Session, experiment: Experiment) -> Phase | None:
    """The phase of a tuning: that of its latest block. None without `tune`."""
    if experiment.request.get("tune") is None:
        return None
    if not experiment.undecided or experiment.cancelled_at is not None:
        return "ended"
    of_it = Run.experiment_id == experiment.id
    latest = select(func.max(Run.block)).where(of_it).scalar_subquery()
    roles = session.scalars(select(Run.role).where(of_it, Run.block == latest)).all()
    return phase_of(roles)


def _tuning(session: Session, experiment: Experiment) -> TuningState | None:
    """Progress of a tuning; None without `tune`."""
    found = phase(session, experiment)
    return None if found is None else TuningState(
        phase=found,
        runs=experiment.runs,
        spent_s=blocks.spent_s(session, experiment.id),
        reason=experiment.stop_reason,
    )
