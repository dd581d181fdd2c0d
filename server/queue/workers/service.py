"""Workers introduce themselves, and are listed."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pydantic import ValidationError
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from taskloom.contract.workers import WorkerPage, WorkerRegistration, WorkerSummary
from taskloom.server import paging, values
from taskloom.server.access.keys.service import Caller
from taskloom.server.db import LOCKED, Database, hold, now, utc
from taskloom.server.errors import NotFound, ServerError, StaleBoot
from taskloom.server.queue.attempts.models import Attempt, is_active
from taskloom.server.queue.attempts.service import lose_attempts_of
from taskloom.server.queue.experiments.expansion import Capacity
from taskloom.server.queue.workers import ownership
from taskloom.server.queue.workers.models import Worker
from taskloom.server.settings import Settings

log = logging.getLogger("taskloom.server")
FORMER_BOOTS = 100  # that are known of a worker: a message is late by seconds, not by a hundred restarts


def register(
    database: Database, settings: Settings, caller: Caller, given: WorkerRegistration
) -> tuple[WorkerSummary, bool, bool | None]:
    """The worker as it is known now; whether it is new; whether runs were queued again because it had restarted, None
    if it had not.

    The same boot_id is the same process: what it holds stays its own. Another one is a new process: the old one's
    attempts are lost, and what it sent before its end changes nothing any more. Raises NotYourWorker, StaleBoot or
    CoresTaken.
    """
    cores = sorted(set(given.cores))
    with database.write() as session:
        hold(session, f"worker {given.worker_id}")  # a first registration that comes twice at once
        worker = session.get(Worker, given.worker_id, with_for_update=LOCKED)
        if worker is not None:
            ownership.take(session, caller, given.worker_id)
        ownership.check_cores(session, caller, given.worker_id, given.node, cores)
        at = now(session)
        new, requeued = worker is None, None
        if worker is None:
            worker = Worker(worker_id=given.worker_id, registered_at=at)
            session.add(worker)
        elif worker.boot_id != given.boot_id:
            former = worker.former_boots or []
            if given.boot_id in former or _started_before(given, worker):
                raise StaleBoot(f"worker {given.worker_id} was registered again by another process")
            worker.former_boots = [*former, worker.boot_id][-FORMER_BOOTS:]
            requeued = lose_attempts_of(session, worker.worker_id, settings)
            worker.registered_at = at
        worker.boot_id = given.boot_id
        worker.machine_boot_id, worker.started_s = given.machine_boot_id, given.started_s
        worker.node = given.node
        worker.cores = cores
        worker.core_set = ",".join(map(str, cores))
        worker.memory_bytes = given.memory_bytes
        worker.labels = dict(given.labels)
        worker.software = dict(given.software)
        worker.topology = given.topology
        worker.seen_at, worker.ends_at, worker.left_at = at, None, None
        session.flush()
        if new:
            ownership.take(session, caller, given.worker_id)
            session.flush()
        held = session.scalars(select(Attempt.id).where(Attempt.worker_id == worker.worker_id, is_active()))
        return _summary(worker, held.first()), new, requeued


def _started_before(given: WorkerRegistration, known: Worker) -> bool:
    """By the clock of the machine that both processes were started on; of two machines nothing is known."""
    if given.machine_boot_id is None or given.machine_boot_id != known.machine_boot_id:
        return False
    return given.started_s is not None and known.started_s is not None and given.started_s < known.started_s


def leave(database: Database, caller: Caller, worker_id: str, boot_id: str) -> None:
    """Note that a worker takes no further run: its blocks are free for others at once.

    What it still runs stays its own. Raises NotFound, NotYourWorker, StaleBoot.
    """
    with database.write() as session:
        worker = session.get(Worker, worker_id, with_for_update=LOCKED)
        if worker is None:
            raise NotFound(f"there is no worker {worker_id}")
        ownership.take(session, caller, worker_id)
        if worker.boot_id != boot_id:
            raise StaleBoot(f"worker {worker_id} was registered again by another process")
        worker.seen_at = worker.left_at = now(session)


def show(database: Database, worker_id: str) -> WorkerSummary:
    """Raises NotFound."""
    with database.read() as session:
        worker = session.get(Worker, worker_id)
        if worker is None:
            raise NotFound(f"there is no worker {worker_id}")
        found, _ = _summaries(session, [worker])
    if not found:
        raise NotFound(f"worker {worker_id} was registered with values that cannot be read: it registers again")
    return found[0]


def page(database: Database, cursor: str | None, limit: int) -> WorkerPage:
    """Workers by id. Raises BadCursor."""
    after = paging.decode(cursor)
    with database.read() as session:
        query = select(Worker).order_by(Worker.worker_id).limit(limit + 1)
        if after is not None:
            query = query.where(Worker.worker_id > after)
        rows, more = paging.split(session.scalars(query).all(), limit)
        found, unreadable = _summaries(session, rows)
    next_cursor = paging.encode(rows[-1].worker_id) if more else None
    return WorkerPage(items=found, unreadable=unreadable, next_cursor=next_cursor)


def _summaries(session: Session, workers: Sequence[Worker]) -> tuple[list[WorkerSummary], list[str]]:
    """Those that can be read, and the ids of the others."""
    held = select(Attempt.worker_id, func.max(Attempt.id)).where(
        Attempt.worker_id.in_([worker.worker_id for worker in workers]), is_active()
    )
    current = dict(session.execute(held.group_by(Attempt.worker_id)).all())
    found, unreadable = [], []
    for worker in workers:
        try:
            found.append(_summary(worker, current.get(worker.worker_id)))
        except (ValidationError, ServerError):
            log.warning("worker %s was registered with values that cannot be read", worker.worker_id)
            unreadable.append(worker.worker_id)
    return found, unreadable


def _summary(worker: Worker, current_attempt_id: int | None) -> WorkerSummary:
    """Raises ValidationError, InvalidRequest or BodyTooComplex for what older servers took and no answer can hold."""
    values.refuse_odd([worker.labels, worker.software, worker.topology], values.REQUEST)
    return WorkerSummary(
        worker_id=worker.worker_id,
        boot_id=worker.boot_id,
        machine_boot_id=worker.machine_boot_id,
        started_s=worker.started_s,
        node=worker.node,
        cores=worker.cores,
        memory_bytes=worker.memory_bytes,
        labels=worker.labels,
        software=worker.software,
        topology=worker.topology,
        registered_at=utc(worker.registered_at),
        seen_at=utc(worker.seen_at),
        ends_at=None if worker.ends_at is None else utc(worker.ends_at),
        left_at=None if worker.left_at is None else utc(worker.left_at),
        current_attempt_id=current_attempt_id,
    )


def capacity(session: Session) -> Capacity:
    """The most cores and the most memory of the known workers, each by itself."""
    rows = session.execute(select(Worker.cores, Worker.memory_bytes)).all()
    return Capacity(max((len(cores) for cores, _ in rows), default=None), max((m for _, m in rows), default=None))
