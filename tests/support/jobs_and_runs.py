"""Submit runs to Taskloom, and find their jobs, workers and logs."""

from __future__ import annotations

import json
from collections.abc import Callable

import psutil

from taskloom import Client
from taskloom.contract.experiments import ExperimentRequest
from tests.support.patience import until
from tests.support.processes import House, Process

LONG = 300.0  # seconds; trainers compile first, and other processes run
Provision = Callable[..., Process]


def submit(client: Client, **request: object) -> int:
    """An experiment of tiny runs."""
    base = {"model": "tiny", "batch": 1, "seq": 16, "steps": 12, **request.pop("base", {})}  # type: ignore[dict-item]
    whole = {"base": base, "limits": {"timeout_s": 200}, **request}
    return client.submit(ExperimentRequest.model_validate(whole)).id


def states(client: Client, experiment_id: int) -> list[str]:
    return [run.state for run in client.runs(experiment_id=experiment_id)]


def all_succeed(client: Client, experiment_id: int) -> None:
    until(lambda: set(states(client, experiment_id)) == {"succeeded"}, "all runs to succeed", LONG)


def exactly_one_result_each(client: Client, experiment_id: int) -> None:
    for summary in client.runs(experiment_id=experiment_id):
        run = client.run(summary.id)
        assert [attempt.state for attempt in run.history].count("succeeded") == 1, run.history


def training(client: Client, experiment_id: int) -> int:
    """A run of the experiment that is training."""

    def found() -> int | None:
        for run in client.runs(experiment_id=experiment_id):
            if run.state == "running":
                progress = client.run(run.id).history[-1].progress
                if progress is not None and progress.stage == "training":
                    return run.id
        return None

    return until(found, "a run to train", LONG) or 0


def log_of(home: House) -> list[dict[str, object]]:
    """The provisioner's log."""
    path = next(path for path in sorted(home.folder.glob("*-provisioner.log"), reverse=True))
    return [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]


def logged(home: House, event: str) -> list[dict[str, object]]:
    return [entry for entry in log_of(home) if entry["event"] == event]


def worker_of(job_id: str) -> psutil.Process:
    """The worker that runs in a job."""
    return next(process for process in psutil.process_iter(["cmdline", "environ"]) if _is_worker(process, job_id))


def _is_worker(process: psutil.Process, job_id: str) -> bool:
    line, environment = process.info["cmdline"] or [], process.info["environ"] or {}
    return "taskloom.worker" in line and environment.get("SLURM_JOB_ID") == job_id
