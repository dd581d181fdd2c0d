"""Deletion of old runs, one experiment at a time, and then of unused files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from sqlalchemy import Select, delete, exists, func, select
from sqlalchemy.orm import Session, aliased

from taskloom.contract.retention import PruneReport, PruneRequest
from taskloom.server.artifact_store import Store
from taskloom.server.db import LOCKED, Database, now
from taskloom.server.queue.attempts import series
from taskloom.server.queue.tables.artifacts import Artifact
from taskloom.server.queue.tables.attempts import Attempt, OutputLine, Result
from taskloom.server.queue.tables.experiments import Experiment
from taskloom.server.queue.tables.runs import Run
from taskloom.server.queue.tables.states import RUN

RUNS_AT_ONCE = 2000  # runs after which a request ends; the experiment that reaches it is completed
CHUNK = 500
BELONGINGS = {"attempts": Attempt.run_id, "results": Result.run_id, "output_lines": OutputLine.run_id}


def prune(database: Database, store: Store, request: PruneRequest) -> PruneReport:
    """Delete the runs that match a request, or only count them. Unfinished experiments are left untouched."""
    with database.read() as session:
        at = now(session)
        experiment_ids = session.scalars(_candidates(request, at)).all()
    counts: Counter[str] = Counter()
    chosen: set[int] = set()
    more = False
    for experiment_id in experiment_ids:
        if counts["runs"] >= RUNS_AT_ONCE and not request.dry_run:
            more = True
            break
        with database.read() if request.dry_run else database.write() as session:
            run_ids, all_of_it = _chosen(session, request, at, experiment_id)
            chosen.update(run_ids)
            counts.update(_count(session, run_ids))
            counts["experiments"] += all_of_it and bool(run_ids)
            if not request.dry_run:
                _delete(session, experiment_id, run_ids, all_of_it)
    files, size_bytes = 0, 0
    if not more:
        files, size_bytes = store.sweep(lambda: _needed(database, chosen), request.dry_run)
    names = ("experiments", "runs", "attempts", "results", "output_lines", "artifacts")
    return PruneReport(
        dry_run=request.dry_run, files=files, bytes=size_bytes, more=more, **{name: counts[name] for name in names}
    )


def _candidates(request: PruneRequest, at: float) -> Select[int]:
    """Ids of finished experiments with runs to delete."""
    other = aliased(Run)
    unfinished = exists().where(other.experiment_id == Run.experiment_id, other.state.not_in(RUN.final()))
    query = (
        select(Run.experiment_id)
        .distinct()
        .where(Run.state.in_(request.states), Run.finished_at <= at - request.older_than_s, ~unfinished)
    )
    if request.experiment_id is not None:
        query = query.where(Run.experiment_id == request.experiment_id)
    return query.order_by(Run.experiment_id)


def _chosen(session: Session, request: PruneRequest, at: float, experiment_id: int) -> tuple[list[int], bool]:
    """Runs of the experiment to delete, and whether these are all of its runs. The experiment and its runs are locked
    as for a retry, so that no run is retried meanwhile."""
    session.execute(select(Experiment.id).where(Experiment.id == experiment_id).with_for_update(**LOCKED))
    of_it = select(Run.id, Run.state, Run.finished_at).where(Run.experiment_id == experiment_id)
    rows = session.execute(of_it.order_by(Run.id).with_for_update()).all()
    if any(row.state not in RUN.final() for row in rows):
        return [], False
    needed = _confirmed(session)
    chosen = [
        row.id
        for row in rows
        if row.state in request.states and row.finished_at <= at - request.older_than_s and row.id not in needed
    ]
    return chosen, len(chosen) == len(rows)


def _confirmed(session: Session) -> set[int]:
    """Runs that an unfinished experiment confirms."""
    confirms = Experiment.request["confirms"].as_integer()
    unfinished = exists().where(Run.experiment_id == Experiment.id, Run.state.not_in(RUN.final()))
    return set(session.scalars(select(confirms).where(confirms.is_not(None), unfinished)))


def _count(session: Session, run_ids: list[int]) -> Counter[str]:
    counts = Counter(runs=len(run_ids))
    for start in range(0, len(run_ids), CHUNK):
        some = run_ids[start : start + CHUNK]
        for name, run_id in BELONGINGS.items():
            counts[name] += session.execute(select(func.count()).where(run_id.in_(some))).scalar_one()
        of_them = select(func.count()).select_from(Artifact).join(Attempt, Attempt.id == Artifact.attempt_id)
        counts["artifacts"] += session.execute(of_them.where(Attempt.run_id.in_(some))).scalar_one()
    return counts


def _delete(session: Session, experiment_id: int, run_ids: list[int], all_of_it: bool) -> None:
    """Delete runs; the schema's foreign keys delete everything that belongs to them."""
    lost = series.without(session, run_ids)
    for start in range(0, len(run_ids), CHUNK):
        session.execute(delete(Run).where(Run.id.in_(run_ids[start : start + CHUNK])))
    series.lose(session, lost)
    if all_of_it:
        session.execute(delete(Experiment).where(Experiment.id == experiment_id))


def _needed(database: Database, without_runs: Collection[int]) -> set[str]:
    """Hashes of the files of all artifacts, except those of `without_runs`."""
    query = select(Artifact.sha256, Attempt.run_id).join(Attempt, Attempt.id == Artifact.attempt_id)
    with database.read() as session:
        return {sha256 for sha256, run_id in session.execute(query) if run_id not in without_runs}
