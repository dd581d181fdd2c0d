"""Position of a queued run and the reason why it waits, found with the rules of a claim for each worker."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import func, select, tuple_
from sqlalchemy.orm import Session

from gpt2core.spec.schedulers import AUTO
from gpt2core.spec.wording import counted
from taskloom.contract.demand import PoolSummary
from taskloom.contract.fitting import JOB_RESERVE_S, REQUIREMENTS, Lack, Need, Offer
from taskloom.contract.labels import INSTALLED, MPI, NODES, RUNTIME
from taskloom.contract.runs import QueuePlace, WaitingReason
from taskloom.server.db import db_now
from taskloom.server.queue.demand import provisioning
from taskloom.server.queue.tables.attempts import Attempt, is_active
from taskloom.server.queue.tables.experiments import Block, RequiredLabel
from taskloom.server.queue.tables.runs import Run, is_queued
from taskloom.server.queue.tables.workers import Worker
from taskloom.server.settings import Settings


class Queued(NamedTuple):
    """Columns of a queued run that its reason depends on, besides those of its block."""

    id: int
    experiment_id: int
    block: int
    timeout_s: float


@dataclass(frozen=True, kw_only=True)
class Wish(Need):
    """Requirements of a run's block. kept_by: (node, core set) that the block is bound to, or None."""

    kept_by: tuple[str, str] | None


@dataclass(frozen=True, kw_only=True)
class Present(Offer):
    """A worker that sent a message recently, or a future worker of a pool. busy: an attempt runs on one of its
    cores. measuring: it measures its node's peaks first."""

    node: str
    core_set: str
    busy: bool
    measuring: bool = False


Answer = tuple[WaitingReason, str]
PRESENT: frozenset[WaitingReason] = frozenset({"runs-before", "next"})  # a present worker will claim the run
STARTING, WAITING = ("CONFIGURING", "RUNNING"), ("PENDING", "SUBMITTING")


def waiting_for(wish: Wish, offers: Sequence[Present], registered: int, runs_before: int) -> Answer:
    """Reason why a run waits. registered: number of all workers, including silent ones."""
    if not offers:
        if not registered:
            return "no-worker", "no worker is registered"
        return "no-worker", f"none of the registered workers ({registered}) is present: each is silent or has left"
    unfit = _lacking(wish, offers, "worker")
    if unfit is not None:
        return unfit
    fitting = [offer for offer in offers if _lacking(wish, [offer], "worker") is None]
    if wish.kept_by is not None and any((offer.node, offer.core_set) == wish.kept_by for offer in offers):
        fitting = [offer for offer in fitting if (offer.node, offer.core_set) == wish.kept_by]
        whose = f"its block is bound to the worker on cores {wish.kept_by[1]} of {wish.kept_by[0]}"
        if not fitting:
            return "block-bound", f"{whose}, which does not meet its requirements"
        if all(offer.busy for offer in fitting):
            return "block-bound", f"{whose}, which is busy"
    if all(offer.busy for offer in fitting):
        idle = [offer for offer in offers if not offer.busy]
        unfit = _lacking(wish, idle, "idle worker") if idle else None
        return unfit or ("all-busy", f"each worker that could run it ({len(fitting)}) is busy")
    if all(offer.busy or offer.measuring for offer in fitting):
        return "measuring-peaks", "the worker that could run it is measuring peaks"
    if runs_before:
        return "runs-before", f"{counted(runs_before, 'run')} before it in the queue"
    return "next", "it is the next run that a worker claims"


def fits(wish: Wish, offers: Sequence[Present]) -> bool:
    """Whether one of the workers, busy or not, meets all requirements."""
    return bool(offers) and _lacking(wish, offers, "worker") is None


def _lacking(wish: Wish, offers: Sequence[Present], kind: str) -> Answer | None:
    """The first requirement that no worker meets in addition to all earlier ones; None if a worker meets all."""
    left = list(offers)
    for label in sorted(wish.labels):
        if not any(label in offer.labels for offer in left):
            if label[0].startswith(RUNTIME):
                return "no-runtime", f"no {kind} has {_runtime(label[0])}"
            if label[0] == NODES:
                return "no-label", f"no {kind} has {label[1]} nodes"
            if label == (MPI, INSTALLED):
                return "no-label", f"no {kind} has an MPI library, which several ranks need (taskloom[mpi])"
            return "no-label", f"no {kind} has the label {'='.join(label)}"
    for lack, meets in REQUIREMENTS.items():
        some = [offer for offer in left if meets(wish, offer)]
        if not some:
            return lack, _words(lack, wish, left, kind)
        left = some
    return None


def _words(lack: Lack, wish: Wish, left: Sequence[Present], kind: str) -> str:
    """An unmet requirement in words. left: workers that meet the earlier ones."""
    match lack:
        case "no-label":
            return f"no {kind} has all of the labels {', '.join('='.join(label) for label in sorted(wish.labels))}"
        case "too-few-cores":
            return f"needs {wish.cores} cores; the largest {kind} has {max(len(offer.cores) for offer in left)}"
        case "other-cores":
            return f"no {kind} has the cores {','.join(map(str, sorted(wish.pinned_cores)))}"
        case "too-little-memory":
            largest = max(offer.memory_bytes for offer in left)
            return f"needs {wish.memory_bytes:,} bytes of memory; the largest {kind} has {largest:,}"
        case "too-little-time":
            most_s = max(offer.remaining_s for offer in left)
            return f"may take {wish.timeout_s:g} s; the {kind} with the most time left has {most_s:.0f} s"


def _runtime(label: str) -> str:
    name = label.removeprefix(RUNTIME)
    return "an OpenMP runtime" if name == AUTO else f"the OpenMP runtime {name}"


def place(session: Session, settings: Settings, run: Run) -> QueuePlace | None:
    """Position of a run in the queue. None: it is not queued."""
    if run.state != "queued":
        return None
    ahead = select(func.count()).where(is_queued(), tuple_(Run.rank, Run.id) < tuple_(run.rank, run.id))
    before = session.execute(ahead).scalar_one()
    outlook = Outlook(session, settings, [run])
    reason, text = outlook.waiting_for(outlook.wish(run), before)
    return QueuePlace(position=before + 1, reason=reason, waiting_for=text)


class Outlook:
    """Reasons why queued runs wait; workers, pools, and the blocks of all runs are read once."""

    def __init__(self, session: Session, settings: Settings, runs: Sequence[Run | Queued]) -> None:
        self._registered = session.execute(select(func.count()).select_from(Worker)).scalar_one()
        self._offers, self._pools = offered(session, settings), provisioning.heard_of(session)
        self._wishes = wishes(session, runs)

    def wish(self, run: Run | Queued) -> Wish:
        """Requirements of one of the runs. Runs with equal ones wait for the same reason."""
        return self._wishes[run.experiment_id, run.block]

    def waiting_for(self, wish: Wish, runs_before: int) -> Answer:
        """Reason why a run with these requirements waits, with `runs_before` runs ahead of it."""
        found = waiting_for(wish, self._offers, self._registered, runs_before)
        return waiting_for_pool(wish, self._pools, found)


def waiting_for_pool(wish: Wish, pools: Sequence[PoolSummary], found: Answer) -> Answer:
    """Reason why a run waits if provisioners can start workers. found: the reason with the present workers only."""
    if not pools or found[0] in PRESENT:
        return found
    fitting = [pool for pool in pools if _lacking(wish, [_job_of(pool)], f"job of pool {pool.name}") is None]
    if not fitting:
        unfit = _lacking(wish, [_job_of(pool) for pool in pools], "job of a pool")
        return found if unfit is None else (unfit[0], f"{found[1]}; {unfit[1]}")
    jobs = [(pool.name, job) for pool in fitting for job in pool.jobs]
    for name, job in jobs:
        if job.state in STARTING:
            return "pool-starting", f"a job of pool `{name}` is starting"
    for name, job in jobs:
        if job.state in WAITING:
            why = f": {job.reason}" if job.reason not in ("", "None") else ""
            return "pool-waiting", f"a job of pool `{name}` is pending in Slurm{why}"
    for pool in fitting:
        if pool.problem is not None:
            return "pool-held", f"pool `{pool.name}`: {pool.problem}"
    names = ", ".join(f"`{pool.name}`" for pool in fitting)
    return "pool-asked", f"{found[1]}; the provisioner of pool {names} submits a job in its next round"


def _job_of(pool: PoolSummary) -> Present:
    cores = range(pool.cores)
    return Present(
        node="",
        cores=frozenset(cores),
        core_set="",
        memory_bytes=pool.memory_bytes,
        remaining_s=max(0.0, pool.walltime_s - JOB_RESERVE_S),
        labels=frozenset(pool.labels.items()),
        busy=False,
    )


def wishes(session: Session, runs: Sequence[Run | Queued]) -> dict[tuple[int, int], Wish]:
    """Requirements of the runs' blocks, by experiment and number. A block's timeout is that of its first run."""
    first = {(run.experiment_id, run.block): run for run in reversed(runs)}
    labels: dict[int, set[tuple[str, str]]] = {experiment_id: set() for experiment_id, _ in first}
    required = select(RequiredLabel.experiment_id, RequiredLabel.label)
    for experiment_id, label in session.execute(required.where(RequiredLabel.experiment_id.in_(labels))):
        key, value = json.loads(label)
        labels[experiment_id].add((key, value))
    of_run = (Run.experiment_id == Block.experiment_id) & (Run.block == Block.number)
    ids = [run.id for run in first.values()]  # SQLite would search pairs of experiment and number in all blocks
    needed = select(  # columns, not objects: hundreds of blocks may be read
        Block.experiment_id,
        Block.number,
        Block.cores_needed,
        Block.pinned_cores,
        Block.memory_needed_bytes,
        Block.node,
        Block.core_set,
    )
    blocks = session.execute(needed.join(Run, of_run).where(Run.id.in_(ids)))
    return {
        (block.experiment_id, block.number): Wish(
            labels=frozenset(labels[block.experiment_id]),
            cores=block.cores_needed,
            pinned_cores=frozenset(map(int, filter(None, block.pinned_cores.split(",")))),
            memory_bytes=block.memory_needed_bytes,
            timeout_s=first[block.experiment_id, block.number].timeout_s,
            kept_by=None if block.node is None or block.core_set is None else (block.node, block.core_set),
        )
        for block in blocks
    }


def offered(session: Session, settings: Settings) -> list[Present]:
    """The workers that sent a message recently and have not left."""
    taken = session.execute(select(Attempt.node, Attempt.core_set).where(is_active())).all()
    busy = {(node, int(core)) for node, core_set in taken for core in core_set.split(",")}
    known = select(  # columns, not objects: every answer with a remaining time reads them
        Worker.node, Worker.cores, Worker.core_set, Worker.memory_bytes, Worker.labels, Worker.measuring_peaks,
        (Worker.ends_at - db_now()).label("remaining_s"),
    )  # fmt: skip
    present = known.where(Worker.seen_at > db_now() - settings.block_release_s, Worker.left_at.is_(None))
    return [
        Present(
            node=worker.node,
            cores=frozenset(worker.cores),
            core_set=worker.core_set,
            memory_bytes=worker.memory_bytes,
            remaining_s=math.inf if worker.remaining_s is None else max(0.0, worker.remaining_s),
            labels=frozenset(worker.labels.items()),
            busy=any((worker.node, core) in busy for core in worker.cores),
            measuring=bool(worker.measuring_peaks),
        )
        for worker in session.execute(present)
    ]
