"""The largest resources of the known workers."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from taskloom.contract.labels import MPI, NODES, RUNTIME
from taskloom.server.queue.demand import provisioning
from taskloom.server.queue.tables.workers import Worker


@dataclass(frozen=True)
class Capacity:
    """The largest resources of the known nodes; None: no node is known."""

    cores: int | None = None
    memory_bytes: int | None = None
    runtimes: frozenset[str] | None = None  # labels of OpenMP runtimes on the known nodes
    mpi: bool | None = None  # whether a known node can start several ranks
    nodes: frozenset[str] | None = None  # numbers of nodes of the known workers and pools


KNOWN = select(Worker.cores, Worker.memory_bytes, Worker.labels).where(Worker.removed_at.is_(None))


def capacity(session: Session) -> Capacity:
    """The maximum of cores and of memory, all OpenMP runtimes, MPI and numbers of nodes, over the known workers."""
    rows = session.execute(KNOWN).all()
    if not rows:
        return Capacity()
    runtimes = frozenset(label for row in rows for label in row.labels if label.startswith(RUNTIME))
    mpi = any(MPI in row.labels for row in rows)
    cores, memory_bytes = max(len(row.cores) for row in rows), max(row.memory_bytes for row in rows)
    labels = [row.labels for row in rows] + [pool.labels for pool in provisioning.heard_of(session)]
    return Capacity(cores, memory_bytes, runtimes, mpi, frozenset(each.get(NODES, "1") for each in labels))
