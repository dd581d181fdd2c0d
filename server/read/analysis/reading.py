"""Reads the results that an analysis needs, as objects of analysis/."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence
from typing import Any

import orjson
from sqlalchemy import ColumnElement, Text, and_, cast, select
from sqlalchemy.orm import Session

from taskloom.analysis.processes import Facts, Process
from taskloom.analysis.profile import Profile, profile_of
from taskloom.analysis.trace import Trace, trace_of
from taskloom.analysis.variants import Sides
from taskloom.contract.artifacts import ArtifactSummary
from taskloom.server import values
from taskloom.server.artifact_store import Store
from taskloom.server.db import Database, existing
from taskloom.server.errors import BodyTooComplex, NotFound, NothingToCompare
from taskloom.server.queue.experiments import primary
from taskloom.server.queue.tables.attempts import Attempt, Digest, Result
from taskloom.server.queue.tables.experiments import Experiment
from taskloom.server.queue.tables.runs import Run
from taskloom.server.queue.tables.states import OPEN
from taskloom.server.read.analysis.selection import Selection
from taskloom.server.read.artifacts.lookup import chosen

CHUNK = 500  # results read at a time
MOST_CALIBRATIONS = 50  # newest A/A experiments that are considered
MOST_TEXT_BYTES = 64 << 20  # of an unpacked profile or trace
MOST_TRACE_BYTES = 8 << 20  # compressed: about a million spans
PROFILE, TRACE = "profile.json.gz", "trace.json.gz"


def calibrating(session: Session) -> Sequence[int]:
    """The latest A/A experiments."""
    query = select(Experiment.id).where(Experiment.request["calibrates"].as_boolean())
    return session.scalars(query.order_by(Experiment.id.desc()).limit(MOST_CALIBRATIONS)).all()


def selected(session: Session, selection: Selection, causes: bool = False) -> list[Process]:
    """The processes of a selection whose runs were timed, in the order of their runs; `causes`: see `processes`."""
    if selection.experiment_id is not None:
        existing(session, Experiment, selection.experiment_id)
        which = and_(Run.experiment_id == selection.experiment_id, Run.timed)
        if not selection.settings:
            return processes(session, which, causes)
        runs = session.execute(select(Run.id, Run.spec, Run.repetition, Run.block).where(which).order_by(Run.id))
        return of_runs(session, [r.id for r in runs if selection.takes(r.spec, r.repetition, r.block)], causes)
    known = select(Run.id, Run.timed, Run.state).where(Run.id.in_(selection.run_ids))
    found = {run.id: run for run in session.execute(known)}
    for run_id in selection.run_ids:
        if run_id not in found:
            raise NotFound(f"there is no run {run_id}")
        if not found[run_id].timed:
            raise NothingToCompare(f"run {run_id} is {found[run_id].state}", current=found[run_id].state)
    return of_runs(session, selection.run_ids, causes)


def of_runs(session: Session, run_ids: Sequence[int], causes: bool = False) -> list[Process]:
    """The processes of runs that were timed, in this order; `causes`: see `processes`."""
    found = {}
    for first in range(0, len(run_ids), CHUNK):
        for process in processes(session, Run.id.in_(run_ids[first : first + CHUNK]), causes):
            found[process.run_id] = process
    return [found[run_id] for run_id in run_ids if run_id in found]


def processes(session: Session, which: ColumnElement[bool], causes: bool = False) -> list[Process]:
    """The processes of timed runs, in the order of their ids, from the digests of their results. The session needs a
    snapshot. causes: with ops, threads, memory, graph and counters."""
    parts = [Digest.facts, Digest.measured, *([Digest.causes] if causes else [])]
    query = (
        select(Run.id, Run.experiment_id, Run.block, cast(Run.variant, Text), Attempt.node, Attempt.core_set, *parts)
        .join(Result, and_(Result.run_id == Run.id, Result.canonical))
        .join(Attempt, Attempt.id == Result.attempt_id)
        .join(Digest, Digest.attempt_id == Result.attempt_id)
        .where(which)
        .order_by(Run.id)
        .execution_options(yield_per=CHUNK)
    )
    found: list[Process] = []
    alike: dict[tuple[str, bytes], Facts] = {}
    sequential: dict[int, bool] = {}
    for run_id, experiment_id, block, variant, node, core_set, facts, *measured in session.execute(query):
        shared = alike.get((variant, facts))
        if shared is None:
            shared = alike[variant, facts] = Facts.of(orjson.loads(facts), orjson.loads(variant))
        if experiment_id not in sequential:
            early = session.get_one(Experiment, experiment_id).stops_early
            sequential[experiment_id] = early or _is_active(session, experiment_id)
        result: dict[str, Any] = {}
        for part in measured:
            result |= orjson.loads(part)
        place = experiment_id, node
        found.append(Process(
            run_id, result, shared.variant, (experiment_id, block, node, core_set), place, block,
            sequential[experiment_id], experiment_id=experiment_id, shared=shared,
        ))  # fmt: skip
    return found


def _is_active(session: Session, experiment_id: int) -> bool:
    """Whether runs of it are still open, so that whoever reads its results looks at them early."""
    still = select(Run.id).where(Run.experiment_id == experiment_id, Run.state.in_(OPEN)).limit(1)
    return session.scalar(still) is not None


def of_experiment(database: Database, experiment_id: int, causes: bool = False) -> list[Process]:
    """The processes of an experiment's succeeded runs; `causes`: see `processes`. Raises NotFound."""
    with database.read(snapshot=True) as session:
        return selected(session, Selection(experiment_id=experiment_id), causes)


def with_question(
    database: Database, experiment_id: int, causes: bool = False
) -> tuple[list[Process], Sides | None]:
    """The processes of an experiment's succeeded runs, and the sides of its question. Raises NotFound."""
    with database.read(snapshot=True) as session:
        return questioned(session, experiment_id, causes)


def questioned(
    session: Session, experiment_id: int, causes: bool = False
) -> tuple[list[Process], Sides | None]:
    """As `with_question`, in a session with a snapshot."""
    found = selected(session, Selection(experiment_id=experiment_id), causes)
    return found, primary.of_experiment(session, session.get_one(Experiment, experiment_id))


def left(database: Database, name: str, run_ids: Sequence[int]) -> dict[int, ArtifactSummary]:
    """The file of this name of each run that has one."""
    found: dict[int, ArtifactSummary] = {}
    with database.read() as session:
        for first in range(0, len(run_ids), CHUNK):
            found |= chosen(session, name, run_ids[first : first + CHUNK])
    return found


def profile(store: Store, run_id: int, found: ArtifactSummary) -> Profile | None:
    """The profile of a run; None if its file is missing. Raises ValueError if it is invalid."""
    content = _content(store, run_id, found)
    return None if content is None else profile_of(content)


def trace(store: Store, run_id: int, found: ArtifactSummary) -> Trace | None:
    """The trace of a run; None if its file is missing. Raises ValueError if it is invalid or too large to draw."""
    if found.size_bytes > MOST_TRACE_BYTES:
        raise ValueError(
            f"{found.name} of run {run_id} has {found.size_bytes} bytes; the limit for a timeline is {MOST_TRACE_BYTES}"
        )
    content = _content(store, run_id, found)
    return None if content is None else trace_of(content)


def _content(store: Store, run_id: int, found: ArtifactSummary) -> dict[str, Any] | None:
    path = store.path(found.sha256)
    if not path.is_file():
        return None
    try:
        with gzip.open(path) as packed:
            text = packed.read(MOST_TEXT_BYTES + 1)  # limited, because a megabyte may unpack to a gigabyte
        if len(text) > MOST_TEXT_BYTES:
            raise ValueError(f"it has more than {MOST_TEXT_BYTES} bytes when unpacked")
        content = values.load(text, values.ARTIFACT)
        if not isinstance(content, dict):
            raise ValueError("it is no JSON object")
    except (OSError, EOFError, ValueError, zlib.error, BodyTooComplex) as error:
        raise ValueError(f"{found.name} of run {run_id} cannot be read: {error}") from None
    return content
