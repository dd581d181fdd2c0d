"""Submissions of experiments, idempotent by key and body."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import func, insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from taskloom.contract.experiments import (
    ExperimentDetail,
    ExperimentRequest,
    StoppingState,
    TuningState,
)
from taskloom.contract.labels import INSTALLED, KEPT, MPI, NODES, build_label, runtime_label
from taskloom.server.access.keys.keyring import ANYBODY, Caller
from taskloom.server.db import Database, now, utc
from taskloom.server.errors import IdempotencyConflict
from taskloom.server.queue.attempts import commits, node_time
from taskloom.server.queue.experiments import canonical, quotas, tuning
from taskloom.server.queue.experiments.blocks import insert_runs
from taskloom.server.queue.experiments.details import asked, submitters
from taskloom.server.queue.experiments.expansion import Enough, one
from taskloom.server.queue.experiments.planning import expanded, storable
from taskloom.server.queue.tables.experiments import Block, Experiment, ExperimentKey, ExperimentTag, RequiredLabel
from taskloom.server.queue.tables.runs import Run
from taskloom.server.queue.tables.states import RUN
from taskloom.server.queue.transitions.changes import Cause
from taskloom.server.settings import Settings

MANY_RUNS = 500  # so many new runs mislead a planner that has not counted them


def submit(
    database: Database,
    settings: Settings,
    request: ExperimentRequest,
    owner: str,
    idempotency_key: str | None,
    caller: Caller = ANYBODY,
    enough: Enough = one,
    opening: tuning.Open | None = None,
    named: Callable[[Mapping[str, Any]], str] | None = None,
) -> tuple[ExperimentDetail, bool]:
    """Queue every run of an experiment. Returns the experiment, and whether it is new.

    owner: the actor in histories, to whom the idempotency key belongs. The same idempotency key and body of one owner
    get the first answer again. caller: whose limits apply. enough: chooses the number of repetitions if the request
    does not. opening: plans a request with `tune`, whose limit is for all its planned runs.
    named: names a request that has no name.

    Raises InvalidRequest, ExpansionTooLarge, ExclusionTooLarge, SpaceTooLarge, QueueFull, QuotaUsed or
    IdempotencyConflict.
    """
    body = storable(request)
    sha256 = canonical.sha256(body)

    def name() -> str:  # of a request whose configurations are accepted
        return request.name or ("" if named is None else named(body))

    if idempotency_key is not None:
        with database.read() as session:
            first = _submitted_before(session, owner, idempotency_key, sha256, name)
        if first is not None:
            return first, False
    variants, planned, runs = expanded(database, settings, request, enough, opening)
    called = name()
    if request.tune is None and request.repetitions is None and (planned[-1].repetition > 1 or "repetitions" in body):
        body["repetitions"] = planned[-1].repetition
    try:
        with database.write() as session:
            quotas.check(session, settings, caller, runs)
            experiment = Experiment(
                name=called,
                notes=request.notes,
                request=body,
                request_sha256=sha256,
                owner=owner,
                group=caller.group,
                idempotency_key=idempotency_key,
                runs=len(planned),
                created_at=now(session),
                started_at=None,
                finished_at=None,
                cancelled_at=None,
                undecided=request.stop is not None or request.tune is not None,
                alerts_at=None,
                **commits.stored(request),
            )
            session.add(experiment)
            session.flush()
            if caller.key_id is not None:
                session.add(ExperimentKey(experiment_id=experiment.id, key_id=caller.key_id))
            tag(session, experiment.id, request.tags)
            runtimes = {variant.runtime for variant in variants if variant.runtime is not None}
            ranks = [variant.config.ranks for variant in variants]
            ranks += [count or 1 for count in (request.space or {}).get("ranks", ())]
            nodes = request.requires.nodes or 1
            fields = {
                **request.requires.labels,
                **{build_label(build): KEPT for build in request.builds},
                **{runtime_label(runtime): INSTALLED for runtime in runtimes},
                **({MPI: INSTALLED} if max(ranks) > 1 and nodes == 1 else {}),
                **({NODES: str(nodes)} if nodes > 1 else {}),
            }
            labels = [json.dumps([key, value]) for key, value in fields.items()]
            if labels:
                required = [{"experiment_id": experiment.id, "label": label} for label in labels]
                session.execute(insert(RequiredLabel), required)
            insert_runs(session, experiment, request, variants, planned, Cause(owner, experiment.created_at))
            answer = _first_answer(session, experiment, called)
    except IntegrityError:  # the same key arrived twice at the same moment
        if idempotency_key is None:
            raise
        with database.read() as session:
            first = _submitted_before(session, owner, idempotency_key, sha256, name)
        if first is None:
            raise
        return first, False
    if len(planned) >= MANY_RUNS:
        database.count(Run, Block)
    return answer, True


def tag(session: Session, experiment_id: int, tags: Sequence[str]) -> None:
    if tags:
        rows = [{"experiment_id": experiment_id, "tag": tag} for tag in dict.fromkeys(tags)]
        session.execute(insert(ExperimentTag), rows)


def _submitted_before(
    session: Session, owner: str, key: str, sha256: str, name: Callable[[], str]
) -> ExperimentDetail | None:
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
    return _first_answer(session, experiment, name())


def _first_answer(session: Session, experiment: Experiment, name: str) -> ExperimentDetail:
    """The answer to the submission, computed again from values that do not change."""
    runs = experiment.runs
    key_names = {} if experiment.owner == ANYBODY.actor else submitters(session, [experiment.id])
    if experiment.is_open_ended or experiment.extended:  # blocks may have been added since
        repetitions = experiment.request.get("repetitions", 1)
        first = select(func.count()).where(Run.experiment_id == experiment.id, Run.block < repetitions)
        runs = session.execute(first).scalar_one()
    return ExperimentDetail(
        id=experiment.id,
        name=name,
        tags=sorted(set(experiment.request.get("tags", []))),
        notes=experiment.request.get("notes", ""),
        state="active",
        runs=runs,
        by_state={RUN.states[0]: runs},
        created_at=utc(experiment.created_at),
        submitter=experiment.owner,
        submitter_name=key_names.get(experiment.id),
        group=experiment.group,
        node_time_missing=node_time.NO_RESULT,
        **commits.named(experiment),
        **asked(experiment.request),
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
