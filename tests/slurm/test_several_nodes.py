"""Runs with ranks on two nodes of a real Slurm, from their submission to the report, and the ends that they may have.

Both nodes are this host under two host names. MPI connects their ranks by TCP, as on two machines.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from taskloom import Client
from taskloom.analysis.report import page
from tests.support.cluster import Cluster
from tests.support.jobs_and_runs import LONG, Provision, all_succeed, states, submit, training, worker_of
from tests.support.patience import until
from tests.support.processes import House, gone

pytestmark = pytest.mark.slurm

PAGE = Path(__file__).parents[2] / "docs/how-to/several-nodes.md"
RANKED = {"batch": 4, "ranks": 2, "threads": 1, "fusion": "rows", "batch_slice": 1, "token_slice": 8}
PAIR = {"pair": {"nodes": 2, "labels.mpi": "installed"}}
ENDLESS = {**RANKED, "steps": 1_000_000}
FAILS_WITHIN_S = 10.0
FAILS = ["launcher killed", "guard killed"]  # what fails the run that was on two nodes


def ranks() -> list[psutil.Process]:
    """The ranks on several nodes, in their order."""
    found = [each for each in psutil.process_iter(["cmdline", "environ"]) if _is_rank(each)]
    return sorted(found, key=lambda each: int(each.info["environ"]["SLURM_PROCID"]))


def _is_rank(process: psutil.Process) -> bool:
    line = process.info["cmdline"] or []
    return line[1:4] == ["-P", "-m", "gpt2core"] and "--nodes" in line


def on_two_nodes(client: Client) -> tuple[int, list[psutil.Process]]:
    """A run that is training on two nodes, and its ranks."""
    run = training(client, submit(client, base=ENDLESS, requires={"nodes": 2}))
    found = ranks()
    assert len({each.info["environ"]["SLURMD_NODENAME"] for each in found}) == len(found) == 2
    return run, found


def test_two_nodes_compute_the_bits_of_one(slurm: Cluster, client: Client, provision: Provision) -> None:
    provision(pools=PAIR)
    compared = {"axes": {"scheduler": ["fork-join", "task"]}, "repetitions": 1}
    apart = submit(client, base=RANKED, requires={"nodes": 2}, **compared)
    all_succeed(client, apart)
    together = submit(client, base=RANKED, **compared)
    all_succeed(client, together)
    results = [[client.result(run.id) for run in client.runs(each)] for each in (apart, together)]
    (losses,) = {tuple(result["losses"]) for pair in results for result in pair}
    (weights,) = {result["weights_sha256"] for pair in results for result in pair}
    assert len(losses) == 12
    assert weights
    assert [result["environment"].get("nodes") for pair in results for result in pair] == [2, 2, None, None]
    assert all(result["environment"]["mpi"].startswith("MPICH ") for result in results[0])
    assert [rank["rank"] for rank in results[0][0]["communication"]] == [0, 1]
    assert all(worker.labels["nodes"] == "2" for worker in client.workers())
    assert "2 ranks" in page(client.report(apart))
    until(lambda: slurm.jobs() == [], "the worker to leave", LONG)


def test_a_number_of_nodes_that_no_pool_has_says_so(slurm: Cluster, client: Client, provision: Provision) -> None:
    provision(pools=PAIR)
    three = submit(client, base={**RANKED, "batch": 3, "ranks": 3}, requires={"nodes": 3})
    run_id = next(iter(client.runs(experiment_id=three))).id

    def words() -> str:
        queue = client.run(run_id).queue
        return "" if queue is None else queue.waiting_for

    until(lambda: words().endswith("no job of a pool has 3 nodes"), "the reason")
    assert slurm.jobs() == []


@pytest.mark.parametrize("number", [0, 1])
def test_a_killed_rank_fails_the_run(client: Client, provision: Provision, number: int) -> None:
    provision(pools=PAIR)
    run, found = on_two_nodes(client)
    found[number].kill()
    began_s = time.monotonic()
    until(lambda: client.run(run).state == "failed", "the run to fail")
    assert time.monotonic() - began_s < FAILS_WITHIN_S
    for each in found:
        gone(each)


@pytest.mark.parametrize("way", [*FAILS, "run cancelled", "worker killed", "job cancelled"])
def test_no_rank_outlives_its_run(slurm: Cluster, client: Client, provision: Provision, way: str) -> None:
    provision(pools=PAIR)
    run, found = on_two_nodes(client)
    (worker,) = [each for each in client.workers() if each.left_at is None]
    process = worker_of(worker.labels["slurm_job"])
    launchers = [each for each in process.children(recursive=True) if each.name() == "srun"]  # srun forks itself
    if way == "run cancelled":
        client.cancel_run(run)
        until(lambda: client.run(run).state == "cancelled", "the run to be cancelled")
    elif way == "worker killed":
        process.send_signal(signal.SIGKILL)
    elif way == "launcher killed":
        min(launchers, key=psutil.Process.create_time).kill()
    elif way == "guard killed":
        process.children()[0].kill()
    else:
        slurm.command("scancel", worker.labels["slurm_job"])
    for each in (*found, *launchers):
        gone(each)
    if way in FAILS:
        until(lambda: client.run(run).state == "failed", "the run to fail")
    assert "succeeded" not in states(client, client.run(run).experiment_id)


def test_the_page_holds(slurm: Cluster, home: House, client: Client) -> None:
    """Its blocks, one after the other, with this environment as the one that the nodes share."""
    folder = home.folder / "user"
    (folder / ".config/taskloom").mkdir(parents=True)
    (folder / ".config/taskloom/worker.key").write_text("unused\n")
    (folder / ".config/taskloom/worker.key").chmod(0o600)
    (folder / "taskloom").symlink_to(sys.prefix)
    environment = {
        "HOME": str(folder), "PATH": f"{folder}/taskloom/bin:{os.environ['PATH']}", "TASKLOOM_SERVER": home.url,
    }  # fmt: skip
    printed = []
    for kind, text in re.findall(r"^```(\w+(?: \S+)?)\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE):
        if kind == "toml pools.toml":
            here = text.replace("http://taskloom.example:8321", home.url).replace("interval = 30", "interval = 1")
            (folder / "pools.toml").write_text(here.replace("idle_exit = 120", "idle_exit = 4"))
        elif kind == "sh background":
            home.run("user", ["bash", "-c", f"cd {folder} && exec {text}"], **environment)
        else:
            done = subprocess.run(
                ["bash", "-eu", "-c", text], env={**os.environ, **environment}, cwd=folder, capture_output=True,
                text=True, timeout=LONG, check=False,
            )  # fmt: skip
            assert done.returncode == 0, (text, done.stdout, done.stderr)
            printed.append(done.stdout + done.stderr)
    kinds, report = printed
    assert "pmi2" in kinds
    assert "task" in report
    assert {client.result(run.id)["environment"]["nodes"] for run in client.runs(1)} == {2}
    until(lambda: slurm.jobs() == [], "the worker to leave", LONG)
