"""Artifacts of attempts, recorded once by their worker."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from taskloom.contract.artifacts import ArtifactReceipt
from taskloom.server.db import LOCKED, Database, existing, now
from taskloom.server.errors import ArtifactConflict, TooManyArtifacts, WrongFencingToken
from taskloom.server.queue.tables.artifacts import Artifact
from taskloom.server.queue.tables.attempts import Attempt


@dataclass(frozen=True)
class Source:
    """Origin of a file: the attempt with its fencing token, and the name."""

    attempt_id: int
    worker_id: str
    attempt_no: int
    name: str


def check(database: Database, source: Source, most: int) -> None:
    """Check an upload before its bytes are read. Raises like `record`, except for ArtifactConflict."""
    with database.read() as session:
        _check(session, source, most)


def record(
    database: Database, source: Source, sha256: str, media_type: str, size_bytes: int, most: int
) -> ArtifactReceipt:
    """Record a file of an attempt in any state. Idempotent.

    Raises NotFound, WrongFencingToken, TooManyArtifacts or ArtifactConflict.
    """
    with database.write() as session:
        session.get(Attempt, source.attempt_id, with_for_update=LOCKED)  # one upload of an attempt at a time
        _check(session, source, most)
        known = session.get(Artifact, (source.attempt_id, source.name))
        if known is not None and (known.sha256, known.media_type) != (sha256, media_type):
            raise ArtifactConflict(
                f"attempt {source.attempt_id} already has another {source.name}: {known.media_type}, {known.sha256}",
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
    attempt = existing(session, Attempt, source.attempt_id)
    if (attempt.worker_id, attempt.attempt_no) != (source.worker_id, source.attempt_no):
        raise WrongFencingToken(
            f"attempt {attempt.id} is number {attempt.attempt_no} of worker {attempt.worker_id}",
            attempt_no=attempt.attempt_no,
            worker_id=attempt.worker_id,
        )
    others = select(func.count()).where(Artifact.attempt_id == source.attempt_id, Artifact.name != source.name)
    if session.execute(others).scalar_one() >= most:
        raise TooManyArtifacts(f"an attempt may have at most {most} files", max_artifacts=most)
