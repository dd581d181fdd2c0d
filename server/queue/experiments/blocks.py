"""Blocks of runs. A submission queues blocks; an experiment with `stop` gets further blocks one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import orjson
from sqlalchemy import ColumnElement, and_, func, literal_column, select
from sqlalchemy.orm import Session

from taskloom.contract.experiments import ExperimentRequest
from taskloom.server import bulk
from taskloom.server.db import LOCKED, Database, now
from taskloom.server.queue.experiments import canonical, primary
from taskloom.server.queue.experiments.expansion import expand
from taskloom.server.queue.experiments.memory import run_memory_bytes
from taskloom.server.queue.experiments.variants import Planned, Variant
from taskloom.server.queue.tables.attempts import Attempt
from taskloom.server.queue.tables.experiments import Block, Experiment
from taskloom.server.queue.tables.runs import Run
from taskloom.server.queue.tables.states import OPEN, RUN
from taskloom.server.queue.transitions import changes, ends
from taskloom.server.queue.transitions.changes import Cause
from taskloom.server.queue.workers.capacity import Capacity


def insert_runs(
    session: Session,
    experiment: Experiment,
    request: ExperimentRequest,
    variants: list[Variant],
    planned: list[Planned],
    cause: Cause,
) -> None:
    """Queue planned runs of an experiment, with their blocks."""
    requires = request.requires
    needs = [
        _Needs(
            variant.cores_needed(requires.cores),
            frozenset(variant.config.cores or ()),
            max(variant.memory_bytes, requires.memory_bytes or 0),
        )
        for variant in variants
    ]
    in_block: dict[int, list[_Needs]] = {}
    for run in planned:
        in_block.setdefault(run.block, []).append(needs[run.variant])
    of_blocks = [(number, *_together(of).columns()) for number, of in sorted(in_block.items())]
    bulk.insert(session, Block, ("number", *_Needs.COLUMNS), of_blocks, {"experiment_id": experiment.id})
    by_variant = [
        (_text(variant.values), _text(variant.spec), variant.shape, *needed.columns())
        for variant, needed in zip(variants, needs, strict=True)
    ]
    of_runs = [
        (run.position, run.block, run.repetition, _is_traced(request, run), run.role, *by_variant[run.variant])
        for run in planned
    ]
    same = {
        "experiment_id": experiment.id,
        "rank": -request.priority,
        "timeout_s": request.limits.timeout_s,
        "purpose": "timing",
        "state": RUN.states[0],
        "attempts": 0,
        "losses": 0,
        "created_at": cause.at,
        "queued_at": cause.at,
    }
    columns = ("position", "block", "repetition", "trace", "role", "variant", "spec", "shape", *_Needs.COLUMNS)
    bulk.insert(session, Run, columns, of_runs, same)
    new = and_(Run.experiment_id == experiment.id, Run.block.between(min(in_block), max(in_block)))
    changes.note_all(session, cause, "submit", new)


def _text(value: object) -> str:
    return orjson.dumps(value).decode()


def _is_traced(request: ExperimentRequest, run: Planned) -> bool:
    return request.trace is True or (request.trace == "first" and run.repetition == 1)


@dataclass(frozen=True)
class _Needs:
    """Requirements of a run or of a block."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("cores_needed", "pinned_cores", "memory_needed_bytes")

    cores: int
    pinned: frozenset[int]
    memory_bytes: int

    def columns(self) -> tuple[int, str, int]:
        """Values of COLUMNS."""
        return self.cores, ",".join(map(str, sorted(self.pinned))), self.memory_bytes


def _together(runs: Sequence[_Needs]) -> _Needs:
    """Requirements of a worker that can run all of these runs."""
    if len(runs) == 1:
        return runs[0]
    return _Needs(
        max(run.cores for run in runs),
        frozenset().union(*(run.pinned for run in runs)),
        max(run.memory_bytes for run in runs),
    )


@dataclass(frozen=True)
class Ended:
    """Input of the stopping rule of an experiment whose runs have all ended.

    primary: the sides of its question. values: each variant with the median steps of its succeeded runs, by block.
    runs: number of runs, to detect an outdated decision. repetitions: number of blocks that have ended. spent_s:
    workers' time so far.
    """

    experiment_id: int
    request: ExperimentRequest
    primary: tuple[Mapping[str, Any], Mapping[str, Any]] | None
    runs: int
    values: list[tuple[dict[str, Any], dict[int, float]]]
    repetitions: int
    spent_s: float


def undecided(database: Database) -> list[Ended]:
    """Experiments whose blocks have all ended, and which must now either stop or get another block."""
    with database.read() as session:
        query = select(Experiment).where(
            undecided_rows(), Experiment.cancelled_at.is_(None), ~ends.has_open_run(), ~tunes()
        )
        return [_ended(session, experiment) for experiment in session.scalars(query.order_by(Experiment.id))]


def _ended(session: Session, experiment: Experiment) -> Ended:
    values: dict[str, tuple[dict[str, Any], dict[int, float]]] = {}
    runs = select(Run.spec, Run.variant, Run.block, Run.state, Run.median_step_s)
    for spec, variant, block, state, median_step_s in session.execute(
        runs.where(Run.experiment_id == experiment.id).order_by(Run.id)
    ):
        _, by_block = values.setdefault(canonical.sha256(spec), (variant, {}))
        if state == "succeeded" and median_step_s is not None:
            by_block[block] = median_step_s
    return Ended(
        experiment_id=experiment.id,
        request=ExperimentRequest.model_validate(experiment.request),
        primary=primary.of_experiment(session, experiment),
        runs=experiment.runs,
        values=list(values.values()),
        repetitions=complete(session, experiment.id),
        spent_s=spent_s(session, experiment.id),
    )


def decide(database: Database, ended: Ended, rel_ci: float | None, reason: str | None) -> bool:
    """Store the state of the experiment, and queue its next block unless there is a reason to stop.

    Returns whether a block was queued. Nothing changes if the experiment has changed since: another server was faster,
    it was cancelled, or a run was retried.
    """
    longer = ended.request.model_copy(update={"repetitions": ended.repetitions + 1, "stop": None})
    variants: list[Variant] = []
    planned: list[Planned] = []
    if reason is None:
        # Without new checks: the submission was checked against nodes and limits.
        variants, planned = expand(longer, 2 * ended.runs, run_memory_bytes, Capacity())
    block = planned[-len(variants) :] if variants else []
    with database.write() as session:
        experiment = session.get(Experiment, ended.experiment_id, with_for_update=LOCKED)
        if experiment is None or not is_undecided(session, experiment, ended.runs):
            return False
        experiment.rel_ci, experiment.stop_reason = rel_ci, reason
        experiment.undecided = reason is None
        if block:
            cause = Cause(changes.SERVER, now(session), f"the stopping rule asks for repetition {longer.repetitions}")
            insert_runs(session, experiment, ended.request, variants, block, cause)
            experiment.runs += len(block)
    return bool(block)


def undecided_rows() -> ColumnElement[bool]:
    """SQL: the column alone, so that SQLite's planner can use its partial index."""
    return literal_column("experiment.undecided")


def is_undecided(session: Session, experiment: Experiment, runs: int) -> bool:
    """Whether a locked experiment still has `runs` runs, all ended, and waits for the decision on its next block."""
    if experiment.cancelled_at is not None or not experiment.undecided or experiment.runs != runs:
        return False
    return not ends.is_open(session, experiment.id)


def tunes() -> ColumnElement[bool]:
    """SQL: the experiment is a tuning."""
    tune: ColumnElement[str] = Experiment.request["tune"].as_string()
    return tune.is_not(None)


def complete(session: Session, experiment_id: int) -> int:
    """Number of an experiment's blocks that have ended."""
    of_it = select(func.count(Run.block.distinct())).where(Run.experiment_id == experiment_id)
    open_ones = of_it.where(Run.state.in_(OPEN))
    return session.execute(of_it).scalar_one() - session.execute(open_ones).scalar_one()


def spent_s(session: Session, experiment_id: int) -> float:
    """Time of workers spent on all attempts of an experiment."""
    spent = func.sum(func.coalesce(Attempt.finished_at, now(session)) - Attempt.claimed_at)
    of_it = select(spent).join(Run, Run.id == Attempt.run_id).where(Run.experiment_id == experiment_id)
    return float(session.execute(of_it).scalar_one() or 0.0)
