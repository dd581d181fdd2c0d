"""Runs use only cores of their Slurm jobs, however Slurm confines a job."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import psutil
import pytest

from taskloom import Client
from tests.support.cluster import Cluster, cluster
from tests.support.jobs_and_runs import LONG, Provision, logged, submit, worker_of
from tests.support.patience import until
from tests.support.processes import House

pytestmark = pytest.mark.slurm


CONFINED = ["task/affinity", "task/affinity,task/cgroup"]


@pytest.fixture
def slurm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("slurm"), request.param) as found:
        yield found


def cores_of(slurm: Cluster, job_id: str) -> set[int]:
    """Cores of a Slurm job with one core. On a machine with one socket, Slurm's numbers are those of Linux."""
    found = re.search(r"CPU_IDs=(\d+)\b", slurm.command("scontrol", "show", "job", "-d", job_id))
    assert found is not None
    return {int(found.group(1))}


def cores_of_threads(process: psutil.Process) -> set[int]:
    return {core for thread in process.threads() for core in os.sched_getaffinity(thread.id)}


@pytest.mark.parametrize("slurm", CONFINED, indirect=True)
def test_runs_side_by_side_keep_to_the_cores_of_their_jobs(
    slurm: Cluster, client: Client, provision: Provision, request: pytest.FixtureRequest
) -> None:
    experiment_id = submit(client, base={"steps": 200_000, "threads": 1}, repetitions=2)
    provision(pools={"one": {"cores": 1}})
    until(lambda: [run.state for run in client.runs(experiment_id)] == ["running"] * 2, "two runs to train", LONG)
    workers = [worker for worker in client.workers() if worker.left_at is None]
    used = set()
    for worker in workers:
        job_id = worker.labels["slurm_job"]
        given, process = cores_of(slurm, job_id), worker_of(job_id)
        (trainer,) = process.children()
        assert cores_of_threads(trainer) == set(worker.cores) == given
        assert cores_of_threads(process) == given
        # Cgroups confine a process that asks for more cores; an affinity mask alone does not.
        os.sched_setaffinity(process.pid, {0, 1})
        assert (os.sched_getaffinity(process.pid) == given) == ("cgroup" in request.node.callspec.id)
        used.add((slurm.node_of(job_id), *given))
    assert len(used) == 2
    assert {worker.memory_bytes for worker in workers} == {1 << 30}  # the pool's, not the node's
    client.cancel_experiment(experiment_id)
    until(lambda: slurm.jobs() == [], "the workers to leave", LONG)


@pytest.mark.parametrize("slurm", ["task/none"], indirect=True)
def test_a_worker_whose_job_is_not_bound_to_its_cores_takes_none(
    home: House, client: Client, provision: Provision
) -> None:
    submit(client, base={"threads": 1})
    provision(pools={"one": {"cores": 1}})
    until(lambda: logged(home, "submission-fruitless"), "the job's end", LONG)
    log = next((home.folder / "jobs").glob("*.log")).read_text()
    assert "at most the number of cores of Slurm job" in log
    assert not list(client.workers())
