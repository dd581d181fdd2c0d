"""Experiments: submit, plan, change, cancel, retry."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from anyio import NoEventLoopError, from_thread
from sqlalchemy import delete, func, insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from taskloom.contract.experiments import (
    DryRun,
    ExperimentChange,
    ExperimentDetail,
    ExperimentRequest,
    ExperimentSummary,
    Phase,
    PlannedRun,
    StoppingState,
    TuningState,
)
from taskloom.contract.labels import INSTALLED, KEPT, build_label, runtime_label
from taskloom.server.access.keys.models import Key
from taskloom.server.db import LOCKED, Database, now, utc
from taskloom.server.errors import (
    ExpansionTooLarge,
    IdempotencyConflict,
    InvalidRequest,
    InvalidTransition,
    NotFound,
    QueueFull,
)
from taskloom.server.queue.experiments import blocks, canonical, durations, tuning
from taskloom.server.queue.experiments.blocks import insert_runs
from taskloom.server.queue.experiments.expansion import Enough, expand, one
from taskloom.server.queue.experiments.memory import run_memory_bytes
from taskloom.server.queue.experiments.models import Experiment, ExperimentKey, ExperimentTag, RequiredLabel
from taskloom.server.queue.experiments.variants import Planned, Variant
from taskloom.server.queue.runs import node_time
from taskloom.server.queue.runs.changes import Cause
from taskloom.server.queue.runs.models import Run, is_flagged, is_queued
from taskloom.server.queue.runs.service import DECIDING, cancel_locked, retry_locked
from taskloom.server.queue.runs.states import OPEN, RUN
from taskloom.server.queue.workers.service import capacity
from taskloom.server.settings import Settings


def submit(
    database: Database,
    settings: Settings,
    request: ExperimentRequest,
    owner: str,
    idempotency_key: str | None,
    key_id: int | None = None,
    enough: Enough = one,
    opening: tuning.Open | None = None,
) -> tuple[ExperimentDetail, bool]:
    """Queue every run of an experiment. Returns the experiment, and whether it is new.

    owner: the actor in histories, to whom the idempotency key belongs. The same idempotency key and body of one owner
    get the first answer again. key_id: the API key whose queue limit applies. enough: chooses the number of
    repetitions if the request does not. opening: plans a request with `tune`, whose limit is for all its planned runs.

    Raises InvalidRequest, ExpansionTooLarge, ExclusionTooLarge, SpaceTooLarge, QueueFull or IdempotencyConflict.
    """
    body = _storable(request)
    sha256 = canonical.sha256(body)
    if idempotency_key is not None:
        with database.read() as session:
            first = _submitted_before(session, owner, idempotency_key, sha256)
        if first is not None:
            return first, False
    variants, planned, runs = _expand(database, settings, request, enough, opening)
    if request.tune is None and request.repetitions is None and (planned[-1].repetition > 1 or "repetitions" in body):
        body["repetitions"] = planned[-1].repetition
    try:
        with database.write() as session:
            _check_room(session, settings, key_id, runs)
            experiment = Experiment(
                name=request.name,
                notes=request.notes,
                request=body,
                request_sha256=sha256,
                owner=owner,
                idempotency_key=idempotency_key,
                runs=len(planned),
                created_at=now(session),
                started_at=None,
                finished_at=None,
                cancelled_at=None,
                undecided=request.stop is not None or request.tune is not None,
                alerts_at=None,
            )
            session.add(experiment)
            session.flush()
            if key_id is not None:
                session.add(ExperimentKey(experiment_id=experiment.id, key_id=key_id))
            _tag(session, experiment.id, request.tags)
            runtimes = {variant.runtime for variant in variants if variant.runtime is not None}
            wanted = {
                **request.requires.labels,
                **{build_label(build): KEPT for build in request.builds},
                **{runtime_label(runtime): INSTALLED for runtime in runtimes},
            }
            labels = [json.dumps([key, value]) for key, value in wanted.items()]
            if labels:
                required = [{"experiment_id": experiment.id, "label": label} for label in labels]
                session.execute(insert(RequiredLabel), required)
            insert_runs(session, experiment, request, variants, planned, Cause(owner, experiment.created_at))
            return _first_answer(session, experiment), True
    except IntegrityError:  # the same key arrived twice at the same moment
        if idempotency_key is None:
            raise
        with database.read() as session:
            first = _submitted_before(session, owner, idempotency_key, sha256)
        if first is None:
            raise
        return first, False


def change(database: Database, experiment_id: int, wanted: ExperimentChange) -> ExperimentDetail:
    """Change its name, tags or notes. Raises NotFound."""
    with database.write() as session:
        experiment = _get(session, experiment_id, lock=True)
        if wanted.name is not None:
            experiment.name = wanted.name
        if wanted.notes is not None:
            experiment.notes = wanted.notes
        if wanted.tags is not None:
            session.execute(delete(ExperimentTag).where(ExperimentTag.experiment_id == experiment_id))
            _tag(session, experiment_id, wanted.tags)
        session.flush()
        return _detail(session, experiment)


def _tag(session: Session, experiment_id: int, tags: Sequence[str]) -> None:
    if tags:
        rows = [{"experiment_id": experiment_id, "tag": tag} for tag in dict.fromkeys(tags)]
        session.execute(insert(ExperimentTag), rows)


def dry_run(
    database: Database, settings: Settings, request: ExperimentRequest, enough: Enough, opening: tuning.Open
) -> tuple[DryRun, list[Variant]]:
    """Plan a submission: its runs, and its variants. Raises InvalidRequest, ExpansionTooLarge, ExclusionTooLarge or
    SpaceTooLarge."""
    _storable(request)
    if request.tune is not None:
        return _planned_tuning(database, settings, request, opening)
    variants, planned, _ = _expand(database, settings, request, enough)
    repetitions = planned[-1].repetition
    with database.read() as session:
        estimated = durations.estimate(session, variants, _stop_if_gone)
    plan = DryRun(
        runs=len(planned),
        variants=len(variants),
        repetitions=repetitions,
        memory_bytes=max(variant.memory_bytes for variant in variants),
        estimated_s=_attempts(request, repetitions) * sum(estimated.of_variants),
        estimate_basis=estimated.basis,
        order=_order(variants, planned),
    )
    return plan, variants


def _planned_tuning(
    database: Database, settings: Settings, request: ExperimentRequest, opening: tuning.Open
) -> tuple[DryRun, list[Variant]]:
    """The plan of a tuning; its runs are estimated to take as long as those of its first block."""
    with database.read() as session:
        largest = capacity(session)
    variants, planned, plan = tuning.expand(request, largest, opening, _stop_if_gone)
    _check_size(settings, plan.runs)
    with database.read() as session:
        estimated = durations.estimate(session, variants, _stop_if_gone)
    found = DryRun(
        runs=plan.runs,
        variants=plan.valid,
        repetitions=1,
        memory_bytes=max(variant.memory_bytes for variant in variants),
        estimated_s=_attempts(request, 1) * plan.runs * sum(estimated.of_variants) / len(variants),
        estimate_basis=estimated.basis,
        tuning=plan,
        order=_order(variants, planned),
    )
    return found, variants


def _order(variants: Sequence[Variant], planned: Sequence[Planned]) -> list[PlannedRun]:
    return [
        PlannedRun(
            position=run.position,
            block=run.block,
            repetition=run.repetition,
            variant=dict(variants[run.variant].values),
        )
        for run in planned
    ]


def show(database: Database, experiment_id: int) -> ExperimentDetail:
    """Raises NotFound."""
    with database.read() as session:
        return _detail(session, _get(session, experiment_id))


def cancel(database: Database, experiment_id: int, actor: str) -> ExperimentDetail:
    """Cancel every unfinished run: queued ones at once, others at their next heartbeat. Idempotent.

    Raises NotFound or InvalidTransition.
    """
    with database.write() as session:
        experiment = _get(session, experiment_id, lock=True)  # no block is added meanwhile
        open_runs = _locked(session, experiment_id, OPEN)
        if not open_runs and experiment.cancelled_at is None and not experiment.undecided:
            raise InvalidTransition(
                f"experiment {experiment_id} is finished; there is nothing to cancel", current="finished", allowed=[]
            )
        cause = Cause(actor, now(session))
        cancel_locked(session, open_runs, cause)
        experiment.cancelled_at = experiment.cancelled_at or cause.at
        session.flush()
        blocks.close_locked(session, experiment)
        return _detail(session, experiment)


def retry(database: Database, experiment_id: int, actor: str) -> ExperimentDetail:
    """Queue every failed, cancelled or quarantined run again. A stopping rule or a tuning that was cancelled between
    two blocks continues. Raises NotFound or InvalidTransition."""
    with database.write() as session:
        experiment = _get(session, experiment_id, lock=True)
        cause = Cause(actor, now(session))
        runs = _locked(session, experiment_id, tuple(RUN.verbs["retry"]))
        if not runs and not (experiment.is_open_ended and experiment.cancelled_at is not None):
            state = summaries(session, [experiment])[0].state
            raise InvalidTransition(
                f"experiment {experiment_id} is {state}; none of its runs can be retried", current=state, allowed=[]
            )
        retry_locked(session, runs, cause)
        experiment.cancelled_at = None
        blocks.reopen(experiment)
        session.flush()
        return _detail(session, experiment)


def _locked(session: Session, experiment_id: int, states: tuple[str, ...]) -> Sequence[Any]:
    """The experiment's runs in these states, locked, as rows of the columns DECIDING."""
    query = select(*DECIDING).where(Run.experiment_id == experiment_id, Run.state.in_(states))
    return session.execute(query.order_by(Run.id).with_for_update(**LOCKED)).all()


def _storable(request: ExperimentRequest) -> dict[str, Any]:
    """The request as it is stored. Raises InvalidRequest for text that JSON or the database cannot hold."""
    body = request.model_dump(mode="json", exclude_unset=True)
    try:
        text = json.dumps(body, ensure_ascii=False, allow_nan=False).encode().decode()
    except ValueError:  # UnicodeEncodeError is one
        text = "\\u0000"
    if "\\u0000" in text:
        entry = {"pointer": "", "field": "body", "value": None, "accepted": "valid Unicode without null characters"}
        raise InvalidRequest([entry])
    return body


def _expand(
    database: Database,
    settings: Settings,
    request: ExperimentRequest,
    enough: Enough,
    opening: tuning.Open | None = None,
) -> tuple[list[Variant], list[Planned], int]:
    """Variants and runs to queue now, and the number of all runs."""
    with database.read() as session:
        largest = capacity(session)
    if request.tune is not None and opening is not None:
        variants, planned, plan = tuning.expand(request, largest, opening, _stop_if_gone)
        _check_size(settings, plan.runs)
        return variants, planned, plan.runs
    variants, planned = expand(request, settings.max_runs, run_memory_bytes, largest, _stop_if_gone, enough)
    return variants, planned, len(planned)


def _check_size(settings: Settings, runs: int) -> None:
    """Raises ExpansionTooLarge."""
    if runs > settings.max_runs:
        raise ExpansionTooLarge(
            f"the experiment has {runs} runs; the limit is {settings.max_runs}", runs=runs, max_runs=settings.max_runs
        )


def _stop_if_gone() -> None:
    """Raise the cancellation if the client has gone."""
    with contextlib.suppress(NoEventLoopError):  # called by the server itself, without a client
        from_thread.check_cancelled()


def _check_room(session: Session, settings: Settings, key_id: int | None, more: int) -> None:
    """Raises QueueFull."""
    query = select(func.count()).select_from(Run).where(is_queued())
    if key_id is not None:
        query = query.join(ExperimentKey, ExperimentKey.experiment_id == Run.experiment_id)
        query = query.where(ExperimentKey.key_id == key_id)
    queued = session.execute(query).scalar_one()
    if queued + more > settings.max_queued:
        raise QueueFull(
            f"{queued} runs are queued and {more} would be added; the limit is {settings.max_queued}",
            queued=queued,
            runs=more,
            max_queued=settings.max_queued,
        )


def _submitted_before(session: Session, owner: str, key: str, sha256: str) -> ExperimentDetail | None:
    """The first answer to this key of this owner. Raises IdempotencyConflict for another body."""
    same = select(Experiment).where(Experiment.owner == owner, Experiment.idempotency_key == key)
    experiment = session.scalars(same).first()
    if experiment is None:
        return None
    if experiment.request_sha256 != sha256:
        raise IdempotencyConflict(
            f"this Idempotency-Key was used with another body, for experiment {experiment.id}",
            experiment_id=experiment.id,
        )
    return _first_answer(session, experiment)


def _first_answer(session: Session, experiment: Experiment) -> ExperimentDetail:
    """The answer to the submission, computed again from values that do not change."""
    runs = experiment.runs
    if experiment.is_open_ended:  # blocks may have been added since
        asked = experiment.request.get("repetitions", 1)
        first = select(func.count()).where(Run.experiment_id == experiment.id, Run.block < asked)
        runs = session.execute(first).scalar_one()
    return ExperimentDetail(
        id=experiment.id,
        name=experiment.request.get("name", ""),
        tags=sorted(set(experiment.request.get("tags", []))),
        notes=experiment.request.get("notes", ""),
        state="active",
        runs=runs,
        by_state={RUN.states[0]: runs},
        created_at=utc(experiment.created_at),
        submitter=experiment.owner,
        node_time_missing=node_time.NO_RESULT,
        purpose=_purpose(experiment.request),
        request=experiment.request,
        stopping=_stopping_at_first(experiment),
        tuning=None
        if experiment.request.get("tune") is None
        else TuningState(phase="explore", runs=runs, spent_s=0.0, reason=None),
    )


def _stopping_at_first(experiment: Experiment) -> StoppingState | None:
    """State of the stopping rule before any run."""
    if experiment.request.get("stop") is None:
        return None
    return StoppingState(repetitions=0, rel_ci=None, spent_s=0.0, reason=None)


def _attempts(request: ExperimentRequest, repetitions: int) -> int:
    """Attempts of each variant: its repetitions, and those that are traced."""
    return repetitions + {True: repetitions, "first": 1}.get(request.trace, 0)


def summaries(session: Session, experiments: list[Experiment]) -> list[ExperimentSummary]:
    """Each experiment with the number of its runs by state, and its submitter."""
    ids = [experiment.id for experiment in experiments]
    counts: dict[int, Counter[str]] = {identity: Counter() for identity in ids}
    grouped = select(Run.experiment_id, Run.state, func.count()).where(Run.experiment_id.in_(ids))
    for experiment_id, state, count in session.execute(grouped.group_by(Run.experiment_id, Run.state)):
        counts[experiment_id][state] = count
    of_flagged = select(Run.experiment_id, func.count()).where(Run.experiment_id.in_(ids), is_flagged())
    flagged = dict(session.execute(of_flagged.group_by(Run.experiment_id)).all())
    of_names = select(ExperimentKey.experiment_id, Key.name).join(Key, Key.id == ExperimentKey.key_id)
    names = dict(session.execute(of_names.where(ExperimentKey.experiment_id.in_(ids))).all())
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
            purpose=_purpose(experiment.request),
            flagged_runs=flagged.get(experiment.id, 0),
            verdict=None if experiment.finished_at is None else experiment.verdict,
        )
        for experiment in experiments
    ]


def _purpose(request: Mapping[str, Any]) -> Literal["measure", "calibrate", "confirm"]:
    if request.get("calibrates"):
        return "calibrate"
    return "measure" if request.get("confirms") is None else "confirm"


def _state(experiment: Experiment, by_state: Counter[str]) -> Any:
    if any(by_state[state] for state in OPEN) or (experiment.undecided and experiment.cancelled_at is None):
        return "active"
    return "finished" if experiment.cancelled_at is None else "cancelled"


def _detail(session: Session, experiment: Experiment) -> ExperimentDetail:
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
    )


PHASES: Mapping[str, Phase] = {"trial": "explore", "drawn": "fresh"}


def phase(session: Session, experiment: Experiment) -> Phase | None:
    """The phase of a tuning: that of its latest block. None without `tune`."""
    if experiment.request.get("tune") is None:
        return None
    if not experiment.undecided or experiment.cancelled_at is not None:
        return "ended"
    of_it = Run.experiment_id == experiment.id
    latest = select(func.max(Run.block)).where(of_it).scalar_subquery()
    roles = session.scalars(select(Run.role).where(of_it, Run.block == latest)).all()
    return next((PHASES[role] for role in roles if role is not None and role in PHASES), "confirm")


def _tuning(session: Session, experiment: Experiment) -> TuningState | None:
    """Progress of a tuning; None without `tune`."""
    found = phase(session, experiment)
    return None if found is None else TuningState(
        phase=found,
        runs=experiment.runs,
        spent_s=blocks.spent_s(session, experiment.id),
        reason=experiment.stop_reason,
    )


def _get(session: Session, experiment_id: int, lock: bool = False) -> Experiment:
    experiment = session.get(
        Experiment, experiment_id, with_for_update=LOCKED if lock else None, populate_existing=lock
    )
    if experiment is None:
        raise NotFound(f"there is no experiment {experiment_id}")
    return experiment
