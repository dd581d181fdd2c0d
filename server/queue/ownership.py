"""Ownership of workers: a worker key may use only its own workers and their attempts."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import select
from sqlalchemy.orm import Session

from taskloom.server.access.keys import keyring
from taskloom.server.access.keys.keyring import Caller
from taskloom.server.db import Database
from taskloom.server.errors import CoresTaken, NotYourWorker, UnknownWorker
from taskloom.server.queue.tables.attempts import Attempt, is_active
from taskloom.server.queue.tables.workers import WorkerKey


def take(session: Session, caller: Caller, worker_id: str) -> None:
    """Assign the worker to the caller, unless it belongs to another valid key. Raises NotYourWorker."""
    if caller.key_id is None:
        return
    owner = session.get(WorkerKey, worker_id)
    if owner is None:
        session.add(WorkerKey(worker_id=worker_id, key_id=caller.key_id))
        return
    if owner.key_id != caller.key_id and caller.scope != "admin" and keyring.is_usable(session, owner.key_id):
        raise NotYourWorker(f"worker {worker_id} was registered with another key")
    owner.key_id = caller.key_id


def check_cores(session: Session, caller: Caller, worker_id: str, node: str, cores: Collection[int]) -> None:
    """Raises CoresTaken if attempts of another key's workers run on these cores."""
    if caller.key_id is None or caller.scope == "admin":
        return
    running = (
        select(Attempt.core_set, WorkerKey.key_id)
        .join(WorkerKey, WorkerKey.worker_id == Attempt.worker_id)
        .where(Attempt.node == node, is_active(), Attempt.worker_id != worker_id, WorkerKey.key_id != caller.key_id)
    )
    for core_set, key_id in session.execute(running).all():
        if set(map(int, core_set.split(","))) & set(cores) and keyring.is_usable(session, key_id):
            raise CoresTaken(f"cores {core_set} of {node} run an attempt of a worker of another key")


def check_worker(database: Database, caller: Caller, worker_id: str) -> None:
    """Raises NotYourWorker, or UnknownWorker if the worker registered without a key and must register again."""
    if caller.scope == "admin":
        return
    with database.read() as session:
        owner = session.get(WorkerKey, worker_id)
    if owner is None:
        raise UnknownWorker(f"worker {worker_id} is not registered with this key")
    if owner.key_id != caller.key_id:
        raise NotYourWorker(f"worker {worker_id} was registered with another key")


def check_attempt(database: Database, caller: Caller, attempt_id: int) -> None:
    """Raises NotYourWorker. A missing attempt is no error here; the next step reports it."""
    if caller.scope != "worker":
        return
    with database.read() as session:
        worker_id = session.execute(select(Attempt.worker_id).where(Attempt.id == attempt_id)).scalar_one_or_none()
        owner = None if worker_id is None else session.get(WorkerKey, worker_id)
    if worker_id is not None and (owner is None or owner.key_id != caller.key_id):
        raise NotYourWorker(f"attempt {attempt_id} belongs to a worker that was registered with another key")
