"""From stored results to analysis/, which knows neither database nor HTTP, and back to the contract."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from analysis.comparison import compare as compare_processes
from analysis.processes import Process
from analysis.scaling import scaling as scale_processes
from contract.analysis import Comparison, ScalingTable
from server.analysis.selection import Selection
from server.attempts import payload as payloads
from server.attempts.models import Attempt, Result
from server.db import Database
from server.errors import NotFound, NothingToCompare
from server.experiments.models import Experiment
from server.runs.models import Run

CHUNK = 500  # results read at a time


def compare(database: Database, a: Selection, b: Selection, noise_floor: float) -> Comparison:
    """Raises NotFound or NothingToCompare."""
    with database.read() as session:
        left, right = _selected(session, a), _selected(session, b)
    for name, side in (("a", left), ("b", right)):
        if not side:
            raise NothingToCompare(f"{name} selects no run that has succeeded")
    return Comparison.model_validate(dataclasses.asdict(compare_processes(left, right, noise_floor)))


def scaling(database: Database, experiment_id: int) -> ScalingTable:
    """Raises NotFound."""
    with database.read() as session:
        processes = _selected(session, Selection(experiment_id=experiment_id))
        planned = session.get_one(Experiment, experiment_id).runs
    table = dataclasses.asdict(scale_processes(processes))
    if len(processes) < planned:
        table["warnings"].insert(0, f"{planned - len(processes)} of {planned} runs have not succeeded (yet)")
    return ScalingTable.model_validate({**table, "experiment_id": experiment_id})


def _selected(session: Session, selection: Selection) -> list[Process]:
    """The processes of a selection whose runs succeeded, in the order of their runs."""
    if selection.experiment_id is not None:
        if session.get(Experiment, selection.experiment_id) is None:
            raise NotFound(f"there is no experiment {selection.experiment_id}")
        query = select(Run).where(Run.experiment_id == selection.experiment_id, Run.state == "succeeded")
        runs = [r for r in session.scalars(query.order_by(Run.id)) if selection.takes(r.spec, r.repetition, r.block)]
        return _processes(session, runs)
    found = {run.id: run for run in session.scalars(select(Run).where(Run.id.in_(selection.run_ids)))}
    for run_id in selection.run_ids:
        if run_id not in found:
            raise NotFound(f"there is no run {run_id}")
        if found[run_id].state != "succeeded":
            raise NothingToCompare(f"run {run_id} is {found[run_id].state}", current=found[run_id].state)
    return _processes(session, [found[run_id] for run_id in selection.run_ids])


def _processes(session: Session, runs: Sequence[Run]) -> list[Process]:
    processes: list[Process] = []
    for first in range(0, len(runs), CHUNK):
        chunk = runs[first : first + CHUNK]
        query = (
            select(Result.run_id, Result.payload, Attempt.node, Attempt.core_set)
            .join(Attempt, Attempt.id == Result.attempt_id)
            .where(Result.run_id.in_([run.id for run in chunk]), Result.canonical)
        )
        rows = {row.run_id: row for row in session.execute(query)}
        for run in chunk:
            row = rows[run.id]
            processes.append(
                Process(
                    run_id=run.id,
                    result=payloads.unpack(row.payload)["result"],
                    variant=run.variant,
                    pair=(run.experiment_id, run.block, row.node, row.core_set),
                )
            )
    return processes
