"""Decides which jobs to submit and to cancel: demand and jobs in, decisions out. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from taskloom.contract.demand import Demand, Need, PresentWorker
from taskloom.contract.fitting import lacks
from taskloom.provisioner.jobs import Job
from taskloom.provisioner.pools import Pool


@dataclass(frozen=True)
class Decision:
    """Decision for one pool.

    blocks: blocks that wait for a worker of the pool. submit: new jobs. surplus: pending jobs that are not needed,
    newest first. held: the limit because of which fewer jobs are submitted than needed, or "".
    """

    blocks: int
    submit: int
    surplus: tuple[Job, ...]
    held: str


def decide(demand: Demand, pools: Sequence[Pool], jobs: Mapping[str, Sequence[Job]]) -> dict[str, Decision]:
    """Decide for every pool; return the decisions by pool name.

    Each unassigned block needs one worker. Idle workers that fit are counted first, then jobs that are starting, then
    pending jobs; new jobs cover the rest. The first pool that can run a whole block serves it.
    """
    idle = [worker for worker in demand.workers if worker.idle]
    arrived = {worker.labels.get("slurm_job") for worker in demand.workers}
    waiting = dict.fromkeys((pool.name for pool in pools), 0)
    for need in demand.needs:
        pool = next((pool for pool in pools if pool.lacks(need) is None), None)
        left = need.blocks - _taken(idle, need)
        if pool is not None:
            waiting[pool.name] += left
    return {pool.name: _for_pool(pool, waiting[pool.name], jobs.get(pool.name, ()), arrived) for pool in pools}


def _for_pool(pool: Pool, blocks: int, jobs: Sequence[Job], arrived: set[str | None]) -> Decision:
    waiting = [job for job in jobs if job.waits]
    starting = [job for job in jobs if not job.waits and job.job_id not in arrived]
    needed = max(0, blocks - len(starting))  # jobs that wait for a node, plus jobs still to be submitted
    lacking = needed - len(waiting)
    room = {"max_jobs": pool.max_jobs - len(jobs), "max_pending": pool.max_pending - len(waiting)}
    submit = max(0, min(lacking, *room.values()))
    held = ""
    if submit < lacking:
        limit = min(room, key=lambda name: room[name])
        held = f"{limit} is {getattr(pool, limit)}"
    cancellable = [job for job in reversed(waiting) if job.state == "PENDING" and job.job_id]
    return Decision(blocks, submit, tuple(cancellable[: max(0, -lacking)]), held)


def _taken(idle: list[PresentWorker], need: Need) -> int:
    """Assign idle workers to the blocks and remove them from `idle`; return their number."""
    fitting = [worker for worker in idle if lacks(need.need, worker.offer) is None][: need.blocks]
    for worker in fitting:
        idle.remove(worker)
    return len(fitting)
