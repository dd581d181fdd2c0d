"""Raw samples of many runs, read lazily one run at a time."""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import select
from sqlalchemy.orm import Session

from taskloom.contract.samples import RunSamples, SamplesEnd, SamplesPage
from taskloom.server import paging
from taskloom.server.db import Database, existing
from taskloom.server.errors import NotFound
from taskloom.server.queue.attempts import payload as payloads
from taskloom.server.queue.runs.details import sample_rows
from taskloom.server.queue.tables.attempts import Attempt, Result
from taskloom.server.queue.tables.experiments import Experiment
from taskloom.server.queue.tables.runs import Run
from taskloom.server.read.analysis.selection import Selection


def page(database: Database, selection: Selection, cursor: str | None, limit: int, max_samples: int) -> SamplesPage:
    """At most `limit` runs; fewer if these have `max_samples` steps together. Raises NotFound or BadCursor."""
    chosen, more = select_ids(database, selection, cursor, limit)
    items: list[RunSamples] = []
    samples = last = 0
    for run_id in chosen:
        if samples >= max_samples:
            more = True
            break
        found = _samples(database, run_id)
        last = run_id
        if found is not None:
            items.append(found)
            samples += len(found.items)
    return SamplesPage(items=items, next_cursor=paging.encode(last) if more else None)


def lines(database: Database, chosen: list[int], more: bool) -> Iterator[str]:
    """JSON lines, one per run; the last line has the next cursor and shows that the stream is complete."""
    for run_id in chosen:
        found = _samples(database, run_id)
        if found is not None:
            yield found.model_dump_json() + "\n"
    end = SamplesEnd(next_cursor=paging.encode(chosen[-1]) if more else None)
    yield end.model_dump_json() + "\n"


def select_ids(database: Database, selection: Selection, cursor: str | None, limit: int) -> tuple[list[int], bool]:
    """The succeeded runs of the selection, ascending, and whether there are more. Raises NotFound or BadCursor."""
    after = paging.decode_id(cursor) or 0
    with database.read() as session:
        if selection.experiment_id is None:
            chosen = _known(session, selection.run_ids, after, limit + 1)
        else:
            chosen = _of_experiment(session, selection, selection.experiment_id, after, limit + 1)
    return chosen[:limit], len(chosen) > limit


def _known(session: Session, run_ids: tuple[int, ...], after: int, most: int) -> list[int]:
    rows = session.execute(select(Run.id, Run.timed).where(Run.id.in_(run_ids)))
    found = {row.id: row.timed for row in rows}
    unknown = sorted(set(run_ids) - found.keys())
    if unknown:
        raise NotFound(f"there is no run {', '.join(map(str, unknown[:10]))}")
    return [id_ for id_ in sorted(found) if id_ > after and found[id_]][:most]


def _of_experiment(session: Session, selection: Selection, experiment_id: int, after: int, most: int) -> list[int]:
    existing(session, Experiment, experiment_id)
    query = select(Run.id, Run.spec, Run.repetition, Run.block).where(
        Run.experiment_id == experiment_id, Run.timed, Run.id > after
    )
    query = query.order_by(Run.id)
    if not selection.settings:
        query = query.limit(most)
    rows = session.execute(query)
    return [row.id for row in rows if selection.takes(row.spec, row.repetition, row.block)][:most]


def _samples(database: Database, run_id: int) -> RunSamples | None:
    """The samples of a run. None: it has been deleted meanwhile."""
    query = (
        select(Run, Result.payload, Attempt.attempt_no)
        .join(Result, Result.run_id == Run.id)
        .join(Attempt, Attempt.id == Result.attempt_id)
        .where(Run.id == run_id, Result.canonical)
    )
    with database.read() as session:
        row = session.execute(query).first()
    if row is None:
        return None
    run, payload, attempt_no = row
    return RunSamples(
        run_id=run.id,
        attempt_no=attempt_no,
        experiment_id=run.experiment_id,
        variant=run.variant,
        repetition=run.repetition,
        block=run.block,
        items=sample_rows(payloads.unpack(payload)["result"]),
    )
