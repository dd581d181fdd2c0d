"""The jobs of one provisioner. They are recorded on disk before they are submitted, and adopted after a restart."""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from gpt2core.spec import files
from gpt2core.spec.errors import FileError, InputError
from gpt2core.spec.locks import Taken, lock
from taskloom.contract import edited
from taskloom.provisioner.slurm import QueuedJob

MISSES = 2  # successive lists without a job after which it has ended; one list may miss a job that changes its state
WAITING = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD")
SUBMITTING = "SUBMITTING"  # not a state of Slurm: it is unknown whether Slurm has the job


class AlreadyRunning(InputError):
    """Another provisioner with the same name uses this state file."""


@dataclass
class Job:
    """A job of this provisioner.

    job_id: Slurm's id, "" while it is unknown. misses: successive lists without the job. explained: its worker
    registered or the provisioner cancelled it, so its end is not a failure.
    """

    name: str
    pool: str
    job_id: str = ""
    state: str = SUBMITTING
    reason: str = ""
    misses: int = 0
    explained: bool = False

    @property
    def waits(self) -> bool:
        """Whether the job still waits for a node, as far as is known."""
        return self.state == SUBMITTING or self.state in WAITING


class Jobs:
    """Every job of this provisioner that may exist. Raises AlreadyRunning, OSError, FileError (unreadable state)."""

    def __init__(self, name: str, state: Path) -> None:
        self._prefix, self._path = f"{name}.", state
        state.parent.mkdir(parents=True, exist_ok=True)
        self._lock = state.with_suffix(".lock").open("w")
        try:
            self.is_locked = lock(self._lock, wait=False)  # False: its file system has no locks
        except OSError:
            self._lock.close()
            raise
        except Taken as error:
            self._lock.close()
            raise AlreadyRunning(f"{state}: another provisioner uses it; give one of them another `name`") from error
        try:
            kept = json.loads(edited.read_text(state)) if state.exists() else []
            self._jobs = {job["name"]: Job(**job) for job in kept}
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            self._lock.close()
            raise FileError(state, "not the state of a provisioner; give another --state, or delete it") from error
        except OSError:
            self._lock.close()
            raise

    def close(self) -> None:
        self._lock.close()

    def of(self, pool: str) -> list[Job]:
        """Jobs of a pool, oldest first."""
        return [job for job in self._jobs.values() if job.pool == pool]

    def plan(self, pool: str) -> Job:
        """Record a new job on disk before it is submitted, in case this process ends in between."""
        job = Job(f"{self._prefix}{pool}.{uuid.uuid4().hex[:8]}", pool)
        self._jobs[job.name] = job
        self._save()
        return job

    def submitted(self, job: Job, job_id: str) -> None:
        job.job_id, job.state = job_id, "PENDING"
        self._save()

    def refused(self, job: Job) -> None:
        """Remove a job that Slurm refused."""
        del self._jobs[job.name]
        self._save()

    def update(self, listed: Iterable[QueuedJob], pools: Iterable[str]) -> list[Job]:
        """Update the jobs from the list of `squeue`; return those that have ended. Listed jobs with this provisioner's
        name that are not recorded are adopted."""
        known, entries = set(pools), {}
        for entry in listed:
            pool = entry.name.removeprefix(self._prefix).rpartition(".")[0]
            if entry.name.startswith(self._prefix) and pool in known:
                entries[entry.name] = entry
        for name, entry in entries.items():
            pool = name.removeprefix(self._prefix).rpartition(".")[0]
            explained = name in self._jobs and self._jobs[name].explained
            self._jobs[name] = Job(name, pool, entry.job_id, entry.state, entry.reason, explained=explained)
        gone = []
        for name, job in list(self._jobs.items()):
            if name not in entries:
                job.misses += 1
                if job.misses >= MISSES:
                    gone.append(self._jobs.pop(name))
        self._save()
        return gone

    def explain(self, job_ids: Collection[str]) -> list[Job]:
        """Record that workers of these jobs registered, or that the jobs were cancelled; return those newly
        explained."""
        new = [job for job in self._jobs.values() if job.job_id and job.job_id in job_ids and not job.explained]
        for job in new:
            job.explained = True
        if new:
            self._save()
        return new

    def _save(self) -> None:
        files.write_text(self._path, json.dumps([asdict(job) for job in self._jobs.values()]))
