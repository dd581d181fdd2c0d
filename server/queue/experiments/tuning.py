"""Blocks of a tuning (`tune`). What runs next is computed in read/; the queue stores it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select

from gpt2core.spec.config import TrainConfig
from gpt2core.spec.errors import ConfigError
from taskloom.contract.experiments import ExperimentRequest
from taskloom.contract.plans import PlannedTuning
from taskloom.server.db import LOCKED, Database, now, tell
from taskloom.server.queue.experiments import blocks, details
from taskloom.server.queue.experiments.checks import check_request, check_runnable
from taskloom.server.queue.experiments.memory import run_memory_bytes
from taskloom.server.queue.experiments.refusals import Refusals
from taskloom.server.queue.experiments.variants import Planned, Variant, shape_of
from taskloom.server.queue.tables.experiments import Experiment
from taskloom.server.queue.tables.runs import Run
from taskloom.server.queue.transitions import changes, ends
from taskloom.server.queue.transitions.changes import Cause, Decided
from taskloom.server.queue.workers.capacity import Capacity


@dataclass(frozen=True)
class Part:
    """A run of a block: its role (trial, default, winner, drawn), and its settings beside the base."""

    role: str
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Opening:
    """The start of a tuning: its first block, and its plan."""

    parts: Sequence[Part]
    plan: PlannedTuning


Open = Callable[[ExperimentRequest, Refusals, Callable[[], None]], Opening]


def base_of(request: ExperimentRequest) -> dict[str, Any]:
    """The base as settings of a run."""
    given = request.base.model_dump(exclude_unset=True, exclude_none=True)
    return {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}


def block(
    request: ExperimentRequest, parts: Sequence[Part], number: int, position: int
) -> tuple[list[Variant], list[Planned]]:
    """The variants and runs of a block, which begins at a position of the experiment's order."""
    base = base_of(request)
    variants = [_variant(request, base, part.values) for part in parts]
    planned = [Planned(position + i, number, number + 1, i, part.role) for i, part in enumerate(parts)]
    return variants, planned


def _variant(request: ExperimentRequest, base: Mapping[str, Any], values: Mapping[str, Any]) -> Variant:
    config = TrainConfig.from_dict({**base, **values})
    spec = config.to_dict()
    nodes = request.requires.nodes or 1
    return Variant(values, config, spec, shape_of(spec, nodes), run_memory_bytes(config) // nodes, nodes)


def expand(
    request: ExperimentRequest, capacity: Capacity, open_: Open, between: Callable[[], None]
) -> tuple[list[Variant], list[Planned], PlannedTuning]:
    """The first block of a checked tuning, and its plan. Raises InvalidRequest or SpaceTooLarge."""
    refusals = Refusals(request)
    check_request(request, refusals)
    refusals.raise_if_any()
    base = base_of(request)
    try:
        TrainConfig.from_dict(base)
    except ConfigError as error:
        for each in (error, *error.others):
            refusals.add_setting({}, each)
    refusals.raise_if_any()
    opening = open_(request, refusals, between)
    refusals.raise_if_any()
    variants, planned = block(request, opening.parts, 0, 0)
    for variant in (*variants, *_each_value(request, base)):
        check_runnable(variant, request, refusals, capacity)
    refusals.raise_if_any()
    return variants, planned, opening.plan


def _each_value(request: ExperimentRequest, base: Mapping[str, Any]) -> list[Variant]:
    """The base with each single value that it accepts alone."""
    found = []
    for name, values in request.space.items():
        for value in values:
            try:
                found.append(_variant(request, base, {name: value}))
            except ConfigError:
                continue  # another setting of the space makes it valid
    return found


def undecided(database: Database) -> list[tuple[int, int]]:
    """Tunings whose runs have all ended and that must now end or get another block, with the number of their runs."""
    with database.read() as session:
        query = select(Experiment.id, Experiment.runs).where(
            blocks.undecided_rows(), Experiment.cancelled_at.is_(None), ~ends.has_open_run(), blocks.tunes()
        )
        return [(experiment_id, runs) for experiment_id, runs in session.execute(query.order_by(Experiment.id))]


def decide(database: Database, experiment_id: int, runs: int, parts: Sequence[Part], reason: str | None) -> bool:
    """Store the next block of a tuning, or the reason of its end. Returns whether a block was queued.

    Nothing changes if the experiment has changed since it had `runs` runs: another server was faster, it was cancelled,
    or a run was retried.
    """
    with database.write() as session:
        experiment = session.get(Experiment, experiment_id, with_for_update=LOCKED)
        if experiment is None or not blocks.is_undecided(session, experiment, runs):
            return False
        experiment.stop_reason, experiment.undecided = reason, reason is None
        phase = details.phase_of(part.role for part in parts)
        tell(session, Decided(None if reason is not None else phase, reason))
        if reason is not None:
            ends.close_locked(session, experiment)
            return False
        last = select(func.max(Run.block)).where(Run.experiment_id == experiment_id)
        number = session.execute(last).scalar_one() + 1
        request = ExperimentRequest.model_validate(experiment.request)
        variants, planned = block(request, parts, number, experiment.runs)
        cause = Cause(changes.SERVER, now(session), f"the tuning asks for block {number}")
        blocks.insert_runs(session, experiment, request, variants, planned, cause)
        experiment.runs += len(planned)
    return True
