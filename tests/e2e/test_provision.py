"""`taskloom provision` with a Slurm that starts no jobs."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from taskloom import Client
from taskloom.contract.experiments import ExperimentRequest
from tests.support import fake_slurm
from tests.support.patience import until
from tests.support.processes import House
from tests.support.wire import Message, Send, Wire

POOLS = """
name = "t"
server = "{url}"
interval = 1
log_folder = "jobs"

[pools.two]
partition = "main"
cores = 2
memory = "1GiB"
walltime = "01:00:00"
max_jobs = 2
prelude = "module load taskloom"
"""


@pytest.fixture
def waiting(home: House, client: Client) -> int:
    """A run that waits for a worker, and a pools file with a pool for it."""
    (home.folder / "pools.toml").write_text(POOLS.format(url=home.url))
    base = {"model": "tiny", "batch": 1, "seq": 16, "steps": 3, "threads": 2}
    request = {"base": base, "limits": {"timeout_s": 200}}
    client.submit(ExperimentRequest.model_validate(request))
    (run,) = client.runs()
    return run.id


def environment(home: House, slurm: Path) -> dict[str, str]:
    return {
        **os.environ, "PATH": f"{slurm}:{os.environ['PATH']}", "XDG_STATE_HOME": str(home.folder / "state"),
        "TASKLOOM_SERVER": home.url,
    }  # fmt: skip


def provision(*options: str) -> list[str]:
    return [sys.executable, "-P", "-m", "taskloom.cli", "provision", "pools.toml", *options]


def printed(home: House, slurm: Path, *command: str) -> str:
    """Execute a command in the folder of the pools file, check that it succeeds, and return its output."""
    done = subprocess.run(
        command, cwd=home.folder, env=environment(home, slurm), capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_plan_prints_what_would_be_submitted_and_submits_nothing(home: House, client: Client, waiting: int) -> None:
    slurm = fake_slurm.commands(home.folder / "slurm")
    plan = printed(home, slurm, *provision("--plan"))
    assert plan.startswith("# pool two: 1 blocks wait, 0 jobs, 1 to submit, 0 to cancel\nsbatch ")
    assert "\n".join(json.loads(printed(home, slurm, *provision("--plan", "--json")))["plan"]) == plan.rstrip("\n")
    assert len(fake_slurm.calls(slurm, "squeue")) == 2
    assert fake_slurm.calls(slurm, "sbatch") == fake_slurm.calls(slurm, "scancel") == []
    assert client.pools() == []
    assert client.run(waiting).state == "queued"

    # A shell that executes the printed plan calls sbatch with the arguments that a round uses.
    by_hand = fake_slurm.commands(home.folder / "by-hand")
    printed(home, by_hand, "bash", "-euc", plan)
    printed(home, slurm, *provision("--once"))
    (planned,), (run,) = fake_slurm.calls(by_hand, "sbatch"), fake_slurm.calls(slurm, "sbatch")
    name = next(a for a in run["arguments"] if a.startswith("--job-name=")).removeprefix("--job-name=")
    assert [a.replace("t.two.NEW", name) for a in planned["arguments"]] == run["arguments"]
    assert planned["script"] == run["script"]
    assert "module load taskloom" in run["script"]


@pytest.mark.usefixtures("waiting")
def test_doctor_checks_what_a_provisioner_needs_here(home: House) -> None:
    slurm = fake_slurm.commands(home.folder / "slurm")
    doctor = (sys.executable, "-P", "-m", "taskloom.cli", "doctor", "--json", "--pools")
    found = {each["name"]: each["found"] for each in json.loads(printed(home, slurm, *doctor, "pools.toml"))["checks"]}
    assert found["pools file"] == f"{home.folder}/pools.toml, with 1 pool"
    assert found["Slurm"] == ", ".join(f"{slurm}/{name}" for name in ("sbatch", "squeue", "scancel"))
    assert found["folders of the provisioner"] == f"jobs, {home.folder}/state/taskloom"
    assert found["way of the provisioner to its server"] == home.url
    refused = subprocess.run(
        (*doctor, "none.toml"), cwd=home.folder, env=environment(home, slurm), capture_output=True, text=True,
        timeout=240, check=False,
    )  # fmt: skip
    assert (refused.returncode, json.loads(refused.stderr)["error"]) == (2, "none.toml: No such file or directory")


@pytest.mark.usefixtures("waiting")
def test_a_password_of_the_servers_address_reaches_a_job_by_its_environment_alone(home: House) -> None:
    def carry(message: Message, send: Send) -> httpx.Response:  # as a proxy that asks for a password
        others = {name: value for name, value in message.headers.items() if name != "authorization"}
        return send(dataclasses.replace(message, headers=others))

    slurm = fake_slurm.commands(home.folder / "slurm")
    with Wire(home.url, carry) as proxy:
        address = proxy.url.replace("://", "://me:w0rd@")
        (home.folder / "pools.toml").write_text(POOLS.format(url=address))
        plan = printed(home, slurm, *provision("--plan"))
        printed(home, slurm, *provision("--once"))
    (call,) = fake_slurm.calls(slurm, "sbatch")
    assert call["server"] == address
    assert call["script"] in plan
    assert "w0rd" not in plan + " ".join(call["arguments"])


@pytest.mark.slow
def test_a_run_shows_its_pools_job_and_the_provisioner_its_metrics_and_a_log_like_the_servers(
    home: House, client: Client, waiting: int
) -> None:
    slurm = fake_slurm.commands(home.folder / "slurm")
    command = ["sh", "-c", 'cd "$0" && exec "$@"', str(home.folder), *provision("--metrics-port", "0")]
    process = home.run("provisioner", command, **environment(home, slurm))

    def pending() -> bool:
        queue = client.run(waiting).queue
        return queue is not None and queue.waiting_for.endswith("Priority")

    until(pending, "Slurm's reason at the run")
    shown = printed(home, slurm, sys.executable, "-P", "-m", "taskloom.cli", "runs", "show", str(waiting))
    assert "position 1: a job of pool `two` is pending in Slurm: Priority" in shown.splitlines()

    lines = log(process.log)
    (started,) = (line for line in lines if line["event"] == "started")
    found = samples(httpx.get(started["metrics"]).text)
    assert found["taskloom_provision_jobs", "two", "PENDING"] == 1
    assert found["taskloom_provision_jobs", "two", "RUNNING"] == 0
    assert found["taskloom_provision_waiting_blocks", "two"] == 1
    assert found["taskloom_provision_submissions_total", "accepted", "two"] == 1
    assert found["taskloom_provision_last_round_timestamp_seconds",] > 0

    (slurm / "nonsense").write_text("#!/bin/sh\necho nonsense\n")
    (slurm / "nonsense").chmod(0o755)
    (slurm / "nonsense").replace(slurm / "squeue")
    until(lambda: [line for line in log(process.log) if line["event"] == "slurm-silent"], "a refused answer")
    process.popen.terminate()
    assert process.wait() == 0
    lines = log(process.log)
    assert [line["event"] for line in lines[:2]] == ["started", "submitted"]
    assert {line["level"] for line in lines if line["event"] == "slurm-silent"} == {"warning"}
    assert {line["level"] for line in lines if line["event"] != "slurm-silent"} == {"info"}
    assert {line["logger"] for line in lines} == {"taskloom.provisioner"}
    for line in (*lines, *log(home.server.log)):
        assert list(line)[:4] == ["at", "level", "logger", "message"]


def log(path: Path) -> list[dict[str, Any]]:
    """The complete lines of a log."""
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Samples of a scrape by metric name and label values."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.mark.usefixtures("waiting")
def test_a_taken_metrics_port_is_named(home: House) -> None:
    port = home.url.rpartition(":")[2]
    done = subprocess.run(
        provision("--metrics-port", port), cwd=home.folder, env=environment(home, home.folder), capture_output=True,
        text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert f"metrics: port {port} of 127.0.0.1: Address already in use" in done.stderr
    assert "Traceback" not in done.stderr
