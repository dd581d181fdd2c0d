"""Registration and lists of workers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import get_args

from pydantic import ValidationError
from sqlalchemy import select
from sqlalchemy.orm import Session

from taskloom.contract.attempts import ProgressSeen
from taskloom.contract.workers import CurrentAttempt, WorkerPage, WorkerRegistration, WorkerState, WorkerSummary
from taskloom.server import paging, values
from taskloom.server.access.keys.keyring import Caller
from taskloom.server.db import LOCKED, Database, existing, hold, now, utc
from taskloom.server.errors import NotFound, ServerError, StaleBoot, WorkerBusy, WorkerElsewhere
from taskloom.server.queue import ownership
from taskloom.server.queue.attempts.lifecycle import lose_attempts_of
from taskloom.server.queue.tables.attempts import Attempt, is_active
from taskloom.server.queue.tables.runs import Run
from taskloom.server.queue.tables.workers import Worker
from taskloom.server.settings import Settings

log = logging.getLogger("taskloom.server")
ENDING_S = 120.0  # near the end of its walltime a worker takes hardly any runs
FORMER_BOOTS = 100  # boot ids of replaced processes stored per worker, to reject their late messages


def register(
    database: Database, settings: Settings, caller: Caller, given: WorkerRegistration
) -> tuple[WorkerSummary, bool, bool | None]:
    """Register a worker. Returns the worker; whether it is new; and whether its restart queued runs again, None if it
    did not restart.

    The same boot_id means the same process, which keeps its attempts. Another boot_id means a new process: the attempts
    of the old one are lost, and its late messages have no effect. Raises NotYourWorker, StaleBoot, WorkerElsewhere or
    CoresTaken.
    """
    cores = sorted(set(given.cores))
    with database.write() as session:
        hold(session, f"worker {given.worker_id}")  # two first registrations at the same moment
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
            _check_spool(given, worker, at, settings.lease_s)
            worker.former_boots = [*former, worker.boot_id][-FORMER_BOOTS:]
            requeued = lose_attempts_of(session, worker.worker_id, settings)
            worker.registered_at = at
        worker.boot_id = given.boot_id
        worker.machine_boot_id, worker.started_s = given.machine_boot_id, given.started_s
        worker.node, worker.spool_id = given.node, given.spool_id
        worker.cores = cores
        worker.core_set = ",".join(map(str, cores))
        worker.memory_bytes = given.memory_bytes
        worker.labels = dict(given.labels)
        worker.software = dict(given.software)
        worker.topology = given.topology
        worker.measuring_peaks = given.measuring_peaks
        worker.seen_at, worker.ends_at, worker.left_at, worker.removed_at = at, None, None, None
        session.flush()
        if new:
            ownership.take(session, caller, given.worker_id)
            session.flush()
        current = _held(session, [worker]).get(worker.worker_id)
        state = _state(worker, current is not None, at, settings)
        return _summary(worker, current).model_copy(update={"state": state}), new, requeued


def _started_before(given: WorkerRegistration, known: Worker) -> bool:
    """Whether the given process started before the known one, by the clock of their machine. False for two machines,
    whose clocks cannot be compared."""
    if given.machine_boot_id is None or given.machine_boot_id != known.machine_boot_id:
        return False
    return given.started_s is not None and known.started_s is not None and given.started_s < known.started_s


def _check_spool(given: WorkerRegistration, known: Worker, at: float, lease_s: float) -> None:
    """Raises WorkerElsewhere if the known process is active with another spool. Otherwise the results in that spool
    might never be delivered."""
    silent_s = at - known.seen_at
    if known.left_at is not None or silent_s > lease_s or None in (given.spool_id, known.spool_id):
        return
    if given.spool_id != known.spool_id:
        raise WorkerElsewhere(
            f"worker {known.worker_id} is active with another spool on {known.node} (last message {silent_s:.0f} s "
            "ago): stop it, or give this worker another --worker-id; this worker takes its place once the other has "
            f"been silent for {lease_s:g} s"
        )


def leave(database: Database, caller: Caller, worker_id: str, boot_id: str) -> None:
    """Record that a worker takes no further run, and release its blocks. The worker keeps its current attempt.

    Raises NotFound, NotYourWorker or StaleBoot.
    """
    with database.write() as session:
        worker = existing(session, Worker, worker_id, lock=True)
        ownership.take(session, caller, worker_id)
        if worker.boot_id != boot_id:
            raise StaleBoot(f"worker {worker_id} was registered again by another process")
        worker.seen_at = worker.left_at = now(session)


def remove(database: Database, settings: Settings, worker_id: str) -> None:
    """Remove a worker from lists. Raises NotFound, or WorkerBusy if it may still claim runs."""
    with database.write() as session:
        worker = session.get(Worker, worker_id, with_for_update=LOCKED)
        if worker is None or worker.removed_at is not None:
            raise NotFound(f"there is no worker {worker_id}")
        at = now(session)
        held = session.scalars(select(Attempt.id).where(Attempt.worker_id == worker_id, is_active())).first()
        state = _state(worker, held is not None, at, settings)
        if state not in ("left", "silent"):
            raise WorkerBusy(f"worker {worker_id} is {state}; it must leave first", attempt_id=held, current=state)
        worker.removed_at = at


def show(database: Database, settings: Settings, worker_id: str) -> WorkerSummary:
    """Raises NotFound."""
    with database.read() as session:
        worker = session.get(Worker, worker_id)
        if worker is None or worker.removed_at is not None:
            raise NotFound(f"there is no worker {worker_id}")
        found, _ = _summaries(session, settings, [worker])
    if not found:
        raise NotFound(f"worker {worker_id} was registered with unreadable values; it must register again")
    return found[0]


def page(database: Database, settings: Settings, cursor: str | None, limit: int) -> WorkerPage:
    """Workers by id. Raises BadCursor."""
    after = paging.decode(cursor)
    with database.read() as session:
        query = select(Worker).where(Worker.removed_at.is_(None)).order_by(Worker.worker_id).limit(limit + 1)
        if after is not None:
            query = query.where(Worker.worker_id > after)
        rows, more = paging.split(session.scalars(query).all(), limit)
        found, unreadable = _summaries(session, settings, rows)
    next_cursor = paging.encode(rows[-1].worker_id) if more else None
    return WorkerPage(items=found, unreadable=unreadable, next_cursor=next_cursor)


def _summaries(
    session: Session, settings: Settings, workers: Sequence[Worker]
) -> tuple[list[WorkerSummary], list[str]]:
    """Summaries of the workers whose rows are readable, and the ids of the others."""
    held, at = _held(session, workers), now(session)
    found, unreadable = [], []
    for worker in workers:
        current = held.get(worker.worker_id)
        try:
            summary = _summary(worker, current)
        except (ValidationError, ServerError):
            log.warning("worker %s was registered with values that cannot be read", worker.worker_id)
            unreadable.append(worker.worker_id)
            continue
        found.append(summary.model_copy(update={"state": _state(worker, current is not None, at, settings)}))
    return found, unreadable


def _state(worker: Worker, busy: bool, at: float, settings: Settings) -> WorkerState:
    if busy:
        return "busy"
    if worker.left_at is not None:
        return "left"
    if worker.seen_at <= at - settings.block_release_s:
        return "silent"
    if worker.measuring_peaks:
        return "measuring peaks"
    return "ending" if worker.ends_at is not None and worker.ends_at < at + ENDING_S else "idle"


def count_by_state(session: Session, settings: Settings) -> dict[WorkerState, int]:
    """Number of workers in each state."""
    busy = set(session.scalars(select(Attempt.worker_id).where(is_active())))
    at = now(session)
    counts: dict[WorkerState, int] = dict.fromkeys(get_args(WorkerState), 0)
    for worker in session.scalars(select(Worker).where(Worker.removed_at.is_(None))):
        counts[_state(worker, worker.worker_id in busy, at, settings)] += 1
    return counts


def _held(session: Session, workers: Sequence[Worker]) -> dict[str, CurrentAttempt]:
    """Current attempt of each of these workers."""
    held = select(Attempt, Run.experiment_id).join(Run, Run.id == Attempt.run_id)
    held = held.where(Attempt.worker_id.in_([worker.worker_id for worker in workers]), is_active())
    return {
        attempt.worker_id: CurrentAttempt(
            attempt_id=attempt.id,
            run_id=attempt.run_id,
            experiment_id=experiment_id,
            claimed_at=utc(attempt.claimed_at),
            progress=ProgressSeen.kept(attempt.progress),
        )
        for attempt, experiment_id in session.execute(held.order_by(Attempt.id))
    }


def _summary(worker: Worker, current: CurrentAttempt | None) -> WorkerSummary:
    """Summary of a worker. Raises ValidationError, InvalidRequest or BodyTooComplex for stored values that would not be
    accepted now."""
    values.refuse_odd([worker.labels, worker.software, worker.topology], values.REQUEST)
    return WorkerSummary(
        worker_id=worker.worker_id,
        boot_id=worker.boot_id,
        machine_boot_id=worker.machine_boot_id,
        started_s=worker.started_s,
        spool_id=worker.spool_id,
        node=worker.node,
        cores=worker.cores,
        memory_bytes=worker.memory_bytes,
        labels=worker.labels,
        software=worker.software,
        topology=worker.topology,
        measuring_peaks=bool(worker.measuring_peaks),
        registered_at=utc(worker.registered_at),
        seen_at=utc(worker.seen_at),
        ends_at=None if worker.ends_at is None else utc(worker.ends_at),
        left_at=None if worker.left_at is None else utc(worker.left_at),
        current_attempt_id=None if current is None else current.attempt_id,
        current=current,
    )
