"""Which results an analysis is about, as analysis/ sees them."""

from __future__ import annotations

import gzip
import logging
import zlib
from collections.abc import Sequence
from typing import Any

import orjson
from sqlalchemy import select
from sqlalchemy.orm import Session

from taskloom.analysis.processes import Process
from taskloom.analysis.profile import Profile, profile_of
from taskloom.analysis.trace import Trace, trace_of
from taskloom.server import values
from taskloom.server.db import Database
from taskloom.server.errors import BodyTooComplex, NotFound, NothingToCompare
from taskloom.server.queue.artifacts.models import Artifact
from taskloom.server.queue.artifacts.store import Store
from taskloom.server.queue.attempts.models import Attempt, Digest, Result
from taskloom.server.queue.experiments.models import Experiment
from taskloom.server.queue.runs.models import Run
from taskloom.server.read.analysis.selection import Selection
from taskloom.server.read.artifacts.service import find

log = logging.getLogger("taskloom.server")
CHUNK = 500  # results read at a time
MOST_CALIBRATIONS = 50  # latest ones that are looked at
MOST_TEXT_BYTES = 64 << 20  # of a profile or a trace, unpacked
MOST_TRACE_BYTES = 8 << 20  # compressed: about a million spans
PROFILE, TRACE = "profile.json.gz", "trace.json.gz"


def calibrating(session: Session) -> Sequence[int]:
    """The latest A/A experiments."""
    asked = select(Experiment.id).where(Experiment.request["calibrates"].as_boolean())
    return session.scalars(asked.order_by(Experiment.id.desc()).limit(MOST_CALIBRATIONS)).all()


def selected(session: Session, selection: Selection, whole: bool = False) -> list[Process]:
    """The processes of a selection whose runs were timed, in the order of their runs; `whole`: see `processes`."""
    if selection.experiment_id is not None:
        if session.get(Experiment, selection.experiment_id) is None:
            raise NotFound(f"there is no experiment {selection.experiment_id}")
        query = select(Run).where(Run.experiment_id == selection.experiment_id, Run.timed)
        runs = [r for r in session.scalars(query.order_by(Run.id)) if selection.takes(r.spec, r.repetition, r.block)]
        return processes(session, runs, whole)
    found = {run.id: run for run in session.scalars(select(Run).where(Run.id.in_(selection.run_ids)))}
    for run_id in selection.run_ids:
        if run_id not in found:
            raise NotFound(f"there is no run {run_id}")
        if not found[run_id].timed:
            raise NothingToCompare(f"run {run_id} is {found[run_id].state}", current=found[run_id].state)
    return processes(session, [found[run_id] for run_id in selection.run_ids], whole)


def processes(session: Session, runs: Sequence[Run], whole: bool = False) -> list[Process]:
    """The processes of runs that were timed. whole: with their ops, threads, memory, graph and counters, for which
    every payload is opened; without, what was kept beside it is enough."""
    found: list[Process] = []
    for first in range(0, len(runs), CHUNK):
        chunk = runs[first : first + CHUNK]
        query = (
            select(Result.run_id, Result.payload if whole else Digest.content, Attempt.node, Attempt.core_set)
            .join(Attempt, Attempt.id == Result.attempt_id)
            .where(Result.run_id.in_([run.id for run in chunk]), Result.canonical)
        )
        if not whole:
            query = query.join(Digest, Digest.attempt_id == Result.attempt_id)
        rows = {row[0]: row for row in session.execute(query)}
        for run in chunk:
            if run.id not in rows:
                log.warning("the result of run %s is older than this server and cannot be read", run.id)
                continue
            _, content, node, core_set = rows[run.id]
            result = orjson.loads(zlib.decompress(content))["result"] if whole else orjson.loads(content)
            found.append(
                Process(
                    run_id=run.id,
                    result=result,
                    variant=run.variant,
                    pair=(run.experiment_id, run.block, node, core_set),
                    occasion=(run.experiment_id, node),
                    block=run.block,
                    stop_rule=session.get_one(Experiment, run.experiment_id).request.get("stop") is not None,
                )
            )
    return found


def of_experiment(database: Database, experiment_id: int, whole: bool = False) -> list[Process]:
    """The processes of an experiment's runs that succeeded so far; `whole`: see `processes`. Raises NotFound."""
    with database.read() as session:
        return selected(session, Selection(experiment_id=experiment_id), whole)


def profile(database: Database, store: Store, run_id: int) -> Profile | None:
    """The profile that a run left; None if it left none. Raises ValueError if it is not one."""
    content = _artifact(database, store, run_id, PROFILE)
    return None if content is None else profile_of(content)


def trace(database: Database, store: Store, run_id: int) -> Trace | None:
    """The trace of a run; None if it has none. Raises ValueError if it is not one, or too large to be drawn."""
    content = _artifact(database, store, run_id, TRACE, MOST_TRACE_BYTES)
    return None if content is None else trace_of(content)


def traced(database: Database, run_ids: Sequence[int]) -> set[int]:
    """Which of these runs have a trace."""
    query = select(Attempt.run_id).join(Artifact, Artifact.attempt_id == Attempt.id).where(Artifact.name == TRACE)
    with database.read() as session:
        chunks = (run_ids[first : first + CHUNK] for first in range(0, len(run_ids), CHUNK))
        return {run_id for chunk in chunks for run_id in session.scalars(query.where(Attempt.run_id.in_(chunk)))}


def _artifact(
    database: Database, store: Store, run_id: int, name: str, most_bytes: int | None = None
) -> dict[str, Any] | None:
    try:
        found = find(database, run_id, name, None)
    except NotFound:
        return None
    if most_bytes is not None and found.size_bytes > most_bytes:
        raise ValueError(f"{name} of run {run_id} has {found.size_bytes} bytes: at most {most_bytes} are drawn")
    path = store.path(found.sha256)
    if not path.is_file():
        return None
    try:
        with gzip.open(path) as packed:
            text = packed.read(MOST_TEXT_BYTES + 1)  # not the file: a megabyte of it may stand for a gigabyte
        if len(text) > MOST_TEXT_BYTES:
            raise ValueError(f"unpacked it has more than {MOST_TEXT_BYTES} bytes")
        content = values.load(text, values.ARTIFACT)
        if not isinstance(content, dict):
            raise ValueError("it is no JSON object")
    except (OSError, EOFError, ValueError, zlib.error, BodyTooComplex) as error:
        raise ValueError(f"{name} of run {run_id} cannot be read: {error}") from None
    return content
