"""Demand of the queue, and the pools whose provisioners can start workers for it."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import and_, delete, distinct, func, select
from sqlalchemy.orm import Session

from taskloom.contract.demand import Demand, Need, PoolPage, PoolReport, PoolSummary, PresentWorker
from taskloom.server.access.keys import keyring
from taskloom.server.access.keys.keyring import Caller
from taskloom.server.db import LOCKED, Database, hold, now, utc
from taskloom.server.errors import NotYourPool, TooManyPools
from taskloom.server.queue.tables.attempts import Attempt, is_active
from taskloom.server.queue.tables.demand import Pool
from taskloom.server.queue.tables.experiments import Block, RequiredLabel
from taskloom.server.queue.tables.runs import Run, is_queued
from taskloom.server.queue.tables.workers import Worker
from taskloom.server.settings import Settings

INTERVALS = 3  # reporting intervals without a report after which a pool no longer counts
FORGOTTEN_S = 7 * 86400.0
MAX_POOLS = 200


def demand(database: Database, settings: Settings) -> Demand:
    """Requirements in the order of the queue, and the present workers."""
    with database.read() as session:
        present = _present(session, settings)
        return Demand(needs=_needs(session, {(worker.node, worker.core_set) for worker in present}),
                      workers=_described(session, present))  # fmt: skip


def report(database: Database, caller: Caller, name: str, given: PoolReport) -> PoolSummary:
    """Store a pool's report. Raises NotYourPool or TooManyPools."""
    with database.write() as session:
        hold(session, "pools")
        at = now(session)
        session.execute(delete(Pool).where(Pool.seen_at < at - FORGOTTEN_S))
        pool = session.get(Pool, name, with_for_update=LOCKED)
        if pool is None:
            if session.execute(select(func.count()).select_from(Pool)).scalar_one() >= MAX_POOLS:
                raise TooManyPools(f"this server has {MAX_POOLS} pools, the maximum")
            pool = Pool(name=name, key_id=caller.key_id)
            session.add(pool)
        elif pool.key_id not in (None, caller.key_id) and caller.scope != "admin":
            if keyring.is_usable(session, pool.key_id):
                raise NotYourPool(f"pool {name} was reported with another key")
            pool.key_id = caller.key_id
        pool.report = given.model_dump()
        pool.seen_at, pool.silent_at = at, at + INTERVALS * given.interval_s
        session.flush()
        return _summary(pool)


def pools(database: Database) -> PoolPage:
    """Every pool, by name."""
    with database.read() as session:
        return PoolPage(items=[_summary(pool) for pool in session.scalars(select(Pool).order_by(Pool.name))])


def heard_of(session: Session) -> list[PoolSummary]:
    """The pools with a recent report."""
    return [_summary(pool) for pool in session.scalars(select(Pool).where(Pool.silent_at > now(session)))]


def _present(session: Session, settings: Settings) -> list[Worker]:
    since = now(session) - settings.block_release_s
    return list(session.scalars(select(Worker).where(Worker.seen_at > since, Worker.left_at.is_(None))))


def _needs(session: Session, present: set[tuple[str, str]]) -> list[Need]:
    grouped = (
        select(
            Run.experiment_id, Block.cores_needed, Block.memory_needed_bytes, Block.pinned_cores, Run.timeout_s,
            Block.node, Block.core_set, func.count(distinct(Block.number)), func.count(), func.min(Run.queued_at),
        )
        .join(Block, and_(Block.experiment_id == Run.experiment_id, Block.number == Run.block))
        .where(is_queued())
        .group_by(
            Run.experiment_id, Block.cores_needed, Block.memory_needed_bytes, Block.pinned_cores, Run.timeout_s,
            Block.node, Block.core_set,
        )
        .order_by(func.min(Run.rank), func.min(Run.id))
    )  # fmt: skip
    rows = session.execute(grouped).all()
    labels: dict[int, dict[str, str]] = {}
    requested = {row[0] for row in rows}
    for experiment_id, label in session.execute(select(RequiredLabel.experiment_id, RequiredLabel.label)):
        if experiment_id in requested:
            key, value = json.loads(label)
            labels.setdefault(experiment_id, {})[key] = value
    found: dict[tuple[object, ...], dict[str, Any]] = {}
    for experiment_id, cores, memory, pinned, timeout_s, node, core_set, blocks, runs, queued_at in rows:
        required = labels.get(experiment_id, {})
        need = found.setdefault(
            (cores, memory, pinned, timeout_s, tuple(sorted(required.items()))),
            {
                "cores": cores,
                "memory_bytes": memory,
                "pinned_cores": [int(core) for core in filter(None, pinned.split(","))],
                "labels": required,
                "timeout_s": timeout_s,
                "blocks": 0,
                "kept_blocks": 0,
                "runs": 0,
                "oldest_queued_at": utc(queued_at),
            },
        )
        need["kept_blocks" if (node, core_set) in present else "blocks"] += blocks
        need["runs"] += runs
        need["oldest_queued_at"] = min(need["oldest_queued_at"], utc(queued_at))
    return [Need(**need) for need in found.values()]


def _described(session: Session, present: list[Worker]) -> list[PresentWorker]:
    taken = session.execute(select(Attempt.node, Attempt.core_set).where(is_active())).all()
    busy = {(node, int(core)) for node, core_set in taken for core in core_set.split(",")}
    at = now(session)
    return [
        PresentWorker(
            worker_id=worker.worker_id,
            cores=worker.cores,
            memory_bytes=worker.memory_bytes,
            labels=worker.labels,
            remaining_s=None if worker.ends_at is None else max(0.0, worker.ends_at - at),
            idle=not any((worker.node, core) in busy for core in worker.cores),
        )
        for worker in present
    ]


def _summary(pool: Pool) -> PoolSummary:
    return PoolSummary(name=pool.name, seen_at=utc(pool.seen_at), **pool.report)
