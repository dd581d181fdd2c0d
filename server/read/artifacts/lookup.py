"""Lists and finds artifacts of attempts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from taskloom.contract.artifacts import ArtifactList, ArtifactSummary
from taskloom.server.db import Database, existing, utc
from taskloom.server.errors import NotFound
from taskloom.server.queue.tables.artifacts import Artifact
from taskloom.server.queue.tables.attempts import Attempt, Result
from taskloom.server.queue.tables.runs import Run


def index(database: Database, run_id: int) -> ArtifactList:
    """Every file of a run's attempts. Raises NotFound."""
    with database.read() as session:
        existing(session, Run, run_id)
        return ArtifactList(run_id=run_id, items=_of_run(session, run_id))


def find(database: Database, run_id: int, name: str, attempt_no: int | None) -> ArtifactSummary:
    """The file of the canonical attempt, or else of the newest attempt that has it; or of a given attempt.

    Raises NotFound.
    """
    for item in index(database, run_id).items:
        if item.name == name and (item.chosen if attempt_no is None else item.attempt_no == attempt_no):
            return item
    of = "" if attempt_no is None else f" of attempt {attempt_no}"
    raise NotFound(f"run {run_id} has no artifact {name}{of}")


def chosen(session: Session, name: str, run_ids: Sequence[int]) -> dict[int, ArtifactSummary]:
    """File of this name for each of these runs that has one: the file that `find` returns without an attempt."""
    found: dict[int, ArtifactSummary] = {}
    for run_id, summary in _summaries(session, Attempt.run_id.in_(run_ids), Artifact.name == name):
        found.setdefault(run_id, summary)
    return found


def _of_run(session: Session, run_id: int) -> list[ArtifactSummary]:
    """Files of a run by name. Of equal names the chosen file comes first, then those of newer attempts."""
    names: set[str] = set()
    items = []
    for _, summary in _summaries(session, Attempt.run_id == run_id):
        items.append(summary.model_copy(update={"chosen": summary.name not in names}))
        names.add(summary.name)
    return items


def _summaries(session: Session, *which: ColumnElement[bool]) -> Iterator[tuple[int, ArtifactSummary]]:
    """Artifacts with their runs' ids, by run and name. Of equal names the canonical attempt's comes first, then those
    of newer attempts."""
    query = (
        select(Artifact, Attempt.attempt_no, Attempt.run_id)
        .join(Attempt, Attempt.id == Artifact.attempt_id)
        .outerjoin(Result, Result.attempt_id == Attempt.id)
        .where(*which)
        .order_by(
            Attempt.run_id, Artifact.name, func.coalesce(Result.canonical, False).desc(), Attempt.attempt_no.desc()
        )
    )
    for artifact, attempt_no, run_id in session.execute(query):
        yield (
            run_id,
            ArtifactSummary(
                attempt_id=artifact.attempt_id,
                name=artifact.name,
                sha256=artifact.sha256,
                size_bytes=artifact.size_bytes,
                attempt_no=attempt_no,
                media_type=artifact.media_type,
                received_at=utc(artifact.received_at),
                chosen=True,
            ),
        )
