"""`taskloom provision` with a real Slurm: three nodes on this host, real workers, real trainers."""

from __future__ import annotations

import os
import re
import signal
import stat
import sys
from pathlib import Path

import pytest

from taskloom import Client
from tests.support.cluster import Cluster
from tests.support.jobs_and_runs import (
    LONG,
    Provision,
    all_succeed,
    exactly_one_result_each,
    logged,
    states,
    submit,
    training,
    worker_of,
)
from tests.support.patience import until
from tests.support.processes import House, gone

pytestmark = pytest.mark.slurm

JOB_SCRIPT = Path(__file__).parents[2] / "deploy/taskloom-worker.slurm"


def test_the_queue_brings_its_workers_and_they_leave(slurm: Cluster, client: Client, provision: Provision) -> None:
    experiment_id = submit(client, axes={"threads": [1, 2]}, repetitions=3)
    most = 0
    provision(pools={"two": {}})

    def done() -> bool:
        nonlocal most
        most = max(most, len(slurm.jobs()))
        return set(states(client, experiment_id)) == {"succeeded"}

    until(done, "six runs to succeed", LONG)
    exactly_one_result_each(client, experiment_id)
    assert 1 <= most <= 2
    until(lambda: slurm.jobs() == [], "the workers to leave", LONG)
    assert all(worker.left_at is not None for worker in client.workers())


def test_what_outlasts_the_walltime_is_never_started_and_says_why(
    slurm: Cluster, client: Client, provision: Provision
) -> None:
    too_long = submit(client, limits={"timeout_s": 3600})
    fits = submit(client)
    provision(pools={"short": {}})
    all_succeed(client, fits)
    run = client.run(next(iter(client.runs(experiment_id=too_long))).id)
    assert (run.state, run.attempts) == ("queued", 0)
    assert run.queue is not None
    assert run.queue.reason == "too-little-time"
    assert "may take 3600 s" in run.queue.waiting_for
    until(lambda: slurm.jobs() == [], "the worker to leave", LONG)
    assert client.run(run.id).attempts == 0


def test_a_pending_job_is_what_a_run_waits_for(
    slurm: Cluster, home: House, client: Client, provision: Provision
) -> None:
    slurm.command("scontrol", "update", "partitionname=main", "state=DOWN")
    slurm.command("sbatch", "--job-name=t.other.1", "--output=/dev/null", "--wrap", "true")  # another's job
    try:
        experiment_id = submit(client)
        provision(pools={"held": {}})
        run_id = next(iter(client.runs(experiment_id=experiment_id))).id

        def reason() -> str:
            queue = client.run(run_id).queue
            return "" if queue is None or queue.reason != "pool-waiting" else queue.waiting_for

        until(lambda: "a job of pool `held` is pending in Slurm: Partition" in reason(), "Slurm's reason")
        client.cancel_experiment(experiment_id)
        until(lambda: len(slurm.jobs()) == 1, "the job that nothing needs to be cancelled")
        until(lambda: logged(home, "cancelled"), "the log to say so")  # logged once the job has left
        assert len(logged(home, "cancelled")) == 1
        assert [job["name"] for job in slurm.jobs()] == ["t.other.1"]
    finally:
        slurm.command("scontrol", "update", "partitionname=main", "state=UP")


@pytest.mark.parametrize("disturbance", ["scancel", "preemption", "walltime", "slurmd", "worker"])
def test_every_run_has_one_result_whatever_ends_its_job(
    slurm: Cluster, client: Client, provision: Provision, disturbance: str
) -> None:
    experiment_id = submit(client, base={"steps": 8000}, axes={"seed": [1, 2]}, repetitions=1)
    provision(pools={"two": {"max_jobs": 1}})
    run_id = training(client, experiment_id)
    attempt = client.run(run_id).history[-1]
    job_id = next(worker.labels["slurm_job"] for worker in client.workers() if worker.worker_id == attempt.worker_id)
    node = slurm.node_of(job_id)
    if disturbance == "scancel":
        slurm.command("scancel", job_id)
    elif disturbance == "preemption":
        slurm.command("sbatch", "-p", "urgent", f"--nodelist={node}", "-c", "2", "-o", "/dev/null", "--wrap", "sleep 1")
    elif disturbance == "walltime":  # the worker is warned at once, since one minute is left
        slurm.command("scontrol", "update", f"jobid={job_id}", "TimeLimit=1")
    elif disturbance == "slurmd":
        slurm.kill_node(node)
    else:
        worker = worker_of(job_id)
        worker.kill()
        gone(worker)
    if disturbance == "slurmd":
        until(lambda: slurm.nodes()[node].startswith("down"), "a down node")
        slurm.start_node(node)
    all_succeed(client, experiment_id)
    exactly_one_result_each(client, experiment_id)
    until(lambda: slurm.jobs() == [], "the workers to leave", LONG)


def test_a_block_of_wide_and_narrow_runs_finishes_beside_narrow_workers(
    slurm: Cluster, client: Client, provision: Provision
) -> None:
    narrow = submit(client, base={"threads": 1})
    mixed = submit(client, axes={"threads": [1, 2]}, repetitions=2)
    provision(pools={"one": {"cores": 1}, "two": {}})
    all_succeed(client, narrow)
    all_succeed(client, mixed)
    wide = {run.id for run in client.runs(experiment_id=mixed)}
    cores = {worker.worker_id: worker.cores for worker in client.workers()}
    assert all(len(cores[client.run(run_id).history[-1].worker_id]) == 2 for run_id in wide)
    until(lambda: slurm.jobs() == [], "the workers to leave", LONG)


def test_a_killed_provisioner_knows_its_jobs_again(
    slurm: Cluster, home: House, client: Client, provision: Provision
) -> None:
    experiment_id = submit(client, base={"steps": 6000}, repetitions=2)
    first = provision(pools={"two": {}})
    until(lambda: len(slurm.jobs()) == 2, "two jobs")
    first.popen.send_signal(signal.SIGKILL)
    first.wait()
    before = {job["id"] for job in slurm.jobs()}
    second = provision(pools={"two": {}})
    until(lambda: any(pool.jobs for pool in client.pools()), "a report")
    assert {job["id"] for job in slurm.jobs()} <= before
    all_succeed(client, experiment_id)
    assert not logged(home, "submitted")
    until(lambda: slurm.jobs() == [], "the workers to leave", LONG)
    second.popen.terminate()
    assert second.wait() == 0


def shim(folder: Path, name: str, script: str) -> None:
    """Write a script that replaces a Slurm command if its folder is first in PATH."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.mark.parametrize(
    ("script", "event", "said"),
    [
        ("echo sbatch: error: Batch job submission failed: Job violates accounting policy >&2; exit 1",
         "submission-refused", "Job violates accounting policy"),
        ("cat >/dev/null; echo Submitted, probably", "submission-unknown", "sbatch printed 'Submitted, probably'"),
    ],
)  # fmt: skip
def test_a_refusing_sbatch_is_asked_ever_more_seldom_and_its_words_are_shown(
    slurm: Cluster, home: House, client: Client, provision: Provision, script: str, event: str, said: str
) -> None:
    experiment_id = submit(client)
    run_id = next(iter(client.runs(experiment_id=experiment_id))).id
    shim(home.folder / "bin", "sbatch", script)
    provision(pools={"two": {}}, PATH=f"{home.folder}/bin:{os.environ['PATH']}")

    def held() -> bool:
        queue = client.run(run_id).queue
        return queue is not None and said in queue.waiting_for

    until(held, "the reason at the run")
    until(lambda: len(logged(home, event)) >= 3, "three tries", LONG)
    assert [entry["delay_s"] for entry in logged(home, event)[:3]] == [1.0, 2.0, 4.0]
    assert slurm.jobs() == []


def test_jobs_that_bring_no_worker_are_submitted_ever_more_seldom_and_their_log_is_named(
    home: House, client: Client, provision: Provision
) -> None:
    experiment_id = submit(client)
    run_id = next(iter(client.runs(experiment_id=experiment_id))).id
    provision(pools={"two": {"prelude": "echo no such module; exit 3"}})
    until(lambda: len(logged(home, "submission-fruitless")) >= 3, "three tries", LONG)
    assert [entry["delay_s"] for entry in logged(home, "submission-fruitless")[:3]] == [1.0, 2.0, 4.0]
    assert len(logged(home, "submitted")) == 3

    def reason() -> re.Match[str] | None:
        queue = client.run(run_id).queue
        said = "" if queue is None else queue.waiting_for
        return re.search(r"job \d+ ended before its worker registered; its log is (.*\.log)", said)

    found = until(reason, "the reason at the run")
    assert found is not None
    assert Path(found.group(1)).read_text() == "no such module\n"


def test_a_job_that_was_submitted_by_a_command_that_hangs_is_not_submitted_twice(
    slurm: Cluster, home: House, client: Client, provision: Provision
) -> None:
    experiment_id = submit(client)
    # The real command does its work, but its answer is lost.
    real = next(path for path in os.environ["PATH"].split(":") if (Path(path) / "sbatch").exists())
    shim(home.folder / "bin", "sbatch", f'{real}/sbatch "$@" >/dev/null && exec sleep 60')
    pause = "import taskloom.provisioner.slurm as s; s.ANSWER_S = 3.0\n"
    (home.folder / "sitecustomize.py").write_text(pause)
    path = f"{home.folder}:{os.environ.get('PYTHONPATH', '')}"
    provision(pools={"two": {}}, PATH=f"{home.folder}/bin:{os.environ['PATH']}", PYTHONPATH=path)
    until(lambda: logged(home, "submission-unknown"), "the command to be given up")
    all_succeed(client, experiment_id)
    assert len(list((home.folder / "jobs").glob("*.log"))) == 1
    until(lambda: slurm.jobs() == [], "the worker to leave", LONG)


def test_nothing_is_submitted_while_the_queue_cannot_be_read(
    slurm: Cluster, home: House, client: Client, provision: Provision
) -> None:
    experiment_id = submit(client)
    broken = home.folder / "broken"
    real = next(path for path in os.environ["PATH"].split(":") if (Path(path) / "squeue").exists())
    asked = home.folder / "asked"
    answer = f'test -e {broken} && {{ echo >> {asked}; echo nonsense; exit 0; }}; exec {real}/squeue "$@"'
    shim(home.folder / "bin", "squeue", answer)
    broken.touch()
    provision(pools={"two": {}}, PATH=f"{home.folder}/bin:{os.environ['PATH']}")
    until(lambda: len(logged(home, "slurm-silent")) >= 3, "three rounds")
    rounds = len(logged(home, "slurm-silent"))
    assert len(asked.read_text()) <= rounds + 1  # one call a round, and perhaps one that is still running
    assert not logged(home, "submitted")
    broken.unlink()
    all_succeed(client, experiment_id)
    until(lambda: slurm.jobs() == [], "the worker to leave", LONG)


def by_hand(slurm: Cluster, home: House, idle_exit: str) -> str:
    """Submit the job script as a user would, with a missing key file; return the job's number."""
    settings = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "TASKLOOM_SERVER": home.url,
        "TASKLOOM_TOKEN_FILE": str(home.folder / "no-key"), "TASKLOOM_IDLE_EXIT": idle_exit, "TASKLOOM_PEAKS": "never",
        "XDG_STATE_HOME": str(home.folder / "state"),
    }  # fmt: skip
    exported = ",".join(["ALL", *(f"{name}={value}" for name, value in settings.items())])
    arguments = ("--parsable", f"--export={exported}", f"--output={home.folder}/by-hand.log", str(JOB_SCRIPT))
    return slurm.command("sbatch", *arguments).strip()


def test_the_job_script_brings_a_worker_by_hand_and_needs_no_key_where_the_server_asks_for_none(
    slurm: Cluster, home: House, client: Client
) -> None:
    experiment_id = submit(client)
    by_hand(slurm, home, "4s")
    all_succeed(client, experiment_id)
    assert [worker.labels["partition"] for worker in client.workers()] == ["main"]
    until(lambda: slurm.jobs() == [], "the worker to leave", LONG)


def test_a_requeued_job_script_goes_on_in_its_log_and_the_run_it_lost_has_one_result(
    slurm: Cluster, home: House, client: Client
) -> None:
    experiment_id = submit(client, base={"steps": 3000, "warmup": 2})
    job_id = by_hand(slurm, home, "10s")
    training(client, experiment_id)
    slurm.command("scontrol", "requeue", job_id)
    until(lambda: [job["state"] for job in slurm.jobs()] == ["PENDING"], "the job to be queued again", LONG)
    first = (home.folder / "by-hand.log").read_text()
    assert "registered" in first
    # By default Slurm waits two minutes. Within the first second, slurmd would take the new credential for revoked.
    slurm.command("scontrol", "update", f"jobid={job_id}", "starttime=now+3seconds")
    all_succeed(client, experiment_id)
    exactly_one_result_each(client, experiment_id)
    until(lambda: slurm.jobs() == [], "the worker to leave", LONG)
    assert (home.folder / "by-hand.log").read_text().startswith(first)
    assert (home.folder / "by-hand.log").read_text().count("registered") == 2


def test_two_provisioners_of_one_name_do_not_run_beside_each_other(home: House, provision: Provision) -> None:
    first = provision(pools={"two": {}})
    until(lambda: logged(home, "started"), "the first")
    assert provision(pools={"two": {}}).wait() == 2
    assert first.popen.poll() is None
