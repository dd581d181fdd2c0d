"""Claim of a queued run by a worker: one short transaction, safe with any number of claimers."""

from __future__ import annotations

import json
import math

from sqlalchemy import Select, and_, exists, func, or_, select, update
from sqlalchemy.orm import Session

from gpt2core.spec.series import without_new
from taskloom.contract.attempts import Lease, LeaseRequest
from taskloom.contract.labels import NODES
from taskloom.server.db import LOCKED, Database, db_now, now, utc
from taskloom.server.errors import StaleBoot, UnknownWorker, WorkerBusy
from taskloom.server.queue.attempts import cores
from taskloom.server.queue.tables.attempts import Attempt, is_active
from taskloom.server.queue.tables.experiments import Block, RequiredLabel
from taskloom.server.queue.tables.runs import Run, is_queued
from taskloom.server.queue.tables.states import ATTEMPT
from taskloom.server.queue.tables.workers import Worker
from taskloom.server.queue.transitions import changes
from taskloom.server.queue.transitions.changes import Cause
from taskloom.server.settings import Settings
from taskloom.server.waiting import Empty


def claim(database: Database, settings: Settings, request: LeaseRequest) -> Lease | Empty | None:
    """A lease on the next run that fits this worker. None: nothing fits this worker. Empty: the queue is empty.

    Raises UnknownWorker, StaleBoot or WorkerBusy.
    """
    with database.write() as session:
        worker = _known_worker(session, request)
        worker.seen_at = at = now(session)
        worker.ends_at = None if request.remaining_s is None else at + request.remaining_s
        held = session.scalars(select(Attempt).where(Attempt.worker_id == worker.worker_id, is_active())).first()
        if held is not None:
            return _again(session, settings, held)
        if cores.are_taken(session, worker.node, worker.core_set):
            return None
        run = _next_run(session, settings, worker)
        if run is None:
            queued = session.execute(select(Run.id).where(is_queued()).limit(1)).first()
            return Empty() if queued is None else None
        return _lease(session, settings, worker, run)


def _known_worker(session: Session, request: LeaseRequest) -> Worker:
    worker = session.get(Worker, request.worker_id, with_for_update=LOCKED)
    if worker is None or worker.removed_at is not None:
        raise UnknownWorker(f"worker {request.worker_id} is not registered here")
    if worker.boot_id != request.boot_id:
        raise StaleBoot(f"worker {request.worker_id} was registered again by another process")
    return worker


def _again(session: Session, settings: Settings, held: Attempt) -> Lease:
    """Return the worker's lease again if its attempt was not started: the answer to its claim was lost."""
    if held.state != "leased":
        raise WorkerBusy(f"worker {held.worker_id} still runs attempt {held.id}", attempt_id=held.id)
    run = session.get_one(Run, held.run_id)
    held.expires_at = now(session) + settings.lease_s
    return _as_lease(session, settings, held, run)


def _next_run(session: Session, settings: Settings, worker: Worker) -> Run | None:
    """The first queued run whose block fits the worker, locked against other claimers."""
    unpinnable: set[str] = set()
    offered = set(worker.cores)
    while True:
        found = session.execute(_fitting(settings, worker, unpinnable)).first()
        if found is None:
            return None
        run, pinned_cores = found
        if {int(core) for core in filter(None, pinned_cores.split(","))} <= offered:
            return run
        unpinnable.add(pinned_cores)


def _fitting(settings: Settings, worker: Worker, unpinnable: set[str]) -> Select[Run, str]:
    mine = and_(Block.node == worker.node, Block.core_set == worker.core_set)
    keeper_seen = exists().where(
        Worker.node == Block.node,
        Worker.core_set == Block.core_set,
        Worker.left_at.is_(None),
        Worker.seen_at > db_now() - settings.block_release_s,
    )
    labels = [json.dumps([key, value]) for key, value in worker.labels.items()]
    lacks_label = exists().where(RequiredLabel.experiment_id == Run.experiment_id)
    if labels:
        lacks_label = lacks_label.where(RequiredLabel.label.not_in(labels))
    query = (
        select(Run, Block.pinned_cores)
        .join(Block, and_(Block.experiment_id == Run.experiment_id, Block.number == Run.block))
        .where(
            is_queued(),
            Block.cores_needed <= len(worker.cores),
            Block.memory_needed_bytes <= worker.memory_bytes,
            Run.timeout_s <= (math.inf if worker.ends_at is None else worker.ends_at - worker.seen_at),
            or_(Block.node.is_(None), mine, ~keeper_seen),
            ~lacks_label,
        )
        .order_by(Run.rank, Run.id)
        .limit(1)
        # The block's row is also locked, since the first claim of one of its runs binds the block to a node.
        .with_for_update(skip_locked=True, of=(Run, Block), **LOCKED)
    )
    return query.where(Block.pinned_cores.not_in(sorted(unpinnable))) if unpinnable else query


def _lease(session: Session, settings: Settings, worker: Worker, run: Run) -> Lease:
    at = now(session)
    worker.measuring_peaks = False  # a lease ends the measurement of an idle worker
    session.execute(
        update(Block)
        .where(Block.experiment_id == run.experiment_id, Block.number == run.block)
        .values(node=worker.node, core_set=worker.core_set)
    )
    run.attempts += 1
    attempt = Attempt(
        run_id=run.id,
        attempt_no=run.attempts,
        worker_id=worker.worker_id,
        boot_id=worker.boot_id,
        node=worker.node,
        core_set=worker.core_set,
        purpose=run.purpose,
        state=ATTEMPT.states[0],
        claimed_at=at,
        started_at=None,
        expires_at=at + settings.lease_s,
        deadline_at=at + run.timeout_s,
        finished_at=None,
        progress=None,
        error=None,
    )
    session.add(attempt)
    changes.make(session, Cause(f"worker:{worker.worker_id}", at), run, "claim", attempt)
    session.flush()
    return _as_lease(session, settings, attempt, run)


def _as_lease(session: Session, settings: Settings, attempt: Attempt, run: Run) -> Lease:
    required = select(RequiredLabel.label).where(RequiredLabel.experiment_id == run.experiment_id)
    labels = dict(json.loads(label) for label in session.scalars(required))
    return Lease(
        attempt_id=attempt.id,
        attempt_no=attempt.attempt_no,
        run_id=run.id,
        experiment_id=run.experiment_id,
        purpose=attempt.purpose,
        spec=without_new(run.spec),
        lease_s=settings.lease_s,
        heartbeat_s=settings.heartbeat_s,
        expires_at=utc(attempt.expires_at),
        deadline_at=utc(attempt.deadline_at),
        deadline_s=run.timeout_s,
        build=run.variant.get("build"),
        nodes=int(labels.get(NODES, 1)),
    )


def latest_queued_at(database: Database) -> float | None:
    """Time at which any server on this database last queued a run. None: the queue is empty."""
    with database.read() as session:
        return session.execute(select(func.max(Run.queued_at)).where(is_queued())).scalar_one()
