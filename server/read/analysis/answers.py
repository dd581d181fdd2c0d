"""A cache of answers as files, named by a hash of everything that they depend on, so an answer never becomes outdated.

Equal questions to all servers with this folder, also after a restart, get the same file. Its name is the ETag.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from anyio import to_thread
from fastapi import Depends, Header, Request
from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session
from starlette.responses import FileResponse, Response

import gpt2core
import taskloom.analysis
import taskloom.contract
import taskloom.server
from taskloom.server.alerts.models import Threshold
from taskloom.server.db import Database
from taskloom.server.errors import AnalysisTooLong, StoreUnavailable, TooManyQuestions
from taskloom.server.queue.tables.artifacts import Artifact
from taskloom.server.queue.tables.attempts import Attempt
from taskloom.server.queue.tables.experiments import Experiment
from taskloom.server.queue.tables.runs import Run, RunEvent, Series, is_queued
from taskloom.server.read.analysis.reading import calibrating
from taskloom.server.read.analysis.selection import Selection
from taskloom.server.read.pool import Flights, Pool
from taskloom.server.read.sources import Content
from taskloom.server.settings import Settings

JSON = "application/json"
WHOLE_BYTES = 1 << 20  # larger answers are sent in pieces
# Problems of every operation that computes in the pool
COMPUTED = (AnalysisTooLong, TooManyQuestions, StoreUnavailable)


class Answers:
    """Cached answers, and the pool that computes them."""

    def __init__(self, settings: Settings, database: Database, pool: Pool) -> None:
        self._folder, self._database, self.pool = settings.answer_folder, database, pool
        self._looks = Flights()

    async def give(
        self, name: str, args: tuple[Any, ...], made_from: Content, known: str | None, media_type: str, as_file: bool
    ) -> Response:
        """A cached or new answer; 304 if the client already has it.

        as_file: answer with a FileResponse even if it is small.
        """
        # Concurrent questions with equal inputs share one query of the state of these inputs.
        content = await self._looks.join(made_from, lambda: to_thread.run_sync(self._look, made_from))
        text = json.dumps([name, args, repr(content), _sources()])
        etag = hashlib.sha256(text.encode()).hexdigest()[:32]
        headers = {"ETag": f'"{etag}"', "Cache-Control": "no-cache"}
        if etag in (known or ""):
            return Response(status_code=304, headers=headers)
        file = self._folder / f"{etag}.answer"
        body = await to_thread.run_sync(_used, file, 0 if as_file else WHOLE_BYTES)
        if body is None:
            await self.pool.answer(name, args, str(file))
        if not body:
            return _File(file, headers=headers, media_type=media_type)
        return Response(body, headers=headers, media_type=media_type)

    async def ended(self) -> None:
        """Wait until all queries and computations have ended, including aborted ones."""
        await self._looks.ended()
        await self.pool.flights.ended()

    def _look(self, made_from: Content) -> Hashable:
        with self._database.read() as session:
            return made_from(session)


class _File(FileResponse):
    """A large answer. With this chunk size a report of 10,000 runs takes 3 reads; with Starlette's it took 45, each on
    a thread."""

    chunk_size = WHOLE_BYTES


def _used(file: Path, most_bytes: int) -> bytes | None:
    """Content of the file; b"" if it is larger than `most_bytes`, None if there is no file. Marks it as used now."""
    try:
        os.utime(file)
        return file.read_bytes() if file.stat().st_size <= most_bytes else b""
    except (FileNotFoundError, NotADirectoryError):
        return None


PACKAGES = (gpt2core, taskloom.analysis, taskloom.contract, taskloom.server)  # whose code computes answers


@functools.cache
def _sources() -> str:
    """SHA-256 of all code that computes answers, since another version may compute other answers from equal results."""
    return hash_of([Path(package.__path__[0]) for package in PACKAGES])


def hash_of(folders: Sequence[Path]) -> str:
    """SHA-256 of the names and contents of all modules below folders."""
    digest = hashlib.sha256()
    for folder in folders:
        for file in sorted(folder.rglob("*.py")):
            digest.update(f"{file.relative_to(folder)}\0".encode())
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


@dataclass(frozen=True)
class OfExperiments:
    """State of experiments: the histories of their runs, and artifacts."""

    ids: tuple[int, ...]

    def __call__(self, session: Session) -> Hashable:
        changes, runs = RunEvent.experiment_id.in_(self.ids), Run.experiment_id.in_(self.ids)
        return _experiments(session, self.ids), _changes(session, changes), _artifacts(session, runs)


@dataclass(frozen=True)
class OfRuns:
    """State of runs' experiments, since a comparison is judged in its experiment's family."""

    ids: tuple[int, ...]

    def __call__(self, session: Session) -> Hashable:
        of_whom = select(Run.experiment_id).where(Run.id.in_(self.ids)).distinct().order_by(Run.experiment_id)
        return OfExperiments(tuple(session.scalars(of_whom)))(session)


@dataclass(frozen=True)
class OfSelections:
    """State of the runs from which selections choose."""

    each: tuple[OfRuns | OfExperiments, ...]

    def __call__(self, session: Session) -> Hashable:
        return tuple(content(session) for content in self.each)


def of_experiments(*experiment_ids: int) -> OfExperiments:
    """State that an answer about experiments depends on."""
    return OfExperiments(experiment_ids)


def of_selections(*selections: Selection) -> OfSelections:
    """State that an answer about selected runs depends on."""
    return OfSelections(tuple(
        OfRuns(chosen.run_ids) if chosen.experiment_id is None else OfExperiments((chosen.experiment_id,))
        for chosen in selections
    ))  # fmt: skip


def _experiments(session: Session, experiment_ids: Sequence[int]) -> Hashable:
    """Submission times, which distinguish equal ids of different databases."""
    submitted = (Experiment.id, Experiment.created_at, Experiment.request_sha256, Experiment.name)
    query = select(*submitted, Experiment.runs, Experiment.cancelled_at, Experiment.rel_ci, Experiment.stop_reason)
    return tuple(map(tuple, session.execute(query.where(Experiment.id.in_(experiment_ids)).order_by(Experiment.id))))


def _changes(session: Session, which: ColumnElement[bool]) -> Hashable:
    """Number and last id of the rows in histories. Every change of a run adds a row, also a result that becomes
    canonical; deletion removes rows. The number is needed since a lower id may be committed after a higher one. The
    query reads only an index."""
    query = select(func.count(), func.max(RunEvent.id)).where(which)
    return tuple(session.execute(query).one())


def _artifacts(session: Session, runs: ColumnElement[bool]) -> Hashable:
    query = select(func.count(), func.sum(Artifact.size_bytes), func.max(Artifact.received_at)).select_from(Run)
    query = query.join(Attempt, Attempt.run_id == Run.id).join(Artifact, Artifact.attempt_id == Attempt.id)
    return tuple(session.execute(query.where(runs)).one())


@dataclass(frozen=True)
class OfReport:
    """State of an experiment and of its node's calibration."""

    experiment_id: int

    def __call__(self, session: Session) -> Hashable:
        return OfExperiments((self.experiment_id,))(session), of_calibrations(session)


def of_report(experiment_id: int) -> OfReport:
    """State that an experiment's report depends on."""
    return OfReport(experiment_id)


def of_calibrations(session: Session) -> Hashable:
    """State of the latest A/A experiments."""
    ids = tuple(calibrating(session))
    return OfExperiments(ids)(session) if ids else ()


def of_history(session: Session) -> Hashable:
    """State of all runs: first and last end, last queueing, and last experiment; and of the thresholds."""
    queued = select(func.max(Run.queued_at)).where(is_queued())
    ended = select(func.max(Run.finished_at)), select(func.min(Run.finished_at))
    limits = select(func.count()).select_from(Threshold), select(func.max(Threshold.set_at))
    queries = (*ended, queued, select(func.max(Experiment.id)), *limits)
    return tuple(session.execute(query).scalar_one() for query in queries)


def of_series(series_id: int) -> Content:
    """State of a series: its results, the states of the experiments that confirm its changes, and its threshold."""

    def content(session: Session) -> Hashable:
        results = select(func.count(), func.sum(Run.id), func.max(Run.finished_at)).where(Run.series_id == series_id)
        confirms = Experiment.request["confirms"].as_integer()
        again = select(Experiment.id, Run.state, func.count()).join(Run, Run.experiment_id == Experiment.id)
        again = again.where(confirms.in_(select(Run.id).where(Run.series_id == series_id)))
        again = again.group_by(Experiment.id, Run.state).order_by(Experiment.id, Run.state)
        known = select(Series.key, Threshold.set_at).select_from(Series).outerjoin(Threshold)
        known = known.where(Series.id == series_id)
        rows = [session.execute(query).all() for query in (known, results, again)]
        return tuple(tuple(map(tuple, found)) for found in rows)

    return content


def of_series_of(run_id: int) -> Content:
    """State of the series that a run belongs to."""

    def content(session: Session) -> Hashable:
        series_id = session.scalar(select(Run.series_id).where(Run.id == run_id))
        return series_id if series_id is None else of_series(series_id)(session)

    return content


@dataclass(frozen=True)
class Ask:
    """Gives answers to one request. known: the ETag of the answer that its client has."""

    answers: Answers
    known: str | None

    async def __call__(
        self, name: str, *args: Any, made_from: Content, media_type: str = JSON, as_file: bool = False
    ) -> Response:
        return await self.answers.give(name, args, made_from, self.known, media_type, as_file)


async def _ask(
    request: Request,
    if_none_match: Annotated[str | None, Header(max_length=500, description="the ETag of a known answer")] = None,
) -> Ask:
    return Ask(request.app.state.reading.answers, if_none_match)


Asks = Annotated[Ask, Depends(_ask)]
