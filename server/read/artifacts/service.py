"""What attempts left beside their results: recorded, listed, found."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from taskloom.contract.artifacts import ArtifactList, ArtifactReceipt, ArtifactSummary
from taskloom.server.db import LOCKED, Database, now, utc
from taskloom.server.errors import ArtifactConflict, NotFound, TooManyArtifacts, WrongFencingToken
from taskloom.server.queue.attempts.models import Attempt, Result
from taskloom.server.queue.runs.models import Run
from taskloom.server.read.artifacts.models import Artifact


@dataclass(frozen=True)
class Source:
    """Whose file it is: the attempt with its fencing token, and the name."""

    attempt_id: int
    worker_id: str
    attempt_no: int
    name: str


def check(database: Database, source: Source, most: int) -> None:
    """Whether `record` would take it, before its bytes are read. Raises as `record` does, but for ArtifactConflict."""
    with database.read() as session:
        _check(session, source, most)


def record(
    database: Database, source: Source, sha256: str, media_type: str, size_bytes: int, most: int
) -> ArtifactReceipt:
    """The file belongs to its attempt from now on, however that ended; the same one again changes nothing.

    Raises NotFound, WrongFencingToken, TooManyArtifacts or ArtifactConflict.
    """
    with database.write() as session:
        session.get(Attempt, source.attempt_id, with_for_update=LOCKED)  # one upload of an attempt at a time
        _check(session, source, most)
        known = session.get(Artifact, (source.attempt_id, source.name))
        if known is not None and (known.sha256, known.media_type) != (sha256, media_type):
            raise ArtifactConflict(
                f"attempt {source.attempt_id} has another {source.name}: {known.media_type}, {known.sha256}",
                sha256=known.sha256,
                media_type=known.media_type,
            )
        if known is None:
            session.add(
                Artifact(
                    attempt_id=source.attempt_id,
                    name=source.name,
                    sha256=sha256,
                    media_type=media_type,
                    size_bytes=size_bytes,
                    received_at=now(session),
                )
            )
    return ArtifactReceipt(attempt_id=source.attempt_id, name=source.name, sha256=sha256, size_bytes=size_bytes)


def _check(session: Session, source: Source, most: int) -> None:
    attempt = session.get(Attempt, source.attempt_id)
    if attempt is None:
        raise NotFound(f"there is no attempt {source.attempt_id}")
    if (attempt.worker_id, attempt.attempt_no) != (source.worker_id, source.attempt_no):
        raise WrongFencingToken(
            f"attempt {attempt.id} is number {attempt.attempt_no} of worker {attempt.worker_id}",
            attempt_no=attempt.attempt_no,
            worker_id=attempt.worker_id,
        )
    others = select(func.count()).where(Artifact.attempt_id == source.attempt_id, Artifact.name != source.name)
    if session.execute(others).scalar_one() >= most:
        raise TooManyArtifacts(f"at most {most} files of one attempt are kept", max_artifacts=most)


def index(database: Database, run_id: int) -> ArtifactList:
    """Every file of a run's attempts. Raises NotFound."""
    with database.read() as session:
        if session.get(Run, run_id) is None:
            raise NotFound(f"there is no run {run_id}")
        return ArtifactList(run_id=run_id, items=_of_run(session, run_id))


def find(database: Database, run_id: int, name: str, attempt_no: int | None) -> ArtifactSummary:
    """The canonical attempt's file, or else the newest attempt's that has it; or that of one attempt.

    Raises NotFound.
    """
    for item in index(database, run_id).items:
        if item.name == name and (item.chosen if attempt_no is None else item.attempt_no == attempt_no):
            return item
    of = "" if attempt_no is None else f" of attempt {attempt_no}"
    raise NotFound(f"run {run_id} has no artifact {name}{of}")


def _of_run(session: Session, run_id: int) -> list[ArtifactSummary]:
    """By name; of one name, the chosen one first, then the newest attempt first."""
    query = (
        select(Artifact, Attempt.attempt_no)
        .join(Attempt, Attempt.id == Artifact.attempt_id)
        .outerjoin(Result, Result.attempt_id == Attempt.id)
        .where(Attempt.run_id == run_id)
        .order_by(Artifact.name, func.coalesce(Result.canonical, False).desc(), Attempt.attempt_no.desc())
    )
    names: set[str] = set()
    items = []
    for artifact, attempt_no in session.execute(query):
        items.append(
            ArtifactSummary(
                attempt_id=artifact.attempt_id,
                name=artifact.name,
                sha256=artifact.sha256,
                size_bytes=artifact.size_bytes,
                attempt_no=attempt_no,
                media_type=artifact.media_type,
                received_at=utc(artifact.received_at),
                chosen=artifact.name not in names,
            )
        )
        names.add(artifact.name)
    return items
